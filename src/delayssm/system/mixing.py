"""What follows the SSM in a layer, GELU, dropout, linear and GLU, as one operation.

It goes through memory once in each direction, in pieces that stay in cache, and keeps y and the result of the linear
map for the backward pass; the rest is computed again.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from delayssm import backends
from delayssm.system import plain


def mix(
    y: Float[Tensor, "B L H"],
    weight: Float[Tensor, "G H"],
    bias: Float[Tensor, " G"],
    mask: Float[Tensor, "B 1 H"] | None,
) -> Float[Tensor, "B L H"]:
    """Return a sigmoid(b) for the halves a, b of weight (mask * gelu(y)) + bias."""
    result: Tensor = _formula(y, weight, bias, mask) if plain.wanted() else _mix(y, weight, bias, mask)[0]
    return result


def _formula(y: Tensor, weight: Tensor, bias: Tensor, mask: Tensor | None) -> Tensor:
    return plain.glu(F.linear(F.gelu(y) if mask is None else F.gelu(y) * mask, weight, bias))


@torch.library.custom_op("delayssm::mix", mutates_args=())
def _mix(y: Tensor, weight: Tensor, bias: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    return backends.active(y.device.type).mix(y, weight, bias, mask)


@_mix.register_fake
def _(y: Tensor, weight: Tensor, bias: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    return y.new_empty(y.shape), y.new_empty(*y.shape[:2], len(bias))


@torch.library.custom_op("delayssm::mix_backward", mutates_args=())
def _mix_backward(
    grad: Tensor, y: Tensor, weight: Tensor, bias: Tensor, mask: Tensor | None, z: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    g = backends.active(y.device.type).mix_backward(grad, y, weight, bias, mask, z)
    return g.y, g.weight, g.bias


@_mix_backward.register_fake
def _(
    grad: Tensor, y: Tensor, weight: Tensor, bias: Tensor, mask: Tensor | None, z: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return y.new_empty(y.shape), weight.new_empty(weight.shape), weight.new_empty(len(weight))


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor | None], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad is None:  # nothing depends on the result
        return None, None, None, None
    *inputs, z = ctx.saved_tensors
    if plain.in_a_graph():
        return plain.backward(_formula, inputs, grad)
    y, weight, bias = _mix_backward(grad, *inputs, z)
    return y, weight, bias, None


_mix.register_autograd(_backward, setup_context=_save)
