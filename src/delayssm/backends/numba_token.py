"""One token through a whole model. The model is described by records, which `numba_decode` fills in.

A team of threads goes through the layers together. Each has some of the channels, so that its part of the coefficients,
of the memory and of the weights stays in its own cache. Arrays of channels are padded with zeros to W, a multiple of
all vectors.
"""

import functools
import math
from typing import Any

import numpy as np
from numba import carray, types

from delayssm.backends import HISTORY_NEAR as NEAR
from delayssm.backends.numba_calls import ask, pointer, start_team, tell
from delayssm.backends.numba_compile import Array, callback, compiled, fragment
from delayssm.backends.numba_history import pass_on, take_token
from delayssm.backends.numba_recurrence import step
from delayssm.backends.numba_vectors import VECTOR_BYTES, Index, Memory, Real, repeat, vectorised

#: A block of a model: sizes, then addresses. A `history` is for bounded streams, else there are rings.
BLOCK = np.dtype(
    [("eps", np.float64)]
    + [
        (name, np.int64)
        for name in (
            "prenorm", "batch_norm", "history", "modes", "slots",
            "gain", "shift", "mean", "variance", "weight", "bias", "position",
            "coefs", "k", "first", "alpha", "D", "h", "feedback",
            "values", "near", "levels", "level_numbers", "far",
            "ring_count", "ring_counts", "ring_radices", "ring_columns", "ring_offsets", "ring_starts", "ring_roots",
        )
    ]
)  # fmt: skip

#: A whole model. `tokens` and `outputs` are 0 for one that takes and gives vectors; a `max_length` of 0 is none.
MODEL = np.dtype(
    [("eps", np.float64)]
    + [
        (name, np.int64)
        for name in (
            "count", "blocks", "batch", "channels", "width", "tokens", "outputs", "max_length", "threads",
            "embedding", "gain", "shift", "head", "head_bias",
            "input", "result", "stream", "normed", "bent", "mixed", "work", "work_size", "zeros",
            "start_team", "team_member", "thread_number", "team_size", "barrier",
        )
    ]
)  # fmt: skip

#: What `decode` returns when all went well, when a stream has reached its greatest length, and when one is about to
#: need the far part of a response that is not there.
DONE, FULL, FAR = -1, -2, -3
_LANES = VECTOR_BYTES // 4
#: Slots of rings lie far apart in memory, so those of the channel that is this many channels ahead are fetched already,
#: one cache line of so many numbers after another.
_AHEAD, _LINE = 8, 16


#: erf(x) = x P(x^2) / Q(x^2) for |x| <= 3.925, beyond which it is 1 in float32; fitted to 2e-8.
_P = (
    1.1283791457511605, 0.19060042123126444, 0.052770006092925086, 0.00377278928569551, 0.0002848407201311877,
    2.045867760244335e-06,
)  # fmt: skip
_Q = (1.0, 0.5022479556502886, 0.11418531896396428, 0.01498368253893498, 0.001163900571587399, 3.8045975928456896e-05)


def _polynomial(coefficients: tuple[float, ...], x: Real) -> Real:
    value = x.constant(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + x.constant(coefficient)
    return value


@vectorised
def _gelu(y: Memory, at: Index) -> None:
    value = y.load(y.address(at))
    x = (value * math.sqrt(0.5)).clipped(3.925)
    square = x * x
    erf = x * _polynomial(_P, square) / _polynomial(_Q, square)
    y.store(y.address(at), value * 0.5 * (erf + erf.constant(1.0)))


@vectorised
def _gate(z: Memory, at: Index, half: Index, bias: Memory, h: Index, out: Memory, to: Index) -> None:
    """Add a sigmoid(b) for (a, b) = z + bias to out."""
    a = z.load(z.address(at)) + bias.load(bias.address(h))
    b = z.load(z.address(at + half)) + bias.load(bias.address(h + half))
    one = b.constant(1.0)
    out.store(out.address(to), out.load(out.address(to)) + a / (one + (-b).exp()))


def _products(rows: int, outputs: int) -> Any:
    @vectorised
    def products(
        weight: Memory, at: Index, step: Index, u: Memory, start: Index, width: Index, vectors: Index,
        out: Memory, to: Index, along: Index,
    ) -> None:  # fmt: skip
        """Set out to the products of some rows of weights and some of u, over whole vectors of channels."""
        pairs = [(r, o) for r in range(rows) for o in range(outputs)]

        def add(i: Index, sums: list[Real]) -> list[Real]:
            h = i * weight.lanes
            x = [u.load(u.address(start + width * r + h)) for r in range(rows)]
            w = [weight.load(weight.address(at + step * o + h)) for o in range(outputs)]
            return [total + x[r] * w[o] for total, (r, o) in zip(sums, pairs, strict=True)]

        zero = u.load(u.address(start)).zero()
        for (r, o), total in zip(pairs, repeat(vectors, [zero] * len(pairs), add), strict=True):
            out.store_number(out.address(to + along * r + o), total.total())

    return products


_products_4x4, _products_4x1, _products_1x4, _products_1x1 = (
    _products(rows, outputs) for rows, outputs in ((4, 4), (4, 1), (1, 4), (1, 1))
)


@vectorised
def _fetch(values: Memory, at: Index) -> None:
    values.fetch(values.address(at), to_write=True)


@fragment()
def _multiply(
    weight: Array,
    first: int,
    count: int,
    channels: int,
    u: Array,
    rows: int,
    width: int,
    out: Array,
    to: int,
    along: int,
) -> None:
    """Set out[to + along row + o] to the product of row first + o of the weights, o < count, and each row of u."""
    vectors, rest = channels // _LANES, channels % _LANES
    for r in range(0, rows - rows % 4, 4):
        for o in range(0, count - count % 4, 4):
            at, place = (first + o) * channels, to + along * r + o
            _products_4x4(weight, at, channels, u, r * width, width, vectors, out, place, along)
        for o in range(count - count % 4, count):
            at, place = (first + o) * channels, to + along * r + o
            _products_4x1(weight, at, channels, u, r * width, width, vectors, out, place, along)
    for r in range(rows - rows % 4, rows):
        for o in range(0, count - count % 4, 4):
            at, place = (first + o) * channels, to + along * r + o
            _products_1x4(weight, at, channels, u, r * width, width, vectors, out, place, along)
        for o in range(count - count % 4, count):
            at, place = (first + o) * channels, to + along * r + o
            _products_1x1(weight, at, channels, u, r * width, width, vectors, out, place, along)
    if rest:
        for r in range(rows):
            for o in range(count):
                for h in range(channels - rest, channels):
                    out[to + along * r + o] += weight[(first + o) * channels + h] * u[r * width + h]


@fragment()
def _layer_norm(x: Array, at: int, gain: Array, shift: Array, eps: float, y: Array, to: int) -> None:
    H = len(gain)
    total = squares = 0.0
    for h in range(H):
        total += x[at + h]
    mean = total / H
    for h in range(H):
        squares += (x[at + h] - mean) ** 2
    scale = 1 / math.sqrt(squares / H + eps)
    for h in range(H):
        y[to + h] = (x[at + h] - mean) * scale * gain[h] + shift[h]


@fragment(makes_arrays=True)
def _normalise(block: Any, H: int, W: int, low: int, high: int, x: Array, y: Array) -> None:
    """Normalise rows low..high-1 of x into y."""
    gain = carray(pointer(block.gain), (H,), np.float32)
    shift = carray(pointer(block.shift), (H,), np.float32)
    if block.batch_norm:
        mean = carray(pointer(block.mean), (H,), np.float32)
        variance = carray(pointer(block.variance), (H,), np.float32)
        for row in range(low, high):
            for h in range(H):
                scale = gain[h] / math.sqrt(variance[h] + block.eps)
                y[row * W + h] = (x[row * W + h] - mean[h]) * scale + shift[h]
    else:
        for row in range(low, high):
            _layer_norm(x, row * W, gain, shift, block.eps, y, row * W)


@fragment(makes_arrays=True)
def _ssm(block: Any, model: Any, x: Array, y: Array, work: Array, low: int, high: int) -> None:
    """Set channels low..high-1 of y to what the SSM makes of x, and advance its memory."""
    B, H, W, limit = model.batch, model.channels, model.width, model.max_length
    position = carray(pointer(block.position), (B,), np.int64)
    if block.history:
        S, levels = block.slots, block.ring_count
        values = carray(pointer(block.values), (B * S * W,), np.float32)
        near = carray(pointer(block.near), (NEAR * W,), np.float32)
        far_numbers = 2 * S * W if block.far else 0
        spectra = (
            near,
            carray(pointer(block.levels), (block.level_numbers,), np.float32),
            carray(pointer(block.far), (far_numbers,), np.float32),
        )
        starts = carray(pointer(block.ring_starts), (levels + 1,), np.int64)
        rings = (
            carray(pointer(block.ring_counts), (levels,), np.int64),
            carray(pointer(block.ring_radices), (levels, block.ring_columns), np.int64),
            carray(pointer(block.ring_offsets), (levels, block.ring_columns), np.int64),
            starts,
            carray(pointer(block.ring_roots), (starts[levels],), np.float32),
        )
        zeros = carray(pointer(model.zeros), (_LANES,), np.float32)
        for row in range(B):
            take_token(values, S, W, row, position[row], x, row * W, near, y, row * W, low, high)
        for row in range(B):
            n = position[row] + 1
            if n % NEAR == 0 and n < limit:
                pass_on(values, S, W, row, n, spectra, rings, work, zeros, low, high)
    else:
        N = block.modes
        coefs = carray(pointer(block.coefs), (H, 8, N), np.float64)
        k = carray(pointer(block.k), (H,), np.int64)
        first = carray(pointer(block.first), (H,), np.int64)
        alpha = carray(pointer(block.alpha), (H,), np.float64)
        D = carray(pointer(block.D), (H,), np.float32)
        state = carray(pointer(block.h), (B, H, 2, N), np.float64)
        feedback = carray(pointer(block.feedback), (B, block.slots, 2, N), np.float32)
        numbers = carray(pointer(block.feedback), (B * block.slots * 2 * N,), np.float32)
        for h in range(low, min(high, H)):
            soon = min(h + _AHEAD, H - 1)
            if k[soon]:
                for row in range(B):
                    slot = row * block.slots + first[soon] + position[row] % k[soon]
                    for i in range(slot * 2 * N, (slot + 1) * 2 * N, _LINE):
                        _fetch(numbers, i)
            for row in range(B):
                xt = float(x[row * W + h])
                out = step(row, h, position[row], xt, k[h], first[h], alpha[h], coefs, state, feedback)
                y[row * W + h] = out + D[h] * xt


@fragment()
def _wait(model: Any, parts: int) -> None:
    if parts > 1:
        tell(model.barrier)


@fragment(makes_arrays=True)
def _token(part: int, parts: int, model: Any) -> None:
    """Do the part of one thread."""
    B, H, W = model.batch, model.channels, model.width
    blocks = carray(pointer(model.blocks), (model.count,), BLOCK)
    stream = carray(pointer(model.stream), (B * W,), np.float32)
    normed = carray(pointer(model.normed), (model.threads, B * W), np.float32)[part]
    bent = carray(pointer(model.bent), (B * W,), np.float32)
    mixed = carray(pointer(model.mixed), (B * 2 * W,), np.float32)
    work = carray(pointer(model.work), (model.threads, model.work_size), np.float32)[part]
    vectors = W // _LANES
    low, high = part * vectors // parts * _LANES, (part + 1) * vectors // parts * _LANES
    top, bottom = part * B // parts, (part + 1) * B // parts
    for i in range(model.count):
        block = blocks[i]
        if block.prenorm:
            _normalise(block, H, W, 0, B, stream, normed)
            _ssm(block, model, normed, bent, work, low, high)
        else:
            _ssm(block, model, stream, bent, work, low, high)
        for row in range(B):
            for h in range(low, high, _LANES):
                _gelu(bent, row * W + h)
        _wait(model, parts)
        weight = carray(pointer(block.weight), (2 * H * H,), np.float32)
        bias = carray(pointer(block.bias), (2 * W,), np.float32)
        valid = max(low, min(high, H))
        _multiply(weight, low, valid - low, H, bent, B, W, mixed, low, 2 * W)
        _multiply(weight, H + low, valid - low, H, bent, B, W, mixed, W + low, 2 * W)
        for row in range(B):
            for h in range(low, high, _LANES):
                _gate(mixed, row * 2 * W + h, W, bias, h, stream, row * W + h)
        _wait(model, parts)
        if not block.prenorm:
            _normalise(block, H, W, top, bottom, stream, stream)
            _wait(model, parts)
    if model.outputs:
        gain = carray(pointer(model.gain), (H,), np.float32)
        shift = carray(pointer(model.shift), (H,), np.float32)
        for row in range(B):
            _layer_norm(stream, row * W, gain, shift, model.eps, normed, row * W)
        V = model.outputs
        head = carray(pointer(model.head), (V * H,), np.float32)
        logits = carray(pointer(model.result), (B * V,), np.float32)
        first, last = part * V // parts, (part + 1) * V // parts
        _multiply(head, first, last - first, H, normed, B, W, logits, first, V)
        if model.head_bias:
            bias = carray(pointer(model.head_bias), (V,), np.float32)
            for row in range(B):
                for o in range(first, last):
                    logits[row * V + o] += bias[o]


def _member(model_at: int) -> None:
    """Do the part of a member of a team."""
    model = carray(pointer(model_at), (1,), MODEL)[0]
    _token(ask(model.thread_number), ask(model.team_size), model)


@functools.cache
def member() -> int:
    """Return the address of what every member of a team calls."""
    return callback(_member, types.void(types.int64))


@compiled
def decode(model_at: int) -> int:
    """Run one token through a model, from its input to its result.

    Returns DONE; or, before anything has changed, FULL, FAR, or the row of a token that does not exist.
    """
    model = carray(pointer(model_at), (1,), MODEL)[0]
    B, H, W = model.batch, model.channels, model.width
    blocks = carray(pointer(model.blocks), (model.count,), BLOCK)
    stream = carray(pointer(model.stream), (B * W,), np.float32)
    position = carray(pointer(blocks[0].position), (B,), np.int64)
    for row in range(B):
        if model.max_length and position[row] >= model.max_length:
            return FULL
        for i in range(model.count):
            crossing = position[row] + 1 == blocks[i].slots and blocks[i].slots < model.max_length
            if blocks[i].history and crossing and not blocks[i].far:
                return FAR
    if model.tokens:
        tokens = carray(pointer(model.input), (B,), np.int64)
        embedding = carray(pointer(model.embedding), (model.tokens * H,), np.float32)
        for row in range(B):
            if not 0 <= tokens[row] < model.tokens:
                return row
        for row in range(B):
            for h in range(H):
                stream[row * W + h] = embedding[tokens[row] * H + h]
    else:
        vectors = carray(pointer(model.input), (B * H,), np.float32)
        for row in range(B):
            for h in range(H):
                stream[row * W + h] = vectors[row * H + h]
    if model.threads > 1:
        start_team(model.start_team, model.team_member, model_at, model.threads)
    else:
        _token(0, 1, model)
    for i in range(model.count):
        seen = carray(pointer(blocks[i].position), (B,), np.int64)
        for row in range(B):
            seen[row] += 1
    if not model.outputs:
        result = carray(pointer(model.result), (B * H,), np.float32)
        for row in range(B):
            for h in range(H):
                result[row * H + h] = stream[row * W + h]
    return DONE
