"""The operators of the library as functions of ONNX, for the exporter of torch.

Every call of `op` becomes a node, and the two loops over tokens are Python that onnxscript reads and translates.
Complex numbers are pairs of real ones, and sums over time are float64, as everywhere in the library.
"""
# Values are symbols in a graph of ONNX, of which a checker of Python types knows nothing.
# mypy: ignore-errors

import math
from collections.abc import Callable
from typing import Any

import onnx
import torch
from onnxscript import BOOL, DOUBLE, INT64, graph, script
from onnxscript import opset18 as op

_TRUE = onnx.helper.make_tensor("true", onnx.TensorProto.BOOL, [], [True])


def convolve(x, kernel):
    """Return what `delayssm::convolve` returns, by transforms of a power of two; a kernel shorter than x fails."""
    length = op.Shape(x, start=1, end=2)
    size = _power_of_two(length + length)
    # Lag t is at place t, and lag -t, of the second direction, at place N - t.
    directions = [op.Squeeze(op.Slice(kernel, [i], [i + 1], [0]), [0]) for i in range(kernel.shape[0])]
    parts = [directions[0], _zeros(size - length, kernel)]
    if len(directions) == 2:
        taps = op.Slice(directions[1], [0], length - _ints(1), [0])
        backwards = op.Slice(taps, [-1], [torch.iinfo(torch.int64).min], [0], [-1])
        parts = [directions[0], _zeros(size - length - length + _ints(1), kernel), backwards]
    taps = op.Concat(*parts, axis=0)
    signal = op.Unsqueeze(op.Transpose(op.Cast(x, to=DOUBLE.dtype), perm=[0, 2, 1]), [3])
    X = op.DFT(signal, op.Squeeze(size), axis=2)
    K = op.DFT(op.Unsqueeze(op.Transpose(op.Cast(taps, to=DOUBLE.dtype), perm=[1, 0]), [0, 3]), axis=2)
    (X_re, X_im), (K_re, K_im) = (op.Split(Z, axis=3, num_outputs=2) for Z in (X, K))
    Y = op.Concat(X_re * K_re - X_im * K_im, X_re * K_im + X_im * K_re, axis=3)
    y = op.Slice(op.DFT(Y, axis=2, inverse=1), [0, 0], op.Concat(length, _ints(1), axis=0), [2, 3])
    return op.CastLike(op.Transpose(op.Squeeze(y, [3]), perm=[0, 2, 1]), x)


def _power_of_two(number):
    """Return the smallest power of two that is at least some number, (1,) int64."""
    logarithm = op.Log(op.Cast(number, to=DOUBLE.dtype)) * _doubles(1 / math.log(2))
    exponent = op.Ceil(logarithm - _doubles(1e-9))  # that of a power of two may come out too large by rounding
    return op.Cast(op.Round(op.Pow(_doubles(2.0), exponent)), to=INT64.dtype)


def _zeros(count, kernel):
    """Return so many taps of silence."""
    shape = op.Concat(count, op.Shape(kernel, start=2, end=3), axis=0)
    return op.CastLike(op.ConstantOfShape(shape), kernel)


def _ints(*numbers):
    return op.Constant(value_ints=list(numbers))


def _doubles(*numbers):
    return op.Constant(value=onnx.helper.make_tensor("numbers", onnx.TensorProto.DOUBLE, [len(numbers)], numbers))


def scan(lam, mu, b, c, k, alpha, x, lengths, position, h, feedback):
    """Return what `delayssm::scan` returns, where every row is as long as the chunk.

    What the rings feed back is read before the loop over tokens, and what goes into them is written after it, so that
    the loop carries no rings, and a runtime may update them in place.
    """
    p, q = _factors(lam)
    u = _rows(b) * op.Cast(op.Unsqueeze(x, [3, 4]), to=DOUBLE.dtype)  # (B, L, H, 2, n)
    (width, modes), length = lam.shape[:2], op.Shape(x, start=1, end=2)
    count = op.Squeeze(length)
    if feedback.shape[1] == 0:  # no channel has a delay
        last, states = _loop(count, p, q, u, h)
        return _read(c, states, x), last, op.Identity(feedback)

    t = op.Unsqueeze(op.Range(0, count, 1), [1])
    slot = op.CumSum(k, 0, exclusive=1) + op.Mod(op.Unsqueeze(position, [1, 2]) + t, k)
    row = op.Unsqueeze(op.Range(0, op.Squeeze(op.Shape(x, start=0, end=1)), 1), [1, 2])
    index = op.Concat(op.Unsqueeze(op.Expand(row, op.Shape(slot)), [3]), op.Unsqueeze(slot, [3]), axis=3)
    known = op.Cast(op.GatherND(feedback, index), to=DOUBLE.dtype)
    u = u + op.Where(op.Unsqueeze(op.Less(t, k), [2, 3]), known, _doubles(0.0))

    r, s = _factors(mu)
    a = op.Unsqueeze(alpha, [1, 2])
    short = op.Less(k, length)
    soon = op.Squeeze(op.NonZero(short), [0])
    place = op.CumSum(op.Cast(short, to=INT64.dtype), 0)
    own = [op.Gather(factor, soon, axis=0) for factor in (r, s, a)]
    last, states = _delayed_loop(count, p, q, u, h, k, soon, place, *own)

    # What goes into a ring is float32, and so are these: nothing is summed up here.
    states_32, h, r, s, a = (op.CastLike(value, feedback) for value in (states, h, r, s, a))
    before = op.Concat(op.Unsqueeze(h, [0]), op.Slice(states_32, [0], [-1], [0]), axis=0)
    mixed = states_32 + a * (before - states_32)
    fed = op.Transpose(r * mixed + s * op.Gather(mixed, [1, 0], axis=3), perm=[1, 0, 2, 3, 4])
    # Of tokens that share a slot, all write what the last of them feeds back.
    newest = (t + k * op.Div(length - _ints(1) - t, k)) * _ints(width) + _ints(*range(width))
    written = op.Gather(op.Reshape(fed, _ints(0, -1, 2, modes)), newest, axis=1)
    return _read(c, states, x), last, op.ScatterND(feedback, index, written)


def _rows(z):
    """Return coefficients (H, n, 2) as (H, 2, n), which is how states have them."""
    return op.Transpose(z, perm=[0, 2, 1])


def _factors(z):
    """Return p, q (H, 2, n) such that z h = p h + q h', where h' has the two parts of h exchanged."""
    re, im = (op.Gather(z, _ints(part, part), axis=2) for part in (0, 1))
    return _rows(re), _rows(im * _doubles(-1.0, 1.0))


def _read(c, states, x):
    """Return y = 2 Re(c . h), (B, L, H), for states (L, B, H, 2, n)."""
    y = op.ReduceSum(states * _rows(c * _doubles(2.0, -2.0)), [3, 4], keepdims=0)
    return op.CastLike(op.Transpose(y, perm=[1, 0, 2]), x)


@script(default_opset=op)
def _loop(count, p, q, u, h) -> tuple[DOUBLE[...], DOUBLE[...]]:
    """Return the last state, and all states, of h_t = lam h_(t-1) + u_t."""

    @graph()
    def token(i: INT64, going: BOOL, now: DOUBLE[...]):
        after = p * now + q * op.Gather(now, [1, 0], axis=2) + op.Gather(u, i, axis=1)
        on = op.Identity(going)
        state = op.Identity(after)
        return on, after, state

    last, states = op.Loop(count, op.Constant(value=_TRUE), h, body=token)
    return last, states


@script(default_opset=op)
def _delayed_loop(count, p, q, u, h, k, soon, place, r, s, a) -> tuple[DOUBLE[...], DOUBLE[...]]:
    """Return the last state, and all states, of a recurrence whose channels `soon` also hear this chunk.

    What these feed back is carried along, the channels of one token after those of another; slot 0 is silence.
    """
    many = op.Shape(soon)
    slot_shape = op.Concat(op.Shape(h, start=0, end=1), [1], op.Shape(h, start=2), axis=0)
    silence = op.Expand(op.CastLike(0, h), slot_shape)

    @graph()
    def token(i: INT64, going: BOOL, now: DOUBLE[...], heard: DOUBLE[...]):
        slot = op.Where(k <= i, (i - k) * many + place, 0)
        driven = op.Gather(u, i, axis=1) + op.Gather(heard, slot, axis=1)
        after = p * now + q * op.Gather(now, [1, 0], axis=2) + driven
        own = op.Gather(after, soon, axis=1)
        mixed = own + a * (op.Gather(now, soon, axis=1) - own)
        fed = r * mixed + s * op.Gather(mixed, [1, 0], axis=2)
        hearing = op.Concat(heard, fed, axis=1)
        on = op.Identity(going)
        state = op.Identity(after)
        return on, after, hearing, state

    last, _, states = op.Loop(count, op.Constant(value=_TRUE), h, silence, body=token)
    return last, states


def table() -> dict[Any, Callable[..., Any]]:
    """Return the functions by the operators that they stand for."""
    return {torch.ops.delayssm.convolve.default: convolve, torch.ops.delayssm.scan.default: scan}
