"""The loops over time. Shapes are those of `delayssm.backends.Backend`.

`coefs` (H, 8, n) has the coefficients of each channel as rows: re and im of lam, mu, b and c. Arrays are indexed in
full and never sliced, because making a slice takes as long as several modes; small functions are inlined, because
handing over an array takes as long as well.
"""

from delayssm.backends.numba_compile import Array, compiled, fragment


@fragment(inline=True)
def step(
    row: int, h: int, t: int, xt: float, k: int, first: int, a: float, coefs: Array, state: Array, feedback: Array
) -> float:
    """Advance one channel, whose slots begin at `first`, by one token, and return 2 Re(c . h_t)."""
    modes, out = state.shape[3], 0.0
    if k == 0:
        for n in range(modes):
            pr, pi = state[row, h, 0, n], state[row, h, 1, n]
            re = coefs[h, 0, n] * pr - coefs[h, 1, n] * pi + coefs[h, 4, n] * xt
            im = coefs[h, 0, n] * pi + coefs[h, 1, n] * pr + coefs[h, 5, n] * xt
            state[row, h, 0, n], state[row, h, 1, n] = re, im
            out += coefs[h, 6, n] * re - coefs[h, 7, n] * im
    else:
        slot = first + t % k
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
    return 2 * out


@compiled
def scan(
    part: int, parts: int, coefs: Array, k: Array, alpha: Array, x: Array, lengths: Array, position: Array,
    state: Array, feedback: Array, y: Array,
) -> None:  # fmt: skip
    """Do a part of a chunk."""
    first = 0
    for h in range(len(k)):
        if h % parts == part:
            for row in range(len(x)):
                for i in range(lengths[row]):
                    t, xt = position[row] + i, float(x[row, i, h])
                    y[row, i, h] = step(row, h, t, xt, k[h], first, alpha[h], coefs, state, feedback)
                for i in range(lengths[row], x.shape[1]):
                    y[row, i, h] = 0.0
        first += k[h]
