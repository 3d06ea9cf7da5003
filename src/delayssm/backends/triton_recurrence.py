"""The recurrence on a GPU: a chunk of tokens, or one. Shapes are those of `delayssm.backends.Backend`.

One program has one channel of one stream, with its modes side by side, and goes through the tokens in time. So a single
token through a layer is a single launch, whatever mixture of memories its channels have.
"""

import triton
import triton.language as tl

from delayssm import backends
from delayssm.backends import BLOCK

#: Columns of the layout, as constants that kernels can use.
FIRST_SLOT, SLOT_COUNT = tl.constexpr(backends.FIRST_SLOT), tl.constexpr(backends.SLOT_COUNT)
FIRST_COPY, COPY_COUNT = tl.constexpr(backends.FIRST_COPY), tl.constexpr(backends.COPY_COUNT)
FIRST_INPUT, INPUT_COUNT = tl.constexpr(backends.FIRST_INPUT), tl.constexpr(backends.INPUT_COUNT)
COLUMNS = tl.constexpr(6)

assert BLOCK == 8, "_refill has the tokens of a block written out"

#: Sizes vary from call to call and must not lead to new compilations.
SIZES = ["length", "channels", "modes", "slots_all", "copies_all", "inputs_all", "room_all"]


@triton.jit
def _move(pr, pi, fr, fi, x, lr, li, mr, mi, br, bi, a):  # type: ignore[no-untyped-def]
    """Move a state p by a step, s = lam p + f + b x; return it and its feedback mu [(1 - alpha) s + alpha p]."""
    sr = lr * pr - li * pi + fr + br * x
    si = lr * pi + li * pr + fi + bi * x
    er, ei = sr + a * (pr - sr), si + a * (pi - si)
    return sr, si, mr * er - mi * ei, mr * ei + mi * er


@triton.jit
def _input(inputs, past, kept):  # type: ignore[no-untyped-def]
    """Return x of a past time; 0 before the stream, and beyond its end, where a block may look."""
    return tl.load(inputs + past, (past >= 0) & (past < kept), 0.0).to(tl.float64)


@triton.jit
def _refill(t, k, a, lr, li, mr, mi, br, bi, feedback, copies, count, inputs, kept, modes, n, real):  # type: ignore[no-untyped-def]
    """Compute the feedback of tokens t..t+7 by moving the copies of the state in a cascade, the last one first."""
    f0r = tl.zeros_like(lr)
    f0i, f1r, f1i, f2r, f2i, f3r, f3i = f0r, f0r, f0r, f0r, f0r, f0r, f0r
    f4r, f4i, f5r, f5i, f6r, f6i, f7r, f7i = f0r, f0r, f0r, f0r, f0r, f0r, f0r, f0r
    for back in range(count):
        j = count - back
        at, past = copies + (j - 1) * 2 * modes + n, t - j * k
        sr, si = tl.load(at, real, 0.0), tl.load(at + modes, real, 0.0)
        sr, si, f0r, f0i = _move(sr, si, f0r, f0i, _input(inputs, past, kept), lr, li, mr, mi, br, bi, a)
        sr, si, f1r, f1i = _move(sr, si, f1r, f1i, _input(inputs, past + 1, kept), lr, li, mr, mi, br, bi, a)
        sr, si, f2r, f2i = _move(sr, si, f2r, f2i, _input(inputs, past + 2, kept), lr, li, mr, mi, br, bi, a)
        sr, si, f3r, f3i = _move(sr, si, f3r, f3i, _input(inputs, past + 3, kept), lr, li, mr, mi, br, bi, a)
        sr, si, f4r, f4i = _move(sr, si, f4r, f4i, _input(inputs, past + 4, kept), lr, li, mr, mi, br, bi, a)
        sr, si, f5r, f5i = _move(sr, si, f5r, f5i, _input(inputs, past + 5, kept), lr, li, mr, mi, br, bi, a)
        sr, si, f6r, f6i = _move(sr, si, f6r, f6i, _input(inputs, past + 6, kept), lr, li, mr, mi, br, bi, a)
        sr, si, f7r, f7i = _move(sr, si, f7r, f7i, _input(inputs, past + 7, kept), lr, li, mr, mi, br, bi, a)
        tl.store(at, sr, real)
        tl.store(at + modes, si, real)
    _keep(feedback, t, f0r, f0i, modes, n, real)
    _keep(feedback, t + 1, f1r, f1i, modes, n, real)
    _keep(feedback, t + 2, f2r, f2i, modes, n, real)
    _keep(feedback, t + 3, f3r, f3i, modes, n, real)
    _keep(feedback, t + 4, f4r, f4i, modes, n, real)
    _keep(feedback, t + 5, f5r, f5i, modes, n, real)
    _keep(feedback, t + 6, f6r, f6i, modes, n, real)
    _keep(feedback, t + 7, f7r, f7i, modes, n, real)


@triton.jit
def _keep(feedback, t, fr, fi, modes, n, real):  # type: ignore[no-untyped-def]
    at = feedback + (t % 8) * 2 * modes + n
    tl.store(at, fr, real)
    tl.store(at + modes, fi, real)


@triton.jit
def _steps(  # type: ignore[no-untyped-def]
    i, count, t, pr, pi, x, y, channels, lr, li, mr, mi, br, bi, cr, ci, a, feedback, slots, feeds, inputs, kept,
    modes, n, real,
):  # fmt: skip
    """Run tokens i..i+count-1 of a chunk, the first at time t, with the feedback in `slots` slots, 0 for none.

    A ring also keeps what they feed back; a cascade keeps the inputs.
    """
    for s in range(count):
        xt = tl.load(x + (i + s) * channels).to(tl.float64)
        at = feedback + ((t + s) % tl.maximum(slots, 1)) * 2 * modes + n
        there = n < tl.where(slots > 0, modes, 0)
        fr, fi = tl.load(at, there, 0.0).to(tl.float64), tl.load(at + modes, there, 0.0).to(tl.float64)
        pr, pi, fr, fi = _move(pr, pi, fr, fi, xt, lr, li, mr, mi, br, bi, a)
        kept_here = n < tl.where((slots > 0) & feeds, modes, 0)
        tl.store(at, fr, kept_here)
        tl.store(at + modes, fi, kept_here)
        tl.store(inputs + t + s, xt, t + s < kept)
        tl.store(y + (i + s) * channels, 2 * tl.sum(cr * pr - ci * pi))
        tl.debug_barrier()  # a later token may read, by another thread, what this one has written
    return pr, pi


@triton.jit
def _leap(  # type: ignore[no-untyped-def]
    i, m, t, pr, pi, k, x, y, channels, lr, li, mr, mi, br, bi, cr, ci, a, coming, copies, count, inputs, kept,
    modes, n, real,
):  # fmt: skip
    """Run tokens i..i+m-1 of a chunk through a cascade, from the beginning of a block at time t to that of another.

    The copies run ahead over at most k tokens, in which they see nothing of the chunk; from then on the channel feeds
    back what it did itself k tokens earlier. That is J k + m steps, where moving all J copies along would take J m.
    After m = q k + r tokens, copy j + q is where copy j is after r, and copy j <= q is where the channel itself was
    j k tokens before the end. `coming` is room for the feedback of min(k, m) tokens.
    """
    ahead, q, r = tl.minimum(k, m), m // k, m % k
    for s in range(ahead):
        tl.store(coming + s * 2 * modes + n, 0.0, real)
        tl.store(coming + s * 2 * modes + modes + n, 0.0, real)
    tl.debug_barrier()
    begun = tl.minimum(count, (t + ahead - 1) // k)  # the later copies have not begun
    for back in range(begun):
        j = begun - back
        at = copies + (j - 1) * 2 * modes + n
        sr, si = tl.load(at, real, 0.0), tl.load(at + modes, real, 0.0)
        for s in range(ahead + 1):
            moved = n < tl.where((s == r) & (j + q <= count), modes, 0)
            tl.store(at + q * 2 * modes, sr, moved)
            tl.store(at + q * 2 * modes + modes, si, moved)
            if s < ahead:
                slot = coming + s * 2 * modes + n
                fr, fi = tl.load(slot, real, 0.0).to(tl.float64), tl.load(slot + modes, real, 0.0).to(tl.float64)
                xt = _input(inputs, t + s - j * k, kept)
                sr, si, fr, fi = _move(sr, si, fr, fi, xt, lr, li, mr, mi, br, bi, a)
                tl.store(slot, fr, real)
                tl.store(slot + modes, fi, real)
        tl.debug_barrier()
    for s in range(m):
        left = m - s  # after each multiple of k before the end, the channel is where a copy will be
        j = left // k
        moved = n < tl.where((left % k == 0) & (j <= count), modes, 0)
        at = copies + (j - 1) * 2 * modes + n
        tl.store(at, pr, moved)
        tl.store(at + modes, pi, moved)
        xt = tl.load(x + (i + s) * channels).to(tl.float64)
        tl.store(inputs + t + s, xt, t + s < kept)
        slot = coming + (s % ahead) * 2 * modes + n
        fr, fi = tl.load(slot, real, 0.0).to(tl.float64), tl.load(slot + modes, real, 0.0).to(tl.float64)
        pr, pi, fr, fi = _move(pr, pi, fr, fi, xt, lr, li, mr, mi, br, bi, a)
        tl.store(slot, fr, real)
        tl.store(slot + modes, fi, real)
        tl.store(y + (i + s) * channels, 2 * tl.sum(cr * pr - ci * pi))
        tl.debug_barrier()
    return pr, pi


@triton.jit(do_not_specialize=SIZES)
def scan(  # type: ignore[no-untyped-def]
    lam, mu, b, c, k, alpha, x, y, lengths, position, layout, state, feedback, copies, inputs, coming, rooms,
    length, channels, modes, slots_all, copies_all, inputs_all, room_all, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Run a chunk. Programs: rows x channels. `rooms` (H,) says where each channel has its part of `coming`."""
    task = tl.program_id(0).to(tl.int64)
    row, h = task // channels, task % channels
    n = tl.arange(0, BLOCK_N)
    real = n < modes
    layout += COLUMNS * h
    first_slot, slots = tl.load(layout + FIRST_SLOT), tl.load(layout + SLOT_COUNT)
    first_copy, count = tl.load(layout + FIRST_COPY), tl.load(layout + COPY_COUNT)
    first_input, kept = tl.load(layout + FIRST_INPUT), tl.load(layout + INPUT_COUNT)
    feedback += (row * slots_all + first_slot) * 2 * modes
    copies += (row * copies_all + first_copy) * 2 * modes
    inputs += row * inputs_all + first_input
    x += row * length * channels + h
    y += row * length * channels + h
    state += task * 2 * modes + n
    coming += (row * room_all + tl.load(rooms + h)) * 2 * modes
    pair = 2 * (h * modes + n)
    lr, li = tl.load(lam + pair, real, 0.0), tl.load(lam + pair + 1, real, 0.0)
    mr, mi = tl.load(mu + pair, real, 0.0), tl.load(mu + pair + 1, real, 0.0)
    br, bi = tl.load(b + pair, real, 0.0), tl.load(b + pair + 1, real, 0.0)
    cr, ci = tl.load(c + pair, real, 0.0), tl.load(c + pair + 1, real, 0.0)
    a, delay = tl.load(alpha + h), tl.load(k + h)
    pr, pi = tl.load(state, real, 0.0), tl.load(state + modes, real, 0.0)
    t, valid = tl.load(position + row), tl.load(lengths + row)

    # A cascade goes from the beginning of one block to that of another; a ring has no blocks.
    cascade = count > 0
    head = tl.where(cascade, tl.minimum(valid, (h + 8 - t % 8) % 8), valid)
    pr, pi = _steps(
        0, head, t, pr, pi, x, y, channels, lr, li, mr, mi, br, bi, cr, ci, a, feedback, slots, count == 0, inputs,
        kept, modes, n, real,
    )  # fmt: skip
    if cascade & (head < valid):
        whole = (valid - head) // 8 * 8
        if whole > 0:
            pr, pi = _leap(
                head, whole, t + head, pr, pi, delay, x, y, channels, lr, li, mr, mi, br, bi, cr, ci, a, coming,
                copies, count, inputs, kept, modes, n, real,
            )  # fmt: skip
        done = head + whole
        if done < valid:
            _refill(
                t + done, delay, a, lr, li, mr, mi, br, bi, feedback, copies, count, inputs, kept, modes, n, real
            )  # fmt: skip
            tl.debug_barrier()
            pr, pi = _steps(
                done, valid - done, t + done, pr, pi, x, y, channels, lr, li, mr, mi, br, bi, cr, ci, a, feedback,
                slots, False, inputs, kept, modes, n, real,
            )  # fmt: skip
    for i in range(valid, length):
        tl.store(y + i * channels, 0.0)
    tl.store(state, pr, real)
    tl.store(state + modes, pi, real)
