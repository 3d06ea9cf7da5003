"""The same system in time: a chunk of any length, from a remembered state to the next.

    h_t = lam h_(t-1) + f_t + b x_t,    f_(t+k) = mu [(1 - alpha) h_t + alpha h_(t-1)],    y_t = 2 Re(c . h_t)

Arithmetic is float64. Only what is large is kept in the precision of the signal, which rounds the feedback once and
is not accumulated.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from delayssm import backends
from delayssm.system.parameters import Coefficients
from delayssm.system.state import State


def scan(
    system: Coefficients,
    x: Float[Tensor, "B L H"],
    state: State,
    lengths: Int[Tensor, " B"] | None = None,
) -> tuple[Float[Tensor, "B L H"], State]:
    """Outputs (without the skip term) and the state after the chunk; row i stops after lengths[i] tokens.

    Where no gradient is involved, the memory of the given state is reused for the new one.
    """
    if lengths is None:
        lengths = torch.full_like(state.position, x.shape[1])
    coefficients = list(system._replace(c=system.c[0]))
    inputs = (coefficients, x, lengths, state.position, state.layout.table, state.h, state.feedback)
    in_a_graph = state.h.requires_grad or state.feedback.requires_grad
    if in_a_graph or (torch.is_grad_enabled() and any(t.requires_grad for t in (*coefficients, x))):
        if state.max_length is not None:
            raise RuntimeError(
                "a state with max_length has no gradients; wrap the call in torch.no_grad(), or use a state without one"
            )
        y, h, feedback = _scan(*inputs)
    else:
        y, h, feedback = _scan_in_place(*inputs, state.copies, state.inputs), state.h, state.feedback
    return y, state.advanced(x.shape[1], lengths, h, feedback)


@torch.library.custom_op("delayssm::scan_", mutates_args=("h", "feedback", "copies", "inputs"))
def _scan_in_place(
    system: Sequence[Tensor], x: Tensor, lengths: Tensor, position: Tensor, layout: Tensor,
    h: Tensor, feedback: Tensor, copies: Tensor, inputs: Tensor,
) -> Tensor:  # fmt: skip
    backend = backends.active(x.device.type)
    return backend.scan(system, x, lengths, position, layout, h, feedback, copies, inputs)


@_scan_in_place.register_fake
def _(
    system: Sequence[Tensor], x: Tensor, lengths: Tensor, position: Tensor, layout: Tensor,
    h: Tensor, feedback: Tensor, copies: Tensor, inputs: Tensor,
) -> Tensor:  # fmt: skip
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("delayssm::scan", mutates_args=())
def _scan(
    system: Sequence[Tensor], x: Tensor, lengths: Tensor, position: Tensor, layout: Tensor, h: Tensor, feedback: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    h, feedback = h.clone(), feedback.clone()
    nothing = h.new_empty(len(h), 0, 2, h.shape[-1]), x.new_empty(len(x), 0)  # all delays have rings
    return _scan_in_place(system, x, lengths, position, layout, h, feedback, *nothing), h, feedback


@_scan.register_fake
def _(
    system: Sequence[Tensor], x: Tensor, lengths: Tensor, position: Tensor, layout: Tensor, h: Tensor, feedback: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    return y, torch.empty_like(h), torch.empty_like(feedback)


@torch.library.custom_op("delayssm::scan_backward", mutates_args=())
def _scan_backward(
    grads: Sequence[Tensor], system: Sequence[Tensor], x: Tensor, lengths: Tensor, position: Tensor,
    layout: Tensor, h: Tensor, feedback: Tensor,
) -> list[Tensor]:  # fmt: skip
    backend = backends.active(x.device.type)
    return backend.scan_backward(grads, system, x, lengths, position, layout, h, feedback)


@_scan_backward.register_fake
def _(
    grads: Sequence[Tensor], system: Sequence[Tensor], x: Tensor, lengths: Tensor, position: Tensor,
    layout: Tensor, h: Tensor, feedback: Tensor,
) -> list[Tensor]:  # fmt: skip
    lam, mu, b, c, _, alpha = system
    return [torch.empty_like(t) for t in (lam, mu, b, c, alpha, x, h, feedback)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: object) -> None:
    system, *rest = inputs
    ctx.save_for_backward(*system, *rest)


def _backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
    system, rest = list(ctx.saved_tensors[:6]), ctx.saved_tensors[6:]
    lam, mu, b, c, alpha, x, h, feedback = _scan_backward(list(grads), system, *rest)
    return [lam, mu, b, c, None, alpha], x, None, None, None, h, feedback


_scan.register_autograd(_backward, setup_context=_save)
