"""Compilation of the inner loops."""

from collections.abc import Callable
from typing import Any

from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = tuple[Array, ...]


def compiled(parallel: bool = False, inline: bool = False) -> Callable[[Any], Any]:
    """Compile at the first call, and keep the result on disk where there is a place for it.

    All compiled functions that call each other stand in one file: what is on disk notices a change in a file, not in
    the files it calls.
    """
    options = {
        "nogil": True,
        "parallel": parallel,
        "forceinline": inline,
        "error_model": "numpy",
        "fastmath": {"contract", "reassoc", "nsz", "arcp"},  # NaN and infinity keep their meaning
    }

    def decorate(function: Any) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:  # neither the package's folder nor the user's can be written
            return njit(**options)(function)

    return decorate
