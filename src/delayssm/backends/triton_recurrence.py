"""The recurrence on a GPU: a chunk of tokens, or one. Shapes are those of `delayssm.backends.Backend`.

One program has one channel of one stream, with its modes side by side, and goes through the tokens in time. So a single
token through a layer is a single launch.
"""

import triton
import triton.language as tl

#: Sizes vary from call to call and must not lead to new compilations.
SIZES = ["length", "channels", "modes", "slots_all"]


@triton.jit(do_not_specialize=SIZES)
def scan(  # type: ignore[no-untyped-def]
    lam, mu, b, c, k, alpha, x, y, lengths, position, first, state, feedback,
    length, channels, modes, slots_all, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Run a chunk. Programs: rows x channels. `first` (H,) says where the slots of each channel begin."""
    task = tl.program_id(0).to(tl.int64)
    row, h = task // channels, task % channels
    n = tl.arange(0, BLOCK_N)
    real = n < modes
    slots = tl.load(k + h)
    feedback += (row * slots_all + tl.load(first + h)) * 2 * modes
    x += row * length * channels + h
    y += row * length * channels + h
    state += task * 2 * modes + n
    pair = 2 * (h * modes + n)
    lr, li = tl.load(lam + pair, real, 0.0), tl.load(lam + pair + 1, real, 0.0)
    mr, mi = tl.load(mu + pair, real, 0.0), tl.load(mu + pair + 1, real, 0.0)
    br, bi = tl.load(b + pair, real, 0.0), tl.load(b + pair + 1, real, 0.0)
    cr, ci = tl.load(c + pair, real, 0.0), tl.load(c + pair + 1, real, 0.0)
    a = tl.load(alpha + h)
    pr, pi = tl.load(state, real, 0.0), tl.load(state + modes, real, 0.0)
    t, valid = tl.load(position + row), tl.load(lengths + row)
    there = n < tl.where(slots > 0, modes, 0)

    for i in range(valid):
        xt = tl.load(x + i * channels).to(tl.float64)
        at = feedback + ((t + i) % tl.maximum(slots, 1)) * 2 * modes + n
        fr, fi = tl.load(at, there, 0.0).to(tl.float64), tl.load(at + modes, there, 0.0).to(tl.float64)
        sr = lr * pr - li * pi + fr + br * xt
        si = lr * pi + li * pr + fi + bi * xt
        er, ei = sr + a * (pr - sr), si + a * (pi - si)
        pr, pi = sr, si
        tl.store(at, mr * er - mi * ei, there)
        tl.store(at + modes, mr * ei + mi * er, there)
        tl.store(y + i * channels, 2 * tl.sum(cr * pr - ci * pi))
        tl.debug_barrier()  # a later token may read, by another thread, what this one has written
    for i in range(valid, length):
        tl.store(y + i * channels, 0.0)
    tl.store(state, pr, real)
    tl.store(state + modes, pi, real)
