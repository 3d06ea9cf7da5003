"""GELU, linear and gated linear unit, in pieces that are used before they leave the cache."""

from collections.abc import Iterator

import torch
from torch import Tensor

from delayssm.backends import MixGradients, eager
from delayssm.backends.numba_compile import Array, compiled
from delayssm.backends.numba_vectors import VECTOR_BYTES, Index, Memory, Real, vectorised
from delayssm.backends.threads import parts_for, run

#: Tokens in a piece.
_TOKENS = 4096
_LANES = VECTOR_BYTES // 4


def mix(y: Tensor, weight: Tensor, bias: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    if not _mixable(y, weight, bias):
        return eager.mix(y, weight, bias, mask)
    y, (B, L, H) = y.contiguous(), y.shape
    out, z = torch.empty_like(y), y.new_empty(B, L, 2 * H)
    room = y.new_empty(min(_TOKENS, B * L), H)
    for piece in _pieces(B, L):
        bent, values = _bend(y, mask, piece, room), z[piece].flatten(0, 1)
        torch.addmm(bias, bent, weight.T, out=values)
        numbers = values.view(-1).numpy(), H, out[piece].view(-1).numpy()
        run(_gate, parts_for(values.numel()), *numbers)
    return out, z


def mix_backward(grad: Tensor, y: Tensor, weight: Tensor, mask: Tensor | None, z: Tensor) -> MixGradients:
    if not _mixable(grad, y, weight):
        return eager.mix_backward(grad, y, weight, mask, z)
    y, grad, (B, L, H) = y.contiguous(), grad.contiguous(), y.shape
    g_y, g_weight, g_bias = torch.empty_like(y), torch.zeros_like(weight), y.new_zeros(2 * H)
    room, g_room, g_z = (y.new_empty(min(_TOKENS, B * L), width) for width in (H, H, 2 * H))
    for piece in _pieces(B, L):
        bent = _bend(y, mask, piece, room)
        g_values, g_bent = g_z[: len(bent)], g_room[: len(bent)]
        numbers = grad[piece].view(-1).numpy(), z[piece].view(-1).numpy(), H, g_values.view(-1).numpy()
        run(_gate_backward, parts_for(g_values.numel()), *numbers)
        g_bias += g_values.sum(0)
        g_weight.addmm_(g_values.T, bent)
        g_bent = torch.mm(g_values, weight, out=g_bent).view_as(y[piece])
        if mask is not None:
            g_bent *= mask[piece[0]]
        torch.ops.aten.gelu_backward(g_bent, y[piece], grad_input=g_y[piece])
    return MixGradients(g_y, g_weight, g_bias)


def _mixable(signal: Tensor, *others: Tensor) -> bool:
    """Return whether there are vectors for these tensors."""
    return all(t.dtype == torch.float32 for t in (signal, *others)) and signal.shape[2] >= _LANES


def _pieces(batch: int, length: int) -> Iterator[tuple[slice, slice]]:
    """Yield some whole rows at a time, or where one row is too long, a part of one."""
    rows = max(1, _TOKENS // max(1, length))
    for row in range(0, batch, rows):
        for t in range(0, length, _TOKENS):
            yield slice(row, row + rows), slice(t, t + _TOKENS)


def _bend(y: Tensor, mask: Tensor | None, piece: tuple[slice, slice], room: Tensor) -> Tensor:
    """Return mask * gelu(y) of a piece, (tokens, H), in a part of `room`."""
    part = y[piece]
    bent = room[: part.shape[0] * part.shape[1]]
    torch.ops.aten.gelu(part, out=bent.view_as(part))
    if mask is not None:
        bent.view_as(part).mul_(mask[piece[0]])
    return bent


def _sigmoid(x: Real) -> Real:
    one = x.constant(1.0)
    return one / (one + (-x).exp())


@vectorised
def _gate_vector(z: Memory, at: Index, half: Index, out: Memory, to: Index) -> None:
    a, b = z.load(z.address(at)), z.load(z.address(at + half))
    out.store(out.address(to), a * _sigmoid(b))


@vectorised
def _gate_vector_backward(grad: Memory, to: Index, z: Memory, at: Index, half: Index, g_z: Memory) -> None:
    a, b, g = z.load(z.address(at)), z.load(z.address(at + half)), grad.load(grad.address(to))
    s = _sigmoid(b)
    g_a = g * s
    g_z.store(g_z.address(at), g_a)
    g_z.store(g_z.address(at + half), g_a * a * (s.constant(1.0) - s))


@compiled()
def _gate(part: int, parts: int, z: Array, width: int, out: Array) -> None:
    """Set out (tokens, H) to a sigmoid(b) for z = (a, b), (tokens, 2 H); both are flat."""
    tokens = len(out) // width
    for token in range(part * tokens // parts, (part + 1) * tokens // parts):
        for block in range(0, width, _LANES):
            h = min(block, width - _LANES)  # the last vector may overlap with the one before
            _gate_vector(z, 2 * token * width + h, width, out, token * width + h)


@compiled()
def _gate_backward(part: int, parts: int, grad: Array, z: Array, width: int, g_z: Array) -> None:
    """Set g_z (tokens, 2 H) for the gradient of the result of `_gate`."""
    tokens = len(grad) // width
    for token in range(part * tokens // parts, (part + 1) * tokens // parts):
        for block in range(0, width, _LANES):
            h = min(block, width - _LANES)
            _gate_vector_backward(grad, token * width + h, z, 2 * token * width + h, width, g_z)
