"""The operations fused for CPUs: nothing of size channels x modes x length is ever stored.

This file converts tensors and divides the work; the loops are in the files whose names begin with `numba_`. Kernels
are computed in float64 only, so other dtypes go to the eager backend.
"""

import functools
import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from delayssm.backends import (
    ConvolutionGradients,
    KernelGradients,
    ScanGradients,
    eager,
    numba_adjoint,
    numba_convolution,
    numba_echoes,
    numba_kernel,
    numba_recurrence,
)
from delayssm.backends.numba_history import advance, respond, respond_far
from delayssm.backends.numba_mix import mix, mix_backward
from delayssm.backends.numba_vectors import VECTOR_BYTES
from delayssm.backends.ring import Ring
from delayssm.backends.scratch import work_arrays
from delayssm.backends.threads import parts_for, run

__all__ = [
    "advance",
    "convolve",
    "convolve_backward",
    "kernel",
    "kernel_backward",
    "mix",
    "mix_backward",
    "respond",
    "respond_far",
    "scan",
    "scan_backward",
]

#: Rows of a batch whose kernel gradients are added up in one place. The order of a sum must not depend on the number
#: of threads.
_ROWS = 16

#: Spectra of neighbouring channels that are kept at hand together, because their signals lie side by side in memory.
_GROUP_BYTES = 1 << 20


def kernel(
    *, lam: Tensor, mu: Tensor, w: Tensor, k: Tensor, alpha: Tensor, skip: Tensor, length: int, size: int, eps: float,
    dtype: torch.dtype, result: torch.dtype,
) -> Tensor:  # fmt: skip
    if dtype != torch.float64:
        tensors = {"lam": lam, "mu": mu, "w": w, "k": k, "alpha": alpha, "skip": skip}
        return eager.kernel(**tensors, length=length, size=size, eps=eps, dtype=dtype, result=result)
    out = w.new_empty(len(w), length, w.shape[1], dtype=result)
    system, parts = _arrays(lam, mu, w, k, alpha), parts_for(w.numel() * size)
    in_time, in_frequency = _two_ways(lam, k, length, size)
    if in_time:
        run(numba_echoes.kernel, parts, system, *in_time, _array(skip), out.numpy())
    if len(in_frequency):
        m, contour = _contour(size, length, eps)
        work = work_arrays(m, parts, 1, torch.float64)[:, 0]
        run(numba_kernel.kernel, parts, system, in_frequency, *contour, _array(skip), work, out.numpy())
    return out


def kernel_backward(
    *, grad: Tensor, lam: Tensor, mu: Tensor, w: Tensor, k: Tensor, alpha: Tensor, size: int, eps: float,
    dtype: torch.dtype,
) -> KernelGradients:  # fmt: skip
    if dtype != torch.float64:
        tensors = {"lam": lam, "mu": mu, "w": w, "k": k, "alpha": alpha}
        return eager.kernel_backward(grad=grad, **tensors, size=size, eps=eps, dtype=dtype)
    gradients = KernelGradients(*(_zeros_like(t) for t in (lam, mu, w, alpha)))
    system, length, parts = _arrays(lam, mu, w, k, alpha), grad.shape[1], parts_for(w.numel() * size)
    in_time, in_frequency = _two_ways(lam, k, length, size)
    if in_time:
        run(numba_echoes.kernel_backward, parts, _array(grad), system, *in_time, _arrays(*gradients))
    if len(in_frequency):
        m, contour = _contour(size, length, eps)
        work = work_arrays(m, parts, 1, torch.float64)[:, 0]
        run(
            numba_kernel.kernel_backward, parts, _array(grad), system, in_frequency, *contour, work, _arrays(*gradients)
        )
    return gradients


def convolve(x: Tensor, kernel: Tensor) -> Tensor:
    lanes = VECTOR_BYTES // x.element_size()
    if x.shape[2] < lanes:  # too few channels for one vector
        more = lanes - x.shape[2]
        return convolve(F.pad(x, (0, more)), F.pad(kernel, (0, more)))[..., : x.shape[2]].contiguous()
    ring, y = Ring.at_least(x.shape[1]), torch.empty_like(x, memory_format=torch.contiguous_format)
    parts, group = _division(x, ring, lanes)
    work = work_arrays(ring.size, parts, group + 1, x.dtype)
    run(numba_convolution.convolve, parts, *_flat(x, kernel, y), *_sizes(x, kernel, ring), group, _ROWS, work)
    return y


def convolve_backward(grad: Tensor, x: Tensor, kernel: Tensor) -> ConvolutionGradients:
    lanes, H = VECTOR_BYTES // x.element_size(), x.shape[2]
    if lanes > H:
        g = convolve_backward(*(F.pad(t, (0, lanes - H)) for t in (grad, x, kernel)))
        return ConvolutionGradients(*(t[..., :H].contiguous() for t in g))
    ring, g_x = Ring.at_least(x.shape[1]), torch.empty_like(x, memory_format=torch.contiguous_format)
    g_kernel = kernel.new_empty(-(-len(x) // _ROWS), *kernel.shape)
    parts, group = _division(x, ring, lanes)
    work = work_arrays(ring.size, parts, 2 * group + 2, x.dtype)
    arguments = *_flat(grad, x, kernel, g_x, g_kernel), *_sizes(x, kernel, ring), group, _ROWS, work
    run(numba_convolution.convolve_backward, parts, *arguments)
    g_kernel[:, 1:, -1] = 0  # the last sample of a second direction is for a lag that nothing has
    return ConvolutionGradients(g_x, g_kernel.sum(0) if len(g_kernel) > 1 else g_kernel[0])


def scan(
    *, lam: Tensor, mu: Tensor, b: Tensor, c: Tensor, k: Tensor, alpha: Tensor,
    x: Tensor, lengths: Tensor, position: Tensor, h: Tensor, feedback: Tensor,
) -> Tensor:  # fmt: skip
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    arguments = coefficient_rows(lam, mu, b, c).numpy(), *_arrays(k, alpha, x, lengths, position)
    run(numba_recurrence.scan, parts_for(x.numel() * h.shape[-1]), *arguments, h.numpy(), feedback.numpy(), y.numpy())
    return y


def scan_backward(
    *, g_y: Tensor, g_h: Tensor, g_feedback: Tensor,
    lam: Tensor, mu: Tensor, b: Tensor, c: Tensor, k: Tensor, alpha: Tensor,
    x: Tensor, lengths: Tensor, position: Tensor, h: Tensor, feedback: Tensor,
) -> ScanGradients:  # fmt: skip
    coefs = coefficient_rows(lam, mu, b, c)
    gradients = [_zeros_like(t) for t in (coefs, alpha, x, h, feedback)]
    arguments = (
        _arrays(g_y, g_h, g_feedback),
        *_arrays(coefs, k, alpha, x, lengths, position, h, feedback),
        _arrays(*gradients),
    )
    run(numba_adjoint.scan_backward, parts_for(x.numel() * h.shape[-1]), *arguments)
    g_coefs, g_alpha, g_x, g_h, g_feedback = gradients
    lam, mu, b, c = (z.clone() for z in g_coefs.view(len(alpha), 4, 2, -1).transpose(2, 3).unbind(1))
    return ScanGradients(lam, mu, b, c, g_alpha, g_x, g_h, g_feedback)


def coefficient_rows(lam: Tensor, mu: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Return coefficients (H, n, 2) as rows of one tensor, (H, 8, n): each real part before its imaginary part."""
    return torch.cat([z.detach().transpose(1, 2) for z in (lam, mu, b, c)], 1)


def _division(x: Tensor, ring: Ring, lanes: int) -> tuple[int, int]:
    """Return the number of parts, and how many blocks of channels make a group.

    Groups are as large as the cache allows, few enough to keep all parts busy, and of about the same size.
    """
    parts, blocks = parts_for(x.numel()), -(-x.shape[2] // lanes)
    tasks = blocks * -(-len(x) // _ROWS)
    group = max(1, min(tasks // (2 * parts), _GROUP_BYTES // (2 * VECTOR_BYTES * ring.size)))
    return parts, -(-blocks // -(-blocks // group))


def _sizes(x: Tensor, kernel: Tensor, ring: Ring) -> tuple[Any, ...]:
    return (*x.shape, len(kernel)), ring.size, ring.parts(str(x.dtype).removeprefix("torch."))


def _two_ways(lam: Tensor, k: Tensor, length: int, size: int) -> tuple[tuple[NDArray[Any], ...], NDArray[Any]]:
    """Return what the loops over echoes need, nothing if no channel takes them; and the channels for the others."""
    rows = numba_echoes.plan(*_arrays(lam, k), length, size)
    chosen = rows[:, 0] > 0
    channels, others = np.flatnonzero(chosen), np.flatnonzero(~chosen)
    return (rows, channels, _binomials(int(rows.max()))) if len(channels) else (), others


@functools.lru_cache(maxsize=8)
def _binomials(rows: int) -> NDArray[np.float64]:
    """Return C(s + j, j), (ECHOES + 1, times), for all times s of some rows."""
    s = np.arange(rows * numba_echoes.COLUMNS)
    table = np.ones((numba_echoes.ECHOES + 1, len(s)))
    for j in range(1, len(table)):
        table[j] = table[j - 1] * (s + j) / j
    return table


@functools.lru_cache(maxsize=32)
def _contour(size: int, length: int, eps: float) -> tuple[int, tuple[Any, ...]]:
    """Return where a transfer function is sampled for at least `size` times of a kernel, and what restores them.

    These are m, half of their number; and the frequencies, as multiples of 1/(4 m), with all roots of unity of that
    order; rho, where rho^(2 m) = eps; rho^-t / m for t < length; and the transform of m numbers.
    """
    ring = Ring.at_least((size + 1) // 2)
    m = ring.size
    turns = np.rint(4 * m * ring.angles).astype(np.int64)
    angles = np.arange(4 * m) * (2 * math.pi / (4 * m))
    roots = np.stack((np.cos(angles), np.sin(angles)), axis=-1)
    restore = eps ** (-np.arange(length) / (2 * m)) / m
    return m, ((turns, roots), eps ** (1 / (2 * m)), restore, ring.parts(np.float64))


def _array(t: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = t.detach().contiguous().numpy()
    return array


def _arrays(*tensors: Tensor) -> tuple[NDArray[Any], ...]:
    return tuple(_array(t) for t in tensors)


def _flat(*tensors: Tensor) -> tuple[NDArray[Any], ...]:
    return tuple(_array(t).reshape(-1) for t in tensors)


def _zeros_like(t: Tensor) -> Tensor:
    return torch.zeros_like(t, memory_format=torch.contiguous_format)
