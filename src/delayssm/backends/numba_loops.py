"""The inner loops of the CPU backend.

Shapes are those of `delayssm.backends.Backend`. Real and imaginary parts are kept in separate scalars and
small arrays, so that the innermost loop is plain real arithmetic that the compiler vectorises. Gradients of
a complex z are d/d(re z) + i d/d(im z), as in torch.

All functions that call each other stand in this one file: the on-disk cache of compiled code notices a
change in a file, not in the files it calls.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = tuple[Array, ...]

#: Frequencies handled at a time: their tables stay in the first-level cache.
_BLOCK = 128


def _compiled(parallel: bool = False) -> Callable[[Any], Any]:
    """Compile at the first call, and keep the result on disk where there is a place for it."""
    options = {
        "nogil": True,
        "parallel": parallel,
        "error_model": "numpy",
        "fastmath": {"contract", "reassoc", "nsz", "arcp"},  # NaN and infinity keep their meaning
    }

    def compiled(function: Any) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:  # neither the package's folder nor the user's can be written
            return njit(**options)(function)

    return compiled


@_compiled()
def _grid(k: int, alpha: float, roots: Array, rho: float, first: int, count: int, u: Array, v: Array, s: Array) -> None:
    """u = rho/z, v = u^k ((1 - alpha) + alpha u) and s = dv/dalpha, each (2, block), for some frequencies."""
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


@_compiled()
def _resolvents(
    lr: float, li: float, mr: float, mi: float, ur: float, ui: float, vr: float, vi: float
) -> tuple[float, float, float, float]:
    """R = 1 / (1 - lam u - mu v) and S, the same with conjugated coefficients, by a single division."""
    even_r, odd_r = lr * ur + mr * vr, li * ui + mi * vi
    even_i, odd_i = lr * ui + mr * vi, li * ur + mi * vr
    pr, pi = 1 - even_r + odd_r, even_i + odd_i  # the conjugate of R's denominator
    qr, qi = 1 - even_r - odd_r, even_i - odd_i  # and of S's
    pp, qq = pr * pr + pi * pi, qr * qr + qi * qi
    both = 1 / (pp * qq)
    p, q = qq * both, pp * both
    return pr * p, pi * p, qr * q, qi * q


@_compiled()
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


@_compiled()
def _transfer_backward_channel(h: int, grad: Array, system: Arrays, roots: Array, rho: float, found: Arrays) -> None:
    """With g = conj(grad), X = g R^2 and Y = g S^2, summed over the frequencies:

    g_w   = sum conj(g R) + g S
    g_lam = conj(w) sum conj(u X) + u Y       g_mu = conj(w) sum conj(v X) + v Y
    g_alpha = sum over modes of Re(w mu sum s X + conj(w mu) sum s Y).

    A sum of the form conj(a X) + a Y has real part Re a(X + Y) and imaginary part Im a(Y - X).
    """
    lam, mu, w, k, alpha = system
    g_lam, g_mu, g_w, g_alpha = found
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


@_compiled()
def _starts(k: Array) -> Array:
    """Where each channel's ring of k + 1 slots begins (k = 0: no ring)."""
    starts = np.empty_like(k)
    total = 0
    for h in range(len(k)):
        starts[h] = total
        if k[h] > 0:
            total += k[h] + 1
    return starts


@_compiled()
def _scan_channel(
    row: int,
    h: int,
    start: int,
    system: Arrays,
    x: Array,
    length: int,
    position: int,
    state: Array,
    history: Array,
    y: Array,
) -> None:
    lam, mu, b, c, k, alpha = system
    modes, ring, a = lam.shape[1], k[h] + 1, alpha[h]
    hr, hi = state[row, h, 0].copy(), state[row, h, 1].copy()
    lr, li = lam[h, :, 0].copy(), lam[h, :, 1].copy()
    mr, mi = mu[h, :, 0].copy(), mu[h, :, 1].copy()
    br, bi = b[h, :, 0].copy(), b[h, :, 1].copy()
    cr, ci = c[h, :, 0].copy(), c[h, :, 1].copy()
    oldest = position % ring
    for t in range(length):
        xt = x[row, t, h]
        out = 0.0
        if ring == 1:
            for n in range(modes):
                re = lr[n] * hr[n] - li[n] * hi[n] + br[n] * xt
                im = lr[n] * hi[n] + li[n] * hr[n] + bi[n] * xt
                hr[n], hi[n] = re, im
                out += cr[n] * re - ci[n] * im
        else:
            # The ring's oldest state h_(t-k-1) makes room for h_t; the one after it is the anchor h_(t-k).
            following = oldest + 1 if oldest + 1 < ring else 0
            older, anchor = history[row, start + oldest], history[row, start + following]
            for n in range(modes):
                dr = (1 - a) * anchor[0, n] + a * older[0, n]
                di = (1 - a) * anchor[1, n] + a * older[1, n]
                re = lr[n] * hr[n] - li[n] * hi[n] + mr[n] * dr - mi[n] * di + br[n] * xt
                im = lr[n] * hi[n] + li[n] * hr[n] + mr[n] * di + mi[n] * dr + bi[n] * xt
                hr[n], hi[n] = re, im
                older[0, n], older[1, n] = re, im
                out += cr[n] * re - ci[n] * im
            oldest = following
        y[row, t, h] = 2 * out
    state[row, h, 0] = hr
    state[row, h, 1] = hi
    y[row, length:, h] = 0.0


@_compiled()
def _scan_backward_channel(
    h: int,
    start: int,
    grads: Arrays,
    system: Arrays,
    x: Array,
    lengths: Array,
    position: Array,
    state: Array,
    history: Array,
    found: Arrays,
) -> None:
    """The states are computed again, then the adjoint G_t = dLoss/dh_t runs backwards in time:

    G_t = 2 conj(c) gy_t + conj(lam) G_(t+1) + conj(mu) [(1 - alpha) G_(t+k) + alpha G_(t+k+1)].

    Time runs over k + 1 remembered states, then the chunk: index ring + t.
    """
    lam, mu, b, c, k, alpha = system
    grad_y, grad_h, grad_history = grads
    g_lam, g_mu, g_b, g_c, g_alpha, g_x, g_h, g_history = found
    modes, ring, a = lam.shape[1], k[h] + 1, alpha[h]
    delayed = ring > 1
    for row in range(len(lengths)):
        length = lengths[row]
        H = np.zeros((ring + length, 2, modes))  # h, remembered and new
        G = np.zeros((ring + length, 2, modes))
        last = state[row, h]
        if delayed:
            for j in range(ring):
                slot = start + (position[row] + j) % ring
                H[j] = history[row, slot]
        for t in range(length):
            now = ring + t
            for n in range(modes):
                pr = last[0, n] if t == 0 else H[now - 1, 0, n]
                pi = last[1, n] if t == 0 else H[now - 1, 1, n]
                re = lam[h, n, 0] * pr - lam[h, n, 1] * pi + b[h, n, 0] * x[row, t, h]
                im = lam[h, n, 0] * pi + lam[h, n, 1] * pr + b[h, n, 1] * x[row, t, h]
                if delayed:
                    dr = (1 - a) * H[now - ring + 1, 0, n] + a * H[now - ring, 0, n]
                    di = (1 - a) * H[now - ring + 1, 1, n] + a * H[now - ring, 1, n]
                    re += mu[h, n, 0] * dr - mu[h, n, 1] * di
                    im += mu[h, n, 0] * di + mu[h, n, 1] * dr
                H[now, 0, n], H[now, 1, n] = re, im

        # What later chunks have to say: the final state and the ring as it is left behind.
        if delayed:
            for j in range(ring):
                slot = start + (position[row] + length + j) % ring
                G[length + j] += grad_history[row, slot]
        if length > 0:
            G[ring + length - 1] += grad_h[row, h]
        else:
            g_h[row, h] += grad_h[row, h]

        for t in range(length - 1, -1, -1):
            now = ring + t
            gy, xt, gx = grad_y[row, t, h], x[row, t, h], 0.0
            for n in range(modes):
                hr, hi = H[now, 0, n], H[now, 1, n]
                g_c[h, n, 0] += 2 * gy * hr
                g_c[h, n, 1] -= 2 * gy * hi
                gr = G[now, 0, n] + 2 * gy * c[h, n, 0]
                gi = G[now, 1, n] - 2 * gy * c[h, n, 1]
                g_b[h, n, 0] += gr * xt
                g_b[h, n, 1] += gi * xt
                gx += gr * b[h, n, 0] + gi * b[h, n, 1]
                pr = last[0, n] if t == 0 else H[now - 1, 0, n]
                pi = last[1, n] if t == 0 else H[now - 1, 1, n]
                g_lam[h, n, 0] += gr * pr + gi * pi
                g_lam[h, n, 1] += gi * pr - gr * pi
                backr = lam[h, n, 0] * gr + lam[h, n, 1] * gi
                backi = lam[h, n, 0] * gi - lam[h, n, 1] * gr
                if t == 0:
                    g_h[row, h, 0, n] += backr
                    g_h[row, h, 1, n] += backi
                else:
                    G[now - 1, 0, n] += backr
                    G[now - 1, 1, n] += backi
                if delayed:
                    anchor_r, anchor_i = H[now - ring + 1, 0, n], H[now - ring + 1, 1, n]
                    older_r, older_i = H[now - ring, 0, n], H[now - ring, 1, n]
                    dr, di = (1 - a) * anchor_r + a * older_r, (1 - a) * anchor_i + a * older_i
                    g_mu[h, n, 0] += gr * dr + gi * di
                    g_mu[h, n, 1] += gi * dr - gr * di
                    backr = mu[h, n, 0] * gr + mu[h, n, 1] * gi
                    backi = mu[h, n, 0] * gi - mu[h, n, 1] * gr
                    g_alpha[h] += backr * (older_r - anchor_r) + backi * (older_i - anchor_i)
                    G[now - ring + 1, 0, n] += (1 - a) * backr
                    G[now - ring + 1, 1, n] += (1 - a) * backi
                    G[now - ring, 0, n] += a * backr
                    G[now - ring, 1, n] += a * backi
            g_x[row, t, h] = gx
        if delayed:
            for j in range(ring):
                slot = start + (position[row] + j) % ring
                g_history[row, slot] += G[j]


@_compiled(parallel=True)
def transfer(system: Arrays, roots: Array, rho: float, out: Array) -> None:
    directions, channels = out.shape[:2]
    for task in prange(directions * channels):
        _transfer_channel(task // channels, task % channels, system, roots, rho, out)


@_compiled(parallel=True)
def transfer_backward(grad: Array, system: Arrays, roots: Array, rho: float, found: Arrays) -> None:
    for h in prange(grad.shape[1]):
        _transfer_backward_channel(h, grad, system, roots, rho, found)


@_compiled(parallel=True)
def scan(system: Arrays, x: Array, lengths: Array, position: Array, state: Array, history: Array, y: Array) -> None:
    starts = _starts(system[4])
    channels = len(starts)
    for task in prange(len(x) * channels):
        row, h = task // channels, task % channels
        _scan_channel(row, h, starts[h], system, x, lengths[row], position[row], state, history, y)


@_compiled(parallel=True)
def scan_backward(
    grads: Arrays,
    system: Arrays,
    x: Array,
    lengths: Array,
    position: Array,
    state: Array,
    history: Array,
    found: Arrays,
) -> None:
    starts = _starts(system[4])
    for h in prange(len(starts)):
        _scan_backward_channel(h, starts[h], grads, system, x, lengths, position, state, history, found)


@_compiled(parallel=True)
def transpose(source: Array, target: Array, read: int, write: int) -> None:
    """In blocks of so many rows of the source and so many of the target."""
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
