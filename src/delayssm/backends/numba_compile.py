"""Compilation of the inner loops."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = tuple[Array, ...]


def compiled(parallel: bool = False, inline: bool = False) -> Callable[[Any], Any]:
    """Compile at the first call, and keep the result on disk where there is a place for it."""
    options = {
        "nogil": True,
        "parallel": parallel,
        "forceinline": inline,
        "error_model": "numpy",
        "fastmath": {"contract", "reassoc", "nsz", "arcp"},  # NaN and infinity keep their meaning
    }

    def decorate(function: Any) -> Any:
        try:
            dispatcher = njit(cache=True, **options)(function)
        except RuntimeError:  # neither the package's folder nor the user's can be written
            return njit(**options)(function)
        # What is on disk notices a change in its own file, but not in the files that it calls.
        with contextlib.suppress(AttributeError):
            file = dispatcher._cache._cache_file
            file._source_stamp = file._source_stamp, _stamp()
        return dispatcher

    return decorate


def _stamp() -> list[tuple[str, float, int]]:
    """Return names, times and sizes of all files of this folder."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return [(file.name, file.stat().st_mtime, file.stat().st_size) for file in files]
