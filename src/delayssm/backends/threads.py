"""Compiled loops side by side, on the threads that torch itself uses.

After an operation, torch's threads keep their cores busy for some milliseconds in case another follows. Threads of our
own would have to compete with them, so these are borrowed: torch's threads belong to OpenMP, whose library runs any
function on them. Where it cannot be found, Python's threads do the work. Compiled code runs without Python's lock.
"""

import ctypes
import functools
import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

#: Below this many elementary updates a second thread costs more than it brings.
_PARALLEL_WORK = 200_000
_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def parts_for(work: int) -> int:
    """Return into how many parts to divide some amount of work: as many as torch has threads, if it pays."""
    return torch.get_num_threads() if work >= _PARALLEL_WORK else 1


def run(loop: Callable[..., None], parts: int, *arguments: Any) -> None:
    """Call loop(part, parts, *arguments) for every part."""
    if parts == 1:
        return loop(0, 1, *arguments)
    numbers, errors = itertools.count(), []

    def take_parts(_: Any = None) -> None:
        """Do what is left. However many threads there are, every part is done once."""
        try:
            while (part := next(numbers)) < parts:
                loop(part, parts, *arguments)
        except BaseException as error:
            errors.append(error)

    team = _openmp()
    if team is not None:
        team(_FUNCTION(take_parts), None, parts, 0)
    else:
        helpers = [_pool().submit(take_parts) for _ in range(parts - 1)]
        take_parts()
        for helper in helpers:
            helper.result()
    if errors:
        raise errors[0]


@functools.cache
def _openmp() -> Any:
    """Return the function that starts a team of OpenMP's threads: (function, argument, threads, flags)."""
    try:
        start = ctypes.CDLL(None).GOMP_parallel
    except (AttributeError, OSError, TypeError):
        return None
    start.argtypes = [_FUNCTION, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    start.restype = None
    return start


@functools.cache
def openmp() -> dict[str, int] | None:
    """Return the addresses of OpenMP's functions, for compiled code that works in a team; None where there are none."""
    names = {
        "start_team": "GOMP_parallel",
        "thread_number": "omp_get_thread_num",
        "team_size": "omp_get_num_threads",
        "barrier": "GOMP_barrier",
    }
    try:
        library = ctypes.CDLL(None)
        return {key: ctypes.cast(library[name], ctypes.c_void_p).value or 0 for key, name in names.items()}
    except (AttributeError, OSError, TypeError):
        return None


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1), thread_name_prefix="delayssm")


def _after_fork() -> None:
    """Go on with one thread in a process that was forked: the others stay behind, and OpenMP would wait for them."""
    _pool.cache_clear()
    if _openmp.cache_info().currsize or openmp.cache_info().currsize:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
