"""The loops over time: chunks, and one token through a whole model. Shapes are those of `delayssm.backends.Backend`.

`coefs` (H, 8, n) has the coefficients of each channel as rows: re and im of lam, mu, b and c. A `memory` is (state,
feedback, copies, inputs). Arrays are indexed in full and never sliced, because making a slice takes as long as several
modes; small functions are inlined, because handing over an array takes as long as well.
"""

import math

import numpy as np
from numba import carray, prange, types
from numba.extending import intrinsic

from delayssm.backends import BLOCK, COPY_COUNT, FIRST_COPY, FIRST_INPUT, FIRST_SLOT, INPUT_COUNT, SLOT_COUNT
from delayssm.backends.numba_compile import Array, Arrays, compiled

assert BLOCK == 8, "_refill has the tokens of a block written out"

#: Modes that a cascade handles at a time, and how far apart the rows of its scratch memory are. Constants, so that the
#: compiler knows that the rows do not overlap.
_TILE, _ROW = 64, 72

#: Scratch of one thread: 6 rows of coefficients, 2 of a state, and 2 of feedback for each token of a block.
SCRATCH = (8 + 2 * BLOCK) * _ROW


@compiled(inline=True)
def _move(pr: float, pi: float, x: float, a: float, n: int, row: int, part: int, w: Array) -> tuple[float, float]:
    """Move one mode by a step, s = lam p + f + b x; f becomes what s will feed back, mu [(1 - alpha) s + alpha p]."""
    fr, fi = row * _ROW + n, (row + 1) * _ROW + n
    lr, li, mr, mi = w[part, n], w[part, _ROW + n], w[part, 2 * _ROW + n], w[part, 3 * _ROW + n]
    br, bi = w[part, 4 * _ROW + n], w[part, 5 * _ROW + n]
    sr = w[part, fr] + br * x + lr * pr - li * pi
    si = w[part, fi] + bi * x + lr * pi + li * pr
    er, ei = sr + a * (pr - sr), si + a * (pi - si)
    w[part, fr], w[part, fi] = mr * er - mi * ei, mr * ei + mi * er
    return sr, si


@compiled(inline=True)
def _past_input(row: int, h: int, t: int, layout: Array, inputs: Array) -> float:
    """Return x_t; 0 before the stream, and beyond its end, where a block may look."""
    return float(inputs[row, layout[h, FIRST_INPUT] + t]) if 0 <= t < layout[h, INPUT_COUNT] else 0.0


@compiled(inline=True)
def _refill(
    row: int, h: int, t: int, k: int, a: float, coefs: Array, layout: Array, memory: Arrays, part: int, w: Array
) -> None:
    """Compute the feedback of tokens t..t+7 by moving the copies of the state in a cascade, the last one first."""
    _, feedback, copies, inputs = memory
    modes, slot = feedback.shape[3], layout[h, FIRST_SLOT]
    for tile in range(0, modes, _TILE):
        width = min(_TILE, modes - tile)
        for r in range(6):
            for n in range(width):
                w[part, r * _ROW + n] = coefs[h, r, tile + n]
        for r in range(8, 8 + 2 * BLOCK):
            for n in range(width):
                w[part, r * _ROW + n] = 0.0
        for j in range(layout[h, COPY_COUNT], 0, -1):
            at, past = layout[h, FIRST_COPY] + j - 1, t - j * k
            x0 = _past_input(row, h, past, layout, inputs)
            x1 = _past_input(row, h, past + 1, layout, inputs)
            x2 = _past_input(row, h, past + 2, layout, inputs)
            x3 = _past_input(row, h, past + 3, layout, inputs)
            x4 = _past_input(row, h, past + 4, layout, inputs)
            x5 = _past_input(row, h, past + 5, layout, inputs)
            x6 = _past_input(row, h, past + 6, layout, inputs)
            x7 = _past_input(row, h, past + 7, layout, inputs)
            for n in range(width):
                w[part, 6 * _ROW + n] = copies[row, at, 0, tile + n]
                w[part, 7 * _ROW + n] = copies[row, at, 1, tile + n]
            for n in range(width):
                pr, pi = w[part, 6 * _ROW + n], w[part, 7 * _ROW + n]
                pr, pi = _move(pr, pi, x0, a, n, 8, part, w)
                pr, pi = _move(pr, pi, x1, a, n, 10, part, w)
                pr, pi = _move(pr, pi, x2, a, n, 12, part, w)
                pr, pi = _move(pr, pi, x3, a, n, 14, part, w)
                pr, pi = _move(pr, pi, x4, a, n, 16, part, w)
                pr, pi = _move(pr, pi, x5, a, n, 18, part, w)
                pr, pi = _move(pr, pi, x6, a, n, 20, part, w)
                pr, pi = _move(pr, pi, x7, a, n, 22, part, w)
                w[part, 6 * _ROW + n], w[part, 7 * _ROW + n] = pr, pi
            for n in range(width):
                copies[row, at, 0, tile + n] = w[part, 6 * _ROW + n]
                copies[row, at, 1, tile + n] = w[part, 7 * _ROW + n]
        for i in range(BLOCK):
            to = slot + (t + i) % BLOCK
            for n in range(width):
                feedback[row, to, 0, tile + n] = w[part, (8 + 2 * i) * _ROW + n]
                feedback[row, to, 1, tile + n] = w[part, (9 + 2 * i) * _ROW + n]


@compiled(inline=True)
def _step(row: int, h: int, t: int, xt: float, a: float, coefs: Array, layout: Array, memory: Arrays) -> float:
    """Advance the state of one channel, whose feedback is known, by one token, and return 2 Re(c . h_t)."""
    state, feedback, _, inputs = memory
    modes, slots = state.shape[3], layout[h, SLOT_COUNT]
    out = 0.0
    if slots == 0:
        for n in range(modes):
            pr, pi = state[row, h, 0, n], state[row, h, 1, n]
            re = coefs[h, 0, n] * pr - coefs[h, 1, n] * pi + coefs[h, 4, n] * xt
            im = coefs[h, 0, n] * pi + coefs[h, 1, n] * pr + coefs[h, 5, n] * xt
            state[row, h, 0, n], state[row, h, 1, n] = re, im
            out += coefs[h, 6, n] * re - coefs[h, 7, n] * im
    elif layout[h, COPY_COUNT] == 0:
        slot = layout[h, FIRST_SLOT] + t % slots
        for n in range(modes):
            pr, pi = state[row, h, 0, n], state[row, h, 1, n]
            fr, fi = feedback[row, slot, 0, n], feedback[row, slot, 1, n]
            re = coefs[h, 0, n] * pr - coefs[h, 1, n] * pi + fr + coefs[h, 4, n] * xt
            im = coefs[h, 0, n] * pi + coefs[h, 1, n] * pr + fi + coefs[h, 5, n] * xt
            er, ei = re + a * (pr - re), im + a * (pi - im)
            state[row, h, 0, n], state[row, h, 1, n] = re, im
            feedback[row, slot, 0, n] = coefs[h, 2, n] * er - coefs[h, 3, n] * ei
            feedback[row, slot, 1, n] = coefs[h, 2, n] * ei + coefs[h, 3, n] * er
            out += coefs[h, 6, n] * re - coefs[h, 7, n] * im
    else:
        slot = layout[h, FIRST_SLOT] + t % BLOCK
        if t < layout[h, INPUT_COUNT]:
            inputs[row, layout[h, FIRST_INPUT] + t] = xt
        for n in range(modes):
            pr, pi = state[row, h, 0, n], state[row, h, 1, n]
            fr, fi = feedback[row, slot, 0, n], feedback[row, slot, 1, n]
            re = coefs[h, 0, n] * pr - coefs[h, 1, n] * pi + fr + coefs[h, 4, n] * xt
            im = coefs[h, 0, n] * pi + coefs[h, 1, n] * pr + fi + coefs[h, 5, n] * xt
            state[row, h, 0, n], state[row, h, 1, n] = re, im
            out += coefs[h, 6, n] * re - coefs[h, 7, n] * im
    return 2 * out


@compiled()
def _leap(
    row: int, h: int, t: int, i: int, m: int, k: int, a: float,
    coefs: Array, layout: Array, memory: Arrays, x: Array, y: Array, coming: Array,
) -> None:  # fmt: skip
    """Run tokens i..i+m-1 of a chunk through a cascade, from the beginning of a block at time t to that of another.

    The copies run ahead over at most k tokens, in which they see nothing of the chunk; from then on the channel feeds
    back what it did itself k tokens earlier. That is J k + m steps, where moving all J copies along would take J m.
    After m = q k + r tokens, copy j + q is where copy j is after r, and copy j <= q is where the channel itself was
    j k tokens before the end. `coming` is room for the feedback of min(k, m) tokens.
    """
    state, _, copies, inputs = memory
    modes, first, count = state.shape[3], layout[h, FIRST_COPY] - 1, layout[h, COPY_COUNT]
    ahead, q, r = min(k, m), m // k, m % k
    for s in range(ahead):
        for n in range(modes):
            coming[s, 0, n], coming[s, 1, n] = 0.0, 0.0
    pr, pi = np.empty(modes), np.empty(modes)
    for j in range(min(count, (t + ahead - 1) // k), 0, -1):  # the later copies have not begun
        for n in range(modes):
            pr[n], pi[n] = copies[row, first + j, 0, n], copies[row, first + j, 1, n]
        for s in range(ahead + 1):
            if s == r and j + q <= count:
                for n in range(modes):
                    copies[row, first + j + q, 0, n], copies[row, first + j + q, 1, n] = pr[n], pi[n]
            if s < ahead:
                xt = _past_input(row, h, t + s - j * k, layout, inputs)
                for n in range(modes):
                    re = coefs[h, 0, n] * pr[n] - coefs[h, 1, n] * pi[n] + coming[s, 0, n] + coefs[h, 4, n] * xt
                    im = coefs[h, 0, n] * pi[n] + coefs[h, 1, n] * pr[n] + coming[s, 1, n] + coefs[h, 5, n] * xt
                    er, ei = re + a * (pr[n] - re), im + a * (pi[n] - im)
                    pr[n], pi[n] = re, im
                    coming[s, 0, n] = coefs[h, 2, n] * er - coefs[h, 3, n] * ei
                    coming[s, 1, n] = coefs[h, 2, n] * ei + coefs[h, 3, n] * er

    for n in range(modes):
        pr[n], pi[n] = state[row, h, 0, n], state[row, h, 1, n]
    slot, left = 0, r  # left: tokens until the channel is a multiple of k away from the end
    for s in range(m):
        if left == 0:
            left, j = k, (m - s) // k
            if 0 < j <= count:
                for n in range(modes):
                    copies[row, first + j, 0, n], copies[row, first + j, 1, n] = pr[n], pi[n]
        xt, out, feeds = float(x[row, i + s, h]), 0.0, s + k < m
        if t + s < layout[h, INPUT_COUNT]:
            inputs[row, layout[h, FIRST_INPUT] + t + s] = xt
        for n in range(modes):
            re = coefs[h, 0, n] * pr[n] - coefs[h, 1, n] * pi[n] + coming[slot, 0, n] + coefs[h, 4, n] * xt
            im = coefs[h, 0, n] * pi[n] + coefs[h, 1, n] * pr[n] + coming[slot, 1, n] + coefs[h, 5, n] * xt
            out += coefs[h, 6, n] * re - coefs[h, 7, n] * im
            if feeds:
                er, ei = re + a * (pr[n] - re), im + a * (pi[n] - im)
                coming[slot, 0, n] = coefs[h, 2, n] * er - coefs[h, 3, n] * ei
                coming[slot, 1, n] = coefs[h, 2, n] * ei + coefs[h, 3, n] * er
            pr[n], pi[n] = re, im
        y[row, i + s, h] = 2 * out
        left -= 1
        slot = slot + 1 if slot + 1 < ahead else 0
    for n in range(modes):
        state[row, h, 0, n], state[row, h, 1, n] = pr[n], pi[n]


@compiled()
def scan(
    part: int, parts: int, coefs: Array, k: Array, alpha: Array, x: Array, lengths: Array, position: Array,
    layout: Array, memory: Arrays, y: Array, w: Array,
) -> None:  # fmt: skip
    """Do a part of a chunk. w (parts, SCRATCH)."""
    channels = len(k)
    modes, length = memory[0].shape[3], x.shape[1]
    longest = 0
    for h in range(channels):
        if layout[h, COPY_COUNT] > 0:
            longest = max(longest, min(k[h], length))
    coming = np.empty((longest, 2, modes))
    for task in range(part, len(x) * channels, parts):
        row, h = task // channels, task % channels
        i, cascade = 0, layout[h, COPY_COUNT] > 0
        while i < lengths[row]:
            t = position[row] + i
            if cascade and t % BLOCK == h % BLOCK:
                whole = (lengths[row] - i) // BLOCK * BLOCK
                if whole > 0:
                    _leap(row, h, t, i, whole, k[h], alpha[h], coefs, layout, memory, x, y, coming)
                    i += whole
                    continue
                _refill(row, h, t, k[h], alpha[h], coefs, layout, memory, part, w)
            y[row, i, h] = _step(row, h, t, float(x[row, i, h]), alpha[h], coefs, layout, memory)
            i += 1
        for j in range(lengths[row], length):
            y[row, j, h] = 0.0


@intrinsic
def _pointer(context, address):  # type: ignore[no-untyped-def]
    """Return an address as a pointer."""

    def generate(target, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.inttoptr(arguments[0], target.get_value_type(types.voidptr))

    return types.voidptr(types.int64), generate


#: What a program says about one block: sizes first, then addresses.
FIELDS = (
    "modes", "slots", "copied", "kept", "prenorm", "batch_norm",
    "coefs", "k", "alpha", "D", "layout", "state", "feedback", "copies", "inputs", "position",
    "gain", "shift", "mean", "variance", "weight", "bias",
)  # fmt: skip
(
    MODES, SLOTS, COPIED, KEPT, PRENORM, BATCH_NORM,
    COEFS, K, ALPHA, D, LAYOUT, STATE, FEEDBACK, COPIES, INPUTS, POSITION,
    GAIN, SHIFT, MEAN, VARIANCE, WEIGHT, BIAS,
) = range(len(FIELDS))  # fmt: skip


@compiled()
def _channels(part: int, parts: int, block: Array, u: Array, w: Array) -> None:
    """Set u to gelu(SSM(u)) for a part of the channels, (B, H)."""
    B, H = u.shape
    n = block[MODES]
    k = carray(_pointer(block[K]), (H,), np.int64)
    alpha = carray(_pointer(block[ALPHA]), (H,), np.float64)
    D_ = carray(_pointer(block[D]), (H,), np.float32)
    coefs = carray(_pointer(block[COEFS]), (H, 8, n), np.float64)
    layout = carray(_pointer(block[LAYOUT]), (H, 6), np.int64)
    position = carray(_pointer(block[POSITION]), (B,), np.int64)
    memory = (
        carray(_pointer(block[STATE]), (B, H, 2, n), np.float64),
        carray(_pointer(block[FEEDBACK]), (B, block[SLOTS], 2, n), np.float32),
        carray(_pointer(block[COPIES]), (B, block[COPIED], 2, n), np.float64),
        carray(_pointer(block[INPUTS]), (B, block[KEPT]), np.float32),
    )
    for h in range(part * H // parts, (part + 1) * H // parts):
        for row in range(B):
            t, xt = position[row], float(u[row, h])
            if layout[h, COPY_COUNT] > 0 and t % BLOCK == h % BLOCK:
                _refill(row, h, t, k[h], alpha[h], coefs, layout, memory, part, w)
            y = _step(row, h, t, xt, alpha[h], coefs, layout, memory) + D_[h] * xt
            u[row, h] = 0.5 * y * (1 + math.erf(y * math.sqrt(0.5)))


@compiled()
def _mix(part: int, parts: int, block: Array, u: Array, v: Array) -> None:
    """Set v to GLU(linear(u)) for a part of the outputs."""
    B, H = u.shape
    weight = carray(_pointer(block[WEIGHT]), (2 * H, H), np.float32)
    bias = carray(_pointer(block[BIAS]), (2 * H,), np.float32)
    for o in range(part * H // parts, (part + 1) * H // parts):
        for row in range(B):
            value, gate = bias[o], bias[H + o]
            for i in range(H):
                value += weight[o, i] * u[row, i]
                gate += weight[H + o, i] * u[row, i]
            v[row, o] = value / (1 + math.exp(-gate))


@compiled()
def _layer_norm(gain: Array, shift: Array, eps: float, x: Array, y: Array) -> None:
    B, H = x.shape
    for row in range(B):
        total = squares = 0.0
        for h in range(H):
            total += x[row, h]
        mean = total / H
        for h in range(H):
            squares += (x[row, h] - mean) ** 2
        scale = 1 / math.sqrt(squares / H + eps)
        for h in range(H):
            y[row, h] = (x[row, h] - mean) * scale * gain[h] + shift[h]


@compiled()
def _normalise(block: Array, eps: float, x: Array, y: Array) -> None:
    B, H = x.shape
    gain = carray(_pointer(block[GAIN]), (H,), np.float32)
    shift = carray(_pointer(block[SHIFT]), (H,), np.float32)
    if block[BATCH_NORM]:
        mean = carray(_pointer(block[MEAN]), (H,), np.float32)
        variance = carray(_pointer(block[VARIANCE]), (H,), np.float32)
        for row in range(B):
            for h in range(H):
                y[row, h] = (x[row, h] - mean[h]) / math.sqrt(variance[h] + eps) * gain[h] + shift[h]
    else:
        _layer_norm(gain, shift, eps, x, y)


#: What is said about a whole model: sizes first, then addresses. A vocabulary of 0 is that of a model of vectors; a
#: max_length of 0 is none.
MODEL = (
    "blocks", "batch", "width", "vocabulary", "max_length", "parts",
    "program", "eps", "x", "u", "v", "scratch", "embedding", "final_gain", "final_shift", "head",
)  # fmt: skip
(
    BLOCKS, BATCH, WIDTH, VOCABULARY, MAX_LENGTH, PARTS,
    PROGRAM, EPS, X, U, V, SCRATCH_AT, EMBEDDING, FINAL_GAIN, FINAL_SHIFT, HEAD,
) = range(len(MODEL))  # fmt: skip


@compiled()
def _logits(part: int, parts: int, weight: Array, u: Array, logits: Array) -> None:
    """Set logits to weight u for a part of the vocabulary."""
    B, H = u.shape
    for o in range(part * len(weight) // parts, (part + 1) * len(weight) // parts):
        for row in range(B):
            total = np.float32(0)
            for i in range(H):
                total += weight[o, i] * u[row, i]
            logits[row, o] = total


#: What `decode` returns when all went well, and when a stream has reached its greatest length.
DONE, FULL = -1, -2


@compiled(parallel=True)
def decode(model_at: int, tokens_at: int, result_at: int) -> int:
    """Run one token through a model, given by addresses, because numba allocates memory for every array argument.

    Vectors (B, H) are replaced by the output where they are, at `result_at`. Tokens (B,) give logits (B, V) there.
    Returns DONE, or before anything has changed FULL or the row of a token that does not exist.
    """
    m = carray(_pointer(model_at), (len(MODEL),), np.int64)
    B, H, parts = m[BATCH], m[WIDTH], m[PARTS]
    program = carray(_pointer(m[PROGRAM]), (m[BLOCKS], len(FIELDS)), np.int64)
    eps = carray(_pointer(m[EPS]), (m[BLOCKS] + 1,), np.float64)  # the last one is that of the final norm
    u, v = carray(_pointer(m[U]), (B, H), np.float32), carray(_pointer(m[V]), (B, H), np.float32)
    w = carray(_pointer(m[SCRATCH_AT]), (parts, SCRATCH), np.float64)
    x = carray(_pointer(m[X] if m[VOCABULARY] else result_at), (B, H), np.float32)
    if m[MAX_LENGTH]:
        seen = carray(_pointer(program[0, POSITION]), (B,), np.int64)
        for row in range(B):
            if seen[row] >= m[MAX_LENGTH]:
                return FULL
    if m[VOCABULARY]:
        tokens = carray(_pointer(tokens_at), (B,), np.int64)
        embedding = carray(_pointer(m[EMBEDDING]), (m[VOCABULARY], H), np.float32)
        for row in range(B):
            if not 0 <= tokens[row] < m[VOCABULARY]:
                return row
        for row in range(B):
            for h in range(H):
                x[row, h] = embedding[tokens[row], h]

    for i in range(len(program)):
        if program[i, PRENORM]:
            _normalise(program[i], eps[i], x, u)
        else:
            for row in range(B):
                for h in range(H):
                    u[row, h] = x[row, h]
        for part in prange(parts):
            _channels(part, parts, program[i], u, w)
        for part in prange(parts):
            _mix(part, parts, program[i], u, v)
        for row in range(B):
            for h in range(H):
                x[row, h] += v[row, h]
        if not program[i, PRENORM]:
            _normalise(program[i], eps[i], x, x)
        position = carray(_pointer(program[i, POSITION]), (B,), np.int64)
        for row in range(B):
            position[row] += 1

    if m[VOCABULARY]:
        gain = carray(_pointer(m[FINAL_GAIN]), (H,), np.float32)
        shift = carray(_pointer(m[FINAL_SHIFT]), (H,), np.float32)
        _layer_norm(gain, shift, eps[-1], x, u)
        head = carray(_pointer(m[HEAD]), (m[VOCABULARY], H), np.float32)
        logits = carray(_pointer(result_at), (B, m[VOCABULARY]), np.float32)
        for part in prange(parts):
            _logits(part, parts, head, u, logits)
    return DONE
