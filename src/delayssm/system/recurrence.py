"""The same system in time: a chunk of any length, from a remembered state to the next.

    h_t = lam h_(t-1) + f_t + b x_t,    f_(t+k) = mu [(1 - alpha) h_t + alpha h_(t-1)],    y_t = 2 Re(c . h_t)

Arithmetic is float64. Only the large tensors are kept in the precision of the signal, which rounds the feedback once
and does not accumulate.
"""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from delayssm import backends
from delayssm.system import plain
from delayssm.system.memory import Rings
from delayssm.system.parameters import PairedCoefficients


def scan(
    system: PairedCoefficients,
    x: Float[Tensor, "B L H"],
    rings: Rings,
    position: Int[Tensor, " B"],
    lengths: Int[Tensor, " B"],
) -> tuple[Float[Tensor, "B L H"], Rings]:
    """Return outputs, without the skip term, and the memory after the chunk; row i stops after lengths[i] tokens.

    Where no gradient is involved, the given memory is advanced in place and returned, unless the call is exported:
    inputs and outputs of a graph are different tensors.
    """
    coefficients = system._replace(c=system.c[0])
    inputs = (*coefficients, x, lengths, position, rings.h, rings.feedback)
    in_a_graph = rings.h.requires_grad or rings.feedback.requires_grad or plain.exporting()
    if in_a_graph or (torch.is_grad_enabled() and any(t.requires_grad for t in (*coefficients, x))):
        y, h, feedback = _scan(*inputs)
        return y, replace(rings, h=h, feedback=feedback)
    return _scan_in_place(*inputs), rings


@torch.library.custom_op("delayssm::scan_", mutates_args=("h", "feedback"))
def _scan_in_place(
    lam: Tensor, mu: Tensor, b: Tensor, c: Tensor, k: Tensor, alpha: Tensor,
    x: Tensor, lengths: Tensor, position: Tensor, h: Tensor, feedback: Tensor,
) -> Tensor:  # fmt: skip
    return backends.active(x.device.type).scan(
        lam=lam, mu=mu, b=b, c=c, k=k, alpha=alpha, x=x, lengths=lengths, position=position, h=h, feedback=feedback
    )


@_scan_in_place.register_fake
def _(
    lam: Tensor, mu: Tensor, b: Tensor, c: Tensor, k: Tensor, alpha: Tensor,
    x: Tensor, lengths: Tensor, position: Tensor, h: Tensor, feedback: Tensor,
) -> Tensor:  # fmt: skip
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("delayssm::scan", mutates_args=())
def _scan(
    lam: Tensor, mu: Tensor, b: Tensor, c: Tensor, k: Tensor, alpha: Tensor,
    x: Tensor, lengths: Tensor, position: Tensor, h: Tensor, feedback: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    h, feedback = h.clone(), feedback.clone()
    return _scan_in_place(lam, mu, b, c, k, alpha, x, lengths, position, h, feedback), h, feedback


@_scan.register_fake
def _(
    lam: Tensor, mu: Tensor, b: Tensor, c: Tensor, k: Tensor, alpha: Tensor,
    x: Tensor, lengths: Tensor, position: Tensor, h: Tensor, feedback: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    return y, torch.empty_like(h), torch.empty_like(feedback)


@torch.library.custom_op("delayssm::scan_backward", mutates_args=())
def _scan_backward(
    g_y: Tensor, g_h: Tensor, g_feedback: Tensor,
    lam: Tensor, mu: Tensor, b: Tensor, c: Tensor, k: Tensor, alpha: Tensor,
    x: Tensor, lengths: Tensor, position: Tensor, h: Tensor, feedback: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of lam, mu, b, c, alpha, x, h and feedback."""
    g = backends.active(x.device.type).scan_backward(
        g_y=g_y, g_h=g_h, g_feedback=g_feedback, lam=lam, mu=mu, b=b, c=c, k=k, alpha=alpha,
        x=x, lengths=lengths, position=position, h=h, feedback=feedback,
    )  # fmt: skip
    return g.lam, g.mu, g.b, g.c, g.alpha, g.x, g.h, g.feedback


@_scan_backward.register_fake
def _(
    g_y: Tensor, g_h: Tensor, g_feedback: Tensor,
    lam: Tensor, mu: Tensor, b: Tensor, c: Tensor, k: Tensor, alpha: Tensor,
    x: Tensor, lengths: Tensor, position: Tensor, h: Tensor, feedback: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    return tuple(torch.empty_like(t) for t in (lam, mu, b, c, alpha, x, h, feedback))


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: object) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, g_y: Tensor, g_h: Tensor, g_feedback: Tensor) -> tuple[Tensor | None, ...]:
    if plain.in_a_graph():
        raise RuntimeError("a stream cannot be differentiated twice; use forward, on whole sequences")
    lam, mu, b, c, alpha, x, h, feedback = _scan_backward(g_y, g_h, g_feedback, *ctx.saved_tensors)
    return lam, mu, b, c, None, alpha, x, None, None, h, feedback


_scan.register_autograd(_backward, setup_context=_save)
