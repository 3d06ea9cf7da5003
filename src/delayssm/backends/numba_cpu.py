"""The operations fused for CPUs: nothing of size channels x modes x length is ever stored.

This file converts tensors and decides on threads; the loops are in `numba_transfer`, `numba_recurrence` and
`numba_adjoint`. The transfer function is computed in float64 only, so other dtypes go to the eager backend.
"""

import functools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from delayssm.backends import eager, numba_adjoint, numba_recurrence, numba_transfer

#: Below this many elementary updates a second thread costs more than it brings.
_PARALLEL_WORK = 200_000

#: One of numba's threading layers aborts the process when two threads enter it at once.
_one_at_a_time = threading.Lock()


def transfer(system: Sequence[Tensor], size: int, rho: float, dtype: torch.dtype) -> Tensor:
    w = system[2]
    if dtype != torch.float64:
        return eager.transfer(system, size, rho, dtype)
    out = w.new_empty(*w.shape[:2], size // 2 + 1, 2)
    run(numba_transfer.transfer, _threads(w.numel() * size), _arrays(system), _roots(size), rho, _array(out))
    return out


def transfer_backward(grad: Tensor, system: Sequence[Tensor], size: int, rho: float) -> list[Tensor]:
    lam, mu, w, _, alpha = system
    if grad.dtype != torch.float64:
        return eager.transfer_backward(grad, system, size, rho)
    found = _zeros_like(lam, mu, w, alpha)
    arguments = (_array(grad), _arrays(system), _roots(size), rho, _arrays(found))
    run(numba_transfer.transfer_backward, _threads(w.numel() * size), *arguments)
    return found


def transpose(source: Tensor, target: Tensor) -> None:
    # Rows a power of two apart compete for the same places in the cache, so few of the longer ones at a time.
    read, write = (8, 64) if source.stride(1) > target.stride(1) else (16, 16)
    run(numba_transfer.transpose, _threads(source.numel()), source.numpy(), target.numpy(), read, write)


def scan(
    system: Sequence[Tensor], x: Tensor, lengths: Tensor, position: Tensor, layout: Tensor,
    h: Tensor, feedback: Tensor, copies: Tensor, inputs: Tensor,
) -> Tensor:  # fmt: skip
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    memory = tuple(t.numpy() for t in (h, feedback, copies, inputs))
    parts = _threads(x.numel() * h.shape[-1])
    scratch = np.empty((parts, numba_recurrence.SCRATCH))
    arguments = (
        rows(system).numpy(),
        *_arrays((*system[4:], x, lengths, position, layout)),
        memory,
        _array(y),
        scratch,
    )
    run(numba_recurrence.scan, parts, *arguments)
    return y


def scan_backward(
    grads: Sequence[Tensor], system: Sequence[Tensor], x: Tensor, lengths: Tensor, position: Tensor,
    layout: Tensor, h: Tensor, feedback: Tensor,
) -> list[Tensor]:  # fmt: skip
    coefs, alpha = rows(system), system[5]
    found = _zeros_like(coefs, alpha, x, h, feedback)
    arguments = (_arrays(grads), *_arrays((coefs, alpha, x, lengths, position, layout, h, feedback)), _arrays(found))
    run(numba_adjoint.scan_backward, _threads(x.numel() * h.shape[-1]), *arguments)
    pairs = found[0].view(len(alpha), 4, 2, -1).transpose(2, 3).unbind(1)
    return [*(z.clone() for z in pairs), *found[1:]]


def rows(system: Sequence[Tensor]) -> Tensor:
    """lam, mu, b, c (H, n, 2) as rows of one tensor, (H, 8, n)."""
    return torch.cat([z.detach().transpose(1, 2) for z in system[:4]], 1)


def threads() -> int:
    """As many as torch uses."""
    most: int = numba.config.NUMBA_NUM_THREADS
    return min(torch.get_num_threads(), most)


def _threads(work: int) -> int:
    """The same, where that pays."""
    return threads() if work >= _PARALLEL_WORK else 1


def run(loops: Callable[..., Any], threads: int, *args: Any) -> Any:
    """Call compiled code with so many threads."""
    with _one_at_a_time:
        numba.set_num_threads(threads)
        return loops(*args)


def _array(t: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = t.detach().contiguous().numpy()
    return array


def _arrays(tensors: Sequence[Tensor]) -> tuple[NDArray[Any], ...]:
    return tuple(_array(t) for t in tensors)


def _zeros_like(*tensors: Tensor) -> list[Tensor]:
    return [torch.zeros_like(t, memory_format=torch.contiguous_format) for t in tensors]


@functools.lru_cache(maxsize=32)
def _roots(size: int) -> NDArray[np.float64]:
    """e^(-2 pi i m / size) for m = 0..size-1, as pairs."""
    angle = np.arange(size) * (-2 * math.pi / size)
    return np.stack((np.cos(angle), np.sin(angle)), axis=-1)
