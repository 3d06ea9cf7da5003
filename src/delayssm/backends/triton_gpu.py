"""The operations fused for GPUs, in Triton.

This file prepares launches; the kernels are in `triton_transfer` and `triton_recurrence`. With TRITON_INTERPRET=1 they
run on CPU tensors, slowly, which is how they are tested without a GPU. Gradients through `stream` are those of the
eager backend: training goes through the transfer function.
"""

import functools
import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from delayssm.backends import KernelGradients, eager, triton_recurrence, triton_transfer

_TYPES = {torch.float32: tl.float32, torch.float64: tl.float64}

convolve, convolve_backward = eager.convolve, eager.convolve_backward
mix, mix_backward = eager.mix, eager.mix_backward
scan_backward = eager.scan_backward
respond, respond_far, advance = eager.respond, eager.respond_far, eager.advance


def kernel(
    *, lam: Tensor, mu: Tensor, w: Tensor, k: Tensor, alpha: Tensor, skip: Tensor, length: int, size: int, eps: float,
    dtype: torch.dtype, result: torch.dtype,
) -> Tensor:  # fmt: skip
    system = {"lam": lam, "mu": mu, "w": w, "k": k, "alpha": alpha}
    K = transfer(**system, size=size, rho=eps ** (1 / size), dtype=dtype)
    return eager.from_transfer(K, skip, length, size, eps, result)


def kernel_backward(
    *, grad: Tensor, lam: Tensor, mu: Tensor, w: Tensor, k: Tensor, alpha: Tensor, size: int, eps: float,
    dtype: torch.dtype,
) -> KernelGradients:  # fmt: skip
    system = {"lam": lam, "mu": mu, "w": w, "k": k, "alpha": alpha}
    G = eager.to_transfer(grad.to(dtype), size, eps)
    return transfer_backward(grad=G, **system, size=size, rho=eps ** (1 / size))


def transfer(
    *, lam: Tensor, mu: Tensor, w: Tensor, k: Tensor, alpha: Tensor, size: int, rho: float, dtype: torch.dtype
) -> Tensor:
    directions, channels, modes, _ = w.shape
    bins = size // 2 + 1
    out = torch.empty(directions, channels, bins, 2, dtype=dtype, device=w.device)
    grid = triton.cdiv(bins, triton_transfer.FORWARD["BLOCK_M"]), directions * channels
    triton_transfer.transfer[grid](
        *_contiguous(lam, mu, w, k, alpha), *_geometry(size, rho, w.device), out, channels, modes, bins, size,
        dtype=_TYPES[dtype], **triton_transfer.FORWARD,
    )  # fmt: skip
    return out


def transfer_backward(
    *, grad: Tensor, lam: Tensor, mu: Tensor, w: Tensor, k: Tensor, alpha: Tensor, size: int, rho: float
) -> KernelGradients:
    directions, channels, modes, _ = w.shape
    g_lam, g_mu, g_w = (torch.empty_like(w, memory_format=torch.contiguous_format) for _ in range(3))
    g_alpha = w.new_empty(w.shape[:3])
    grid = triton.cdiv(modes, triton_transfer.BACKWARD["BLOCK_N"]), directions * channels
    triton_transfer.transfer_backward[grid](
        *_contiguous(grad, lam, mu, w, k, alpha), *_geometry(size, rho, w.device), g_lam, g_mu, g_w, g_alpha,
        channels, modes, size // 2 + 1, size, dtype=_TYPES[grad.dtype], **triton_transfer.BACKWARD,
    )  # fmt: skip
    return KernelGradients(lam=g_lam.sum(0), mu=g_mu.sum(0), w=g_w, alpha=g_alpha.sum((0, 2)))


def scan(
    *, lam: Tensor, mu: Tensor, b: Tensor, c: Tensor, k: Tensor, alpha: Tensor,
    x: Tensor, lengths: Tensor, position: Tensor, h: Tensor, feedback: Tensor,
) -> Tensor:  # fmt: skip
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    modes, constants = h.shape[-1], _contiguous(lam, mu, b, c, k, alpha)
    triton_recurrence.scan[(len(x) * x.shape[2],)](
        *constants, x.contiguous(), y, lengths, position, k.cumsum(0) - k, h, feedback,
        x.shape[1], x.shape[2], modes, feedback.shape[1], **recurrence_launch(modes),
    )  # fmt: skip
    return y


def recurrence_launch(modes: int) -> dict[str, int]:
    """Return launch parameters: one mode for each thread, up to the next power of two."""
    block = triton.next_power_of_2(modes)
    return {"BLOCK_N": block, "num_warps": max(1, block // 32)}


def _contiguous(*tensors: Tensor) -> list[Tensor]:
    return [t.contiguous() for t in tensors]


@functools.lru_cache(maxsize=32)
def _geometry(size: int, rho: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return e^(-2 pi i m / size) for m = 0..size-1, as pairs, and rho. Numbers given to a kernel would be float32."""
    angle = torch.arange(size, dtype=torch.float64) * (-2 * math.pi / size)
    roots = torch.stack((angle.cos(), angle.sin()), -1)
    return roots.to(device), torch.tensor([rho], dtype=torch.float64, device=device)
