"""The operations fused for CPUs: nothing of size channels x modes x length is ever stored.

This file converts tensors and decides on threads; the loops are in `numba_transfer`, `numba_recurrence` and
`numba_adjoint`. The transfer function is computed in float64 only, so other dtypes go to the eager backend.
"""

import functools
import math
import threading
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from delayssm.backends import ScanGradients, TransferGradients, eager, numba_adjoint, numba_recurrence, numba_transfer

#: Below this many elementary updates a second thread costs more than it brings.
_PARALLEL_WORK = 200_000

#: One of numba's threading layers aborts the process when two threads enter it at once.
_one_at_a_time = threading.Lock()


def transfer(
    *, lam: Tensor, mu: Tensor, w: Tensor, k: Tensor, alpha: Tensor, size: int, rho: float, dtype: torch.dtype
) -> Tensor:
    if dtype != torch.float64:
        return eager.transfer(lam=lam, mu=mu, w=w, k=k, alpha=alpha, size=size, rho=rho, dtype=dtype)
    out = w.new_empty(*w.shape[:2], size // 2 + 1, 2)
    system = _arrays(lam, mu, w, k, alpha)
    run(numba_transfer.transfer, _threads(w.numel() * size), system, _roots(size), rho, _array(out))
    return out


def transfer_backward(
    *, grad: Tensor, lam: Tensor, mu: Tensor, w: Tensor, k: Tensor, alpha: Tensor, size: int, rho: float
) -> TransferGradients:
    if grad.dtype != torch.float64:
        return eager.transfer_backward(grad=grad, lam=lam, mu=mu, w=w, k=k, alpha=alpha, size=size, rho=rho)
    gradients = TransferGradients(*(_zeros_like(t) for t in (lam, mu, w, alpha)))
    system = _arrays(lam, mu, w, k, alpha)
    arguments = (_array(grad), system, _roots(size), rho, _arrays(*gradients))
    run(numba_transfer.transfer_backward, _threads(w.numel() * size), *arguments)
    return gradients


def transpose(source: Tensor, target: Tensor) -> None:
    # Rows a power of two apart compete for the same places in the cache, so few of the longer ones at a time.
    read, write = (8, 64) if source.stride(1) > target.stride(1) else (16, 16)
    run(numba_transfer.transpose, _threads(source.numel()), source.numpy(), target.numpy(), read, write)


def scan(
    *, lam: Tensor, mu: Tensor, b: Tensor, c: Tensor, k: Tensor, alpha: Tensor,
    x: Tensor, lengths: Tensor, position: Tensor, layout: Tensor,
    h: Tensor, feedback: Tensor, copies: Tensor, inputs: Tensor,
) -> Tensor:  # fmt: skip
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    memory = tuple(t.numpy() for t in (h, feedback, copies, inputs))
    threads = _threads(x.numel() * h.shape[-1])
    scratch = np.empty((threads, numba_recurrence.SCRATCH))
    arguments = (
        rows(lam, mu, b, c).numpy(),
        *_arrays(k, alpha, x, lengths, position, layout),
        memory,
        _array(y),
        scratch,
    )
    run(numba_recurrence.scan, threads, *arguments)
    return y


def scan_backward(
    *, g_y: Tensor, g_h: Tensor, g_feedback: Tensor,
    lam: Tensor, mu: Tensor, b: Tensor, c: Tensor, k: Tensor, alpha: Tensor,
    x: Tensor, lengths: Tensor, position: Tensor, layout: Tensor, h: Tensor, feedback: Tensor,
) -> ScanGradients:  # fmt: skip
    coefs = rows(lam, mu, b, c)
    gradients = [_zeros_like(t) for t in (coefs, alpha, x, h, feedback)]
    arguments = (
        _arrays(g_y, g_h, g_feedback),
        *_arrays(coefs, alpha, x, lengths, position, layout, h, feedback),
        _arrays(*gradients),
    )
    run(numba_adjoint.scan_backward, _threads(x.numel() * h.shape[-1]), *arguments)
    g_coefs, g_alpha, g_x, g_h, g_feedback = gradients
    lam, mu, b, c = (z.clone() for z in g_coefs.view(len(alpha), 4, 2, -1).transpose(2, 3).unbind(1))
    return ScanGradients(lam, mu, b, c, g_alpha, g_x, g_h, g_feedback)


def rows(lam: Tensor, mu: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Return coefficients (H, n, 2) as rows of one tensor, (H, 8, n): each real part before its imaginary part."""
    return torch.cat([z.detach().transpose(1, 2) for z in (lam, mu, b, c)], 1)


def threads() -> int:
    """Return the number of threads: as many as torch uses."""
    most: int = numba.config.NUMBA_NUM_THREADS
    return min(torch.get_num_threads(), most)


def _threads(work: int) -> int:
    """Return the number of threads for some amount of work: one where a second would not pay."""
    return threads() if work >= _PARALLEL_WORK else 1


def run(loops: Callable[..., Any], threads: int, *args: Any) -> Any:
    """Call compiled code with a number of threads."""
    with _one_at_a_time:
        numba.set_num_threads(threads)
        return loops(*args)


def _array(t: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = t.detach().contiguous().numpy()
    return array


def _arrays(*tensors: Tensor) -> tuple[NDArray[Any], ...]:
    return tuple(_array(t) for t in tensors)


def _zeros_like(t: Tensor) -> Tensor:
    return torch.zeros_like(t, memory_format=torch.contiguous_format)


@functools.lru_cache(maxsize=32)
def _roots(size: int) -> NDArray[np.float64]:
    """Return e^(-2 pi i m / size) for m = 0..size-1, as pairs."""
    angle = np.arange(size) * (-2 * math.pi / size)
    return np.stack((np.cos(angle), np.sin(angle)), axis=-1)
