"""Causal and bidirectional convolution. Only x and the kernel are kept for the backward pass."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from delayssm import backends
from delayssm.system import plain


def convolve(x: Float[Tensor, "B L H"], kernel: Float[Tensor, "D L H"]) -> Float[Tensor, "B L H"]:
    """Return y_t = sum over s <= t of K_0[t - s] x_s; with a second kernel, + sum over s > t of K_1[s - t - 1] x_s."""
    result: Tensor = (plain.convolve if plain.wanted() else _convolve)(x, kernel)
    return result


@torch.library.custom_op("delayssm::convolve", mutates_args=())
def _convolve(x: Tensor, kernel: Tensor) -> Tensor:
    return backends.active(x.device.type).convolve(x, kernel)


@_convolve.register_fake
def _(x: Tensor, kernel: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("delayssm::convolve_backward", mutates_args=())
def _convolve_backward(grad: Tensor, x: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    g = backends.active(x.device.type).convolve_backward(grad, x, kernel)
    return g.x, g.kernel


@_convolve_backward.register_fake
def _(grad: Tensor, x: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    g_x, g_kernel = (torch.empty_like(t, memory_format=torch.contiguous_format) for t in (x, kernel))
    return g_x, g_kernel


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    if plain.in_a_graph():
        return plain.backward(plain.convolve, ctx.saved_tensors, grad)
    g_x, g_kernel = _convolve_backward(grad, *ctx.saved_tensors)
    return g_x, g_kernel


_convolve.register_autograd(_backward, setup_context=_save)
