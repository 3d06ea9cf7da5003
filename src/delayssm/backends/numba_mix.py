"""GELU, linear and gated linear unit, in pieces that are used before they leave the cache."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from delayssm.backends import MixGradients, eager
from delayssm.backends.numba_compile import Array, compiled
from delayssm.backends.numba_vectors import VECTOR_BYTES, Index, Memory, Real, vectorised
from delayssm.backends.threads import parts_for, run

#: Tokens in a piece, and those whose gradients of the bias are added up in one place: the order of a sum must not
#: depend on the number of threads.
_TOKENS, _SUMMED = 4096, 256
_LANES = VECTOR_BYTES // 4


def mix(y: Tensor, weight: Tensor, bias: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    if not _mixable(y, weight, bias):
        return eager.mix(y, weight, bias, mask)
    y, bias, (B, L, H) = y.contiguous(), _own(bias), y.shape
    out, z = torch.empty_like(y), y.new_empty(B, L, 2 * H)
    room = y.new_empty(min(_TOKENS, B * L), H)
    for piece in _pieces(B, L):
        bent, values = _bend(y, mask, piece, room), z[piece].flatten(0, 1)
        torch.mm(bent, weight.T, out=values)
        run(_gate, parts_for(values.numel()), *_flat(values, bias, out[piece]))
    return out, z


def mix_backward(grad: Tensor, y: Tensor, weight: Tensor, bias: Tensor, mask: Tensor | None, z: Tensor) -> MixGradients:
    if not _mixable(grad, y, weight):
        return eager.mix_backward(grad, y, weight, bias, mask, z)
    y, grad, bias, (B, L, H) = y.contiguous(), grad.contiguous(), _own(bias), y.shape
    g_y, g_weight, g_bias = torch.empty_like(y), torch.zeros_like(weight), y.new_zeros(2 * H)
    room, g_room, g_z = (y.new_empty(min(_TOKENS, B * L), width) for width in (H, H, 2 * H))
    sums = y.new_empty(-(-len(g_z) // _SUMMED), 2 * H)
    for piece in _pieces(B, L):
        bent = _bend(y, mask, piece, room)
        g_values, g_bent = g_z[: len(bent)], g_room[: len(bent)]
        numbers = _flat(grad[piece], z[piece], bias, g_values, sums.zero_())
        run(_gate_backward, parts_for(g_values.numel()), *numbers)
        g_bias += sums.sum(0)
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


def _own(parameter: Tensor) -> Tensor:
    """Return a copy: torch cannot free the storage of a tensor that numpy has seen, and FSDP frees parameters."""
    return parameter.detach().clone()


def _flat(*tensors: Tensor) -> tuple[Array, ...]:
    return tuple(t.contiguous().view(-1).numpy() for t in tensors)


def _sigmoid(x: Real) -> Real:
    one = x.constant(1.0)
    return one / (one + (-x).exp())


@vectorised
def _gate_vector(z: Memory, at: Index, half: Index, bias: Memory, h: Index, out: Memory, to: Index) -> None:
    a = z.load(z.address(at)) + bias.load(bias.address(h))
    b = z.load(z.address(at + half)) + bias.load(bias.address(h + half))
    out.store(out.address(to), a * _sigmoid(b))


@vectorised
def _gate_vector_backward(
    grad: Memory, to: Index, z: Memory, at: Index, half: Index, bias: Memory, h: Index, g_z: Memory,
    sums: Memory, total: Index,
) -> None:  # fmt: skip
    a = z.load(z.address(at)) + bias.load(bias.address(h))
    b = z.load(z.address(at + half)) + bias.load(bias.address(h + half))
    s = _sigmoid(b)
    g_a = grad.load(grad.address(to)) * s
    g_b = g_a * a * (s.constant(1.0) - s)
    for offset, g in ((0, g_a), (half, g_b)):
        g_z.store(g_z.address(at + offset), g)
        sums.store(sums.address(total + offset), sums.load(sums.address(total + offset)) + g)


@compiled
def _gate(part: int, parts: int, z: Array, bias: Array, out: Array) -> None:
    """Set out (tokens, H) to a sigmoid(b) for z + bias = (a, b), (tokens, 2 H); all are flat."""
    width = len(bias) // 2
    tokens = len(out) // width
    for token in range(part * tokens // parts, (part + 1) * tokens // parts):
        for h in range(0, width - _LANES + 1, _LANES):
            _gate_vector(z, 2 * token * width + h, width, bias, h, out, token * width + h)
        if width % _LANES:
            h = width - _LANES  # the last vector overlaps with the one before
            _gate_vector(z, 2 * token * width + h, width, bias, h, out, token * width + h)


@compiled
def _gate_backward(part: int, parts: int, grad: Array, z: Array, bias: Array, g_z: Array, sums: Array) -> None:
    """Set g_z (tokens, 2 H) for the gradient of the result of `_gate`, and add up those of every so many tokens."""
    width = len(bias) // 2
    tokens = len(grad) // width
    whole = width - width % _LANES
    for block in range(part, (tokens + _SUMMED - 1) // _SUMMED, parts):
        total = 2 * block * width
        for token in range(block * _SUMMED, min((block + 1) * _SUMMED, tokens)):
            at, to = 2 * token * width, token * width
            for h in range(0, whole, _LANES):
                _gate_vector_backward(grad, to + h, z, at + h, width, bias, h, g_z, sums, total + h)
            for h in range(whole, width):
                s = np.float32(1) / (np.float32(1) + np.exp(-(z[at + width + h] + bias[width + h])))
                g_a = grad[to + h] * s
                g_b = g_a * (z[at + h] + bias[h]) * (np.float32(1) - s)
                g_z[at + h], g_z[at + width + h] = g_a, g_b
                sums[total + h] += g_a
                sums[total + width + h] += g_b
