"""The loops over frequencies. Shapes are those of `delayssm.backends.Backend`.

The transfer function is sampled at u = rho e^(2 pi i angle), for the angles of a ring, and transformed over channels:
the real and imaginary parts of vector t are times t and t + m of the damped kernel.

Real and imaginary parts are kept in separate scalars and small arrays, so that the innermost loop is plain real
arithmetic that the compiler vectorises. Gradients of a complex z are d/d(re z) + i d/d(im z), as in torch.
"""

import numpy as np

from delayssm.backends.numba_compile import Array, Arrays, compiled, fragment
from delayssm.backends.numba_fft import transform, transform_back

#: Frequencies handled at a time: their tables stay in the first-level cache.
_BLOCK = 128


@fragment()
def _grid(
    k: int, alpha: float, turns: Array, roots: Array, rho: float, first: int, count: int, u: Array, v: Array, s: Array
) -> None:
    """Set u, v = u^k ((1 - alpha) + alpha u) and s = dv/dalpha, each (2, block), for some frequencies.

    Frequency m is turns[m] / len(roots), and roots[j] = e^(2 pi i j / len(roots)).
    """
    size = len(roots)
    damping = rho**k if k > 0 else 0.0
    for i in range(count):
        turn = turns[first + i]
        ur, ui = rho * roots[turn, 0], rho * roots[turn, 1]
        j = (k * turn) % size  # exact integers: the angle of u^k never suffers from a large k m
        kr, ki = damping * roots[j, 0], damping * roots[j, 1]
        dr, di = 1 - alpha + alpha * ur, alpha * ui
        u[0, i], u[1, i] = ur, ui
        v[0, i], v[1, i] = kr * dr - ki * di, kr * di + ki * dr
        s[0, i], s[1, i] = kr * (ur - 1) - ki * ui, kr * ui + ki * (ur - 1)


@fragment()
def _resolvents(
    lr: float, li: float, mr: float, mi: float, ur: float, ui: float, vr: float, vi: float
) -> tuple[float, float, float, float]:
    """Return R = 1 / (1 - lam u - mu v) and S, the same with conjugated coefficients, by a single division."""
    even_r, odd_r = lr * ur + mr * vr, li * ui + mi * vi
    even_i, odd_i = lr * ui + mr * vi, li * ur + mi * vr
    pr, pi = 1 - even_r + odd_r, even_i + odd_i  # the conjugate of R's denominator
    qr, qi = 1 - even_r - odd_r, even_i - odd_i  # and of S's
    pp, qq = pr * pr + pi * pi, qr * qr + qi * qi
    both = 1 / (pp * qq)
    p, q = qq * both, pp * both
    return pr * p, pi * p, qr * q, qi * q


@fragment(makes_arrays=True)
def _transfer(d: int, h: int, system: Arrays, points: Arrays, rho: float, work: Array, lane: int, lanes: int) -> None:
    """Set a lane of work to the transfer function of one channel."""
    lam, mu, w, k, alpha = system
    turns, roots = points
    bins = len(turns)
    u, v, s = np.empty((2, _BLOCK)), np.empty((2, _BLOCK)), np.empty((2, _BLOCK))
    Kr, Ki = np.empty(_BLOCK), np.empty(_BLOCK)
    for first in range(0, bins, _BLOCK):
        count = min(_BLOCK, bins - first)
        _grid(k[h], alpha[h], turns, roots, rho, first, count, u, v, s)
        Kr[:] = 0.0
        Ki[:] = 0.0
        for n in range(lam.shape[1]):
            lr, li, mr, mi = lam[h, n, 0], lam[h, n, 1], mu[h, n, 0], mu[h, n, 1]
            wr, wi = w[d, h, n, 0], w[d, h, n, 1]
            for i in range(count):
                Rr, Ri, Sr, Si = _resolvents(lr, li, mr, mi, u[0, i], u[1, i], v[0, i], v[1, i])
                Kr[i] += wr * (Rr + Sr) - wi * (Ri - Si)
                Ki[i] += wr * (Ri + Si) + wi * (Rr - Sr)
        for i in range(count):
            work[2 * (first + i) * lanes + lane] = Kr[i]
            work[(2 * (first + i) + 1) * lanes + lane] = Ki[i]


@fragment(makes_arrays=True)
def _transfer_backward(
    d: int, h: int, work: Array, lane: int, lanes: int, system: Arrays, points: Arrays, rho: float, gradients: Arrays
) -> None:
    """Add up the gradients of one channel over the frequencies.

    With g = conj(grad), X = g R^2 and Y = g S^2:

    g_w   = sum conj(g R) + g S
    g_lam = conj(w) sum conj(u X) + u Y       g_mu = conj(w) sum conj(v X) + v Y
    g_alpha = sum over modes of Re(w mu sum s X + conj(w mu) sum s Y).

    A sum of the form conj(a X) + a Y has real part Re a(X + Y) and imaginary part Im a(Y - X).
    """
    lam, mu, w, k, alpha = system
    g_lam, g_mu, g_w, g_alpha = gradients
    turns, roots = points
    bins = len(turns)
    u, v, s = np.empty((2, _BLOCK)), np.empty((2, _BLOCK)), np.empty((2, _BLOCK))
    g, plus, minus = np.empty((2, _BLOCK)), np.empty((2, _BLOCK)), np.empty((2, _BLOCK))
    for first in range(0, bins, _BLOCK):
        count = min(_BLOCK, bins - first)
        _grid(k[h], alpha[h], turns, roots, rho, first, count, u, v, s)
        for i in range(count):
            at = 2 * (first + i) * lanes + lane
            g[0, i], g[1, i] = work[at], -work[at + lanes]
        for n in range(lam.shape[1]):
            lr, li, mr, mi = lam[h, n, 0], lam[h, n, 1], mu[h, n, 0], mu[h, n, 1]
            wr, wi = w[d, h, n, 0], w[d, h, n, 1]
            sum_wr = sum_wi = 0.0
            for i in range(count):
                Rr, Ri, Sr, Si = _resolvents(lr, li, mr, mi, u[0, i], u[1, i], v[0, i], v[1, i])
                ar, ai = g[0, i] * Rr - g[1, i] * Ri, g[0, i] * Ri + g[1, i] * Rr
                br, bi = g[0, i] * Sr - g[1, i] * Si, g[0, i] * Si + g[1, i] * Sr
                sum_wr += ar + br
                sum_wi += bi - ai
                xr, xi = ar * Rr - ai * Ri, ar * Ri + ai * Rr
                yr, yi = br * Sr - bi * Si, br * Si + bi * Sr
                plus[0, i], plus[1, i] = xr + yr, xi + yi
                minus[0, i], minus[1, i] = yr - xr, yi - xi
            # A loop of its own: together with the above there would be too few registers.
            sum_ur = sum_ui = sum_vr = sum_vi = sum_sr = sum_si = 0.0
            for i in range(count):
                er, ei, fr, fi = plus[0, i], plus[1, i], minus[0, i], minus[1, i]
                sum_ur += u[0, i] * er - u[1, i] * ei
                sum_ui += u[0, i] * fi + u[1, i] * fr
                sum_vr += v[0, i] * er - v[1, i] * ei
                sum_vi += v[0, i] * fi + v[1, i] * fr
                sum_sr += s[0, i] * er - s[1, i] * ei
                sum_si += s[0, i] * fi + s[1, i] * fr
            g_w[d, h, n, 0] += sum_wr
            g_w[d, h, n, 1] += sum_wi
            g_lam[h, n, 0] += wr * sum_ur + wi * sum_ui
            g_lam[h, n, 1] += wr * sum_ui - wi * sum_ur
            g_mu[h, n, 0] += wr * sum_vr + wi * sum_vi
            g_mu[h, n, 1] += wr * sum_vi - wi * sum_vr
            g_alpha[h] += (wr * mr - wi * mi) * sum_sr + (wr * mi + wi * mr) * sum_si


@compiled
def kernel(
    part: int, parts: int, system: Arrays, channels: Array, points: Arrays, rho: float, restore: Array, ring: Arrays,
    skip: Array, scratch: Array, out: Array,
) -> None:  # fmt: skip
    """Do a part of the kernels, (D, L, H), of some channels.

    restore[t] is rho^-t / m, and scratch[part] a work array of float64.
    """
    directions, length, _ = out.shape
    work, m = scratch[part], len(points[0])
    lanes = len(work) // (2 * m)
    blocks = (len(channels) + lanes - 1) // lanes
    for task in range(part, directions * blocks, parts):
        d, first = task // blocks, task % blocks * lanes
        count = min(lanes, len(channels) - first)
        for lane in range(count):
            _transfer(d, channels[first + lane], system, points, rho, work, lane, lanes)
        transform_back(work, m, ring)
        for t in range(length):
            at = 2 * t * lanes if t < m else (2 * (t - m) + 1) * lanes
            for lane in range(count):
                out[d, t, channels[first + lane]] = work[at + lane] * restore[t]
        if d == 0:
            for lane in range(count):
                h = channels[first + lane]
                out[0, 0, h] = work[lane] * restore[0] + skip[h]


@compiled
def kernel_backward(
    part: int, parts: int, grad: Array, system: Arrays, channels: Array, points: Arrays, rho: float, restore: Array,
    ring: Arrays, scratch: Array, gradients: Arrays,
) -> None:  # fmt: skip
    """Do a part of the backward pass; gradients begin as zeros."""
    directions, length, _ = grad.shape
    work, m = scratch[part], len(points[0])
    lanes = len(work) // (2 * m)
    blocks = (len(channels) + lanes - 1) // lanes
    for block in range(part, blocks, parts):
        first = block * lanes
        count = min(lanes, len(channels) - first)
        for d in range(directions):
            work[:] = 0.0
            for t in range(length):
                at = 2 * t * lanes if t < m else (2 * (t - m) + 1) * lanes
                for lane in range(count):
                    work[at + lane] = grad[d, t, channels[first + lane]] * restore[t]
            transform(work, m, ring)
            for lane in range(count):
                _transfer_backward(d, channels[first + lane], work, lane, lanes, system, points, rho, gradients)
