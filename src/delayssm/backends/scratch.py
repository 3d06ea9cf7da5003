"""Scratch memory that is kept from one call to the next: new memory has to be mapped and cleared by the system."""

import threading
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from delayssm.backends.numba_vectors import VECTOR_BYTES

#: More than this is returned at once.
_KEPT_BYTES = 1 << 26
_kept = threading.local()


def work_arrays(m: int, parts: int, count: int, dtype: torch.dtype) -> NDArray[Any]:
    """Return work arrays for transforms of m numbers, (parts, count, 2 m lanes), with whatever was in them."""
    length = 2 * m * VECTOR_BYTES // dtype.itemsize
    size = parts * count * length * dtype.itemsize
    memory: Tensor | None = getattr(_kept, "memory", None)
    if memory is None or memory.nbytes < size:
        memory = torch.empty(size, dtype=torch.uint8, device="cpu")  # aligned to the lines of the cache
        if size <= _KEPT_BYTES:
            _kept.memory = memory
    array: NDArray[Any] = memory[:size].view(dtype).view(parts, count, length).numpy()
    return array
