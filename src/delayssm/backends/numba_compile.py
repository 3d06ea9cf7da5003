"""Compilation of the inner loops."""

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import event, sigutils
from numba.core.ccallback import CFunc
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = tuple[Array, ...]


_OPTIONS = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz", "arcp"},  # NaN and infinity keep their meaning
    "no_cfunc_wrapper": True,
}


def compiled(function: Any) -> Any:
    """Compile a function that Python calls, at the first call, and keep the result on disk where there is a place."""
    try:
        dispatcher = njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # neither the package's folder nor the user's can be written
        return njit(**_OPTIONS)(function)
    _watch_all_files(dispatcher)
    return dispatcher


def fragment(inline: bool = False, makes_arrays: bool = False) -> Callable[[Any], Any]:
    """Compile a function that only compiled functions call, as a part of them.

    References to arrays are counted only if it `makes_arrays`. Elsewhere the caller holds them, and counting
    would take an atomic operation for each array and call, which is as long as a butterfly.
    """
    return njit(forceinline=inline, no_cpython_wrapper=True, _nrt=makes_arrays, **_OPTIONS)  # type: ignore[no-any-return]


def callback(function: Any, signature: Any) -> int:
    """Return the address of a function that C code can call, compiled now or kept on disk."""
    result = CFunc(function, sigutils.normalize_signature(signature), {}, {"nopython": True})
    with contextlib.suppress(RuntimeError):
        result.enable_caching()
        _watch_all_files(result)
    result.compile()
    address: int = result.address  # type: ignore[assignment]
    return address


class _Notice(event.Listener):  # type: ignore[misc]
    """Says once why the first call takes long."""

    said = False

    def on_start(self, event: Any) -> None:
        if not self.said and event.data["dispatcher"].py_func.__module__.startswith("delayssm"):
            _Notice.said = True
            logging.getLogger("delayssm").warning(
                "delayssm is compiling its loops for this processor, which takes some seconds. The result is kept on "
                "disk where possible, so that later calls and processes begin at once."
            )

    def on_end(self, event: Any) -> None:
        """Do nothing."""


event.register("numba:compile", _Notice())


def _watch_all_files(function: Any) -> None:
    """Compile again after a change in any file here; what is on disk would notice one in its own file alone."""
    with contextlib.suppress(AttributeError):
        file = function._cache._cache_file
        file._source_stamp = file._source_stamp, _stamp()


def _stamp() -> list[tuple[str, float, int]]:
    """Return names, times and sizes of all files of this folder."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return [(file.name, file.stat().st_mtime, file.stat().st_size) for file in files]
