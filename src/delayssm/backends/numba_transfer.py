"""The loops over frequencies, and the transposition around the FFT. Shapes are those of `delayssm.backends.Backend`.

Real and imaginary parts are kept in separate scalars and small arrays, so that the innermost loop is plain real
arithmetic that the compiler vectorises. Gradients of a complex z are d/d(re z) + i d/d(im z), as in torch.
"""

import numpy as np
from numba import prange

from delayssm.backends.numba_compile import Array, Arrays, compiled

#: Frequencies handled at a time: their tables stay in the first-level cache.
_BLOCK = 128


@compiled()
def _grid(k: int, alpha: float, roots: Array, rho: float, first: int, count: int, u: Array, v: Array, s: Array) -> None:
    """Set u = rho/z, v = u^k ((1 - alpha) + alpha u) and s = dv/dalpha, each (2, block), for some frequencies."""
    size = len(roots)
    damping = rho**k if k > 0 else 0.0
    for i in range(count):
        m = first + i
        ur, ui = rho * roots[m, 0], rho * roots[m, 1]
        j = (k * m) % size  # exact integers: the angle of u^k never suffers from a large k m
        kr, ki = damping * roots[j, 0], damping * roots[j, 1]
        dr, di = 1 - alpha + alpha * ur, alpha * ui
        u[0, i], u[1, i] = ur, ui
        v[0, i], v[1, i] = kr * dr - ki * di, kr * di + ki * dr
        s[0, i], s[1, i] = kr * (ur - 1) - ki * ui, kr * ui + ki * (ur - 1)


@compiled()
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


@compiled()
def _transfer_channel(d: int, h: int, system: Arrays, roots: Array, rho: float, out: Array) -> None:
    lam, mu, w, k, alpha = system
    bins = out.shape[2]
    u, v, s = np.empty((2, _BLOCK)), np.empty((2, _BLOCK)), np.empty((2, _BLOCK))
    Kr, Ki = np.empty(_BLOCK), np.empty(_BLOCK)
    for first in range(0, bins, _BLOCK):
        count = min(_BLOCK, bins - first)
        _grid(k[h], alpha[h], roots, rho, first, count, u, v, s)
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
            out[d, h, first + i, 0] = Kr[i]
            out[d, h, first + i, 1] = Ki[i]


@compiled()
def _transfer_backward_channel(
    h: int, grad: Array, system: Arrays, roots: Array, rho: float, gradients: Arrays
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
    bins = grad.shape[2]
    u, v, s = np.empty((2, _BLOCK)), np.empty((2, _BLOCK)), np.empty((2, _BLOCK))
    g, plus, minus = np.empty((2, _BLOCK)), np.empty((2, _BLOCK)), np.empty((2, _BLOCK))
    for first in range(0, bins, _BLOCK):
        count = min(_BLOCK, bins - first)
        _grid(k[h], alpha[h], roots, rho, first, count, u, v, s)
        for d in range(w.shape[0]):
            for i in range(count):
                g[0, i], g[1, i] = grad[d, h, first + i, 0], -grad[d, h, first + i, 1]
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


@compiled(parallel=True)
def transfer(system: Arrays, roots: Array, rho: float, out: Array) -> None:
    directions, channels = out.shape[:2]
    for task in prange(directions * channels):
        _transfer_channel(task // channels, task % channels, system, roots, rho, out)


@compiled(parallel=True)
def transfer_backward(grad: Array, system: Arrays, roots: Array, rho: float, gradients: Arrays) -> None:
    for h in prange(grad.shape[1]):
        _transfer_backward_channel(h, grad, system, roots, rho, gradients)


@compiled(parallel=True)
def transpose(source: Array, target: Array, read: int, write: int) -> None:
    """Transpose in blocks of so many rows of the source and so many of the target."""
    batch, rows, columns = source.shape
    strips = (columns + write - 1) // write
    for task in prange(batch * strips):
        i, first = task // strips, (task % strips) * write
        last = min(first + write, columns)
        for top in range(0, rows, read):
            bottom = min(top + read, rows)
            for column in range(first, last):
                for row in range(top, bottom):
                    target[i, column, row] = source[i, row, column]
