"""The transfer function on a GPU, forward and backward. Shapes are those of `delayssm.backends.Backend`.

A program has some frequencies of one channel (forward) or some of its modes (backward) and walks over the others, so
nothing of size channels x modes x frequencies is stored, and every sum has a fixed order.

Coefficients and the frequency grid are float64 in memory, whatever the arithmetic; `Backend.kernel` says how
denominators are written so that float32 loses nothing.
"""

import triton
import triton.language as tl

#: Launch parameters: frequencies of a program (forward), modes and frequencies of a tile (backward).
FORWARD = {"BLOCK_M": 128, "num_warps": 4}
BACKWARD = {"BLOCK_N": 8, "BLOCK_M": 32, "num_warps": 4}

#: Sizes vary from call to call and must not lead to new compilations.
SIZES = ["channels", "modes", "bins", "size"]


@triton.jit
def _grid(m, inside, h, k, alpha, roots, rho, size, dtype: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return u, 1 - u, v = u^k ((1 - alpha) + alpha u) and s = dv/dalpha at frequencies m of channel h."""
    delay, a, r = tl.load(k + h), tl.load(alpha + h).to(tl.float64), tl.load(rho)
    damping = tl.where(delay > 0, tl.exp(delay.to(tl.float64) * tl.log(r)), 0.0)
    j = (delay * m) % size  # exact integers: the angle of u^k never suffers from a large k m
    ur, ui = r * tl.load(roots + 2 * m, inside, 0.0), r * tl.load(roots + 2 * m + 1, inside, 0.0)
    kr, ki = damping * tl.load(roots + 2 * j, inside, 0.0), damping * tl.load(roots + 2 * j + 1, inside, 0.0)
    dr, di = 1 - a + a * ur, a * ui
    vr, vi = kr * dr - ki * di, kr * di + ki * dr
    sr, si = kr * (ur - 1) - ki * ui, kr * ui + ki * (ur - 1)
    return (
        ur.to(dtype), ui.to(dtype), (1 - ur).to(dtype), vr.to(dtype), vi.to(dtype), sr.to(dtype), si.to(dtype),
    )  # fmt: skip


@triton.jit
def _resolvents(lr, li, one_less_lr, mr, mi, ur, ui, one_less_ur, vr, vi):  # type: ignore[no-untyped-def]
    """Return R = 1 / (1 - lam u - mu v) and S, the same with conjugated coefficients, by a single division."""
    even_r, odd_r = one_less_lr + lr * one_less_ur - mr * vr, li * ui + mi * vi
    even_i, odd_i = lr * ui + mr * vi, li * ur + mi * vr
    pr, pi = even_r + odd_r, even_i + odd_i  # the conjugate of R's denominator
    qr, qi = even_r - odd_r, even_i - odd_i  # and of S's
    pp, qq = pr * pr + pi * pi, qr * qr + qi * qi
    both = 1 / (pp * qq)
    p, q = qq * both, pp * both
    return pr * p, pi * p, qr * q, qi * q


@triton.jit(do_not_specialize=SIZES)
def transfer(  # type: ignore[no-untyped-def]
    lam, mu, w, k, alpha, roots, rho, out, channels, modes, bins, size, dtype: tl.constexpr, BLOCK_M: tl.constexpr
):  # fmt: skip
    """Compute the transfer function. Programs: blocks of frequencies x (directions and channels)."""
    line = tl.program_id(1).to(tl.int64)
    h = line % channels
    m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = m < bins
    ur, ui, one_less_ur, vr, vi, _, _ = _grid(m, inside, h, k, alpha, roots, rho, size, dtype)
    Kr = tl.zeros([BLOCK_M], dtype)
    Ki = tl.zeros([BLOCK_M], dtype)
    for n in range(modes):
        own, shared = 2 * (line * modes + n), 2 * (h * modes + n)
        lr, li = tl.load(lam + shared), tl.load(lam + shared + 1).to(dtype)
        mr, mi = tl.load(mu + shared).to(dtype), tl.load(mu + shared + 1).to(dtype)
        wr, wi = tl.load(w + own).to(dtype), tl.load(w + own + 1).to(dtype)
        Rr, Ri, Sr, Si = _resolvents(
            lr.to(dtype), li, (1 - lr).to(dtype), mr, mi, ur, ui, one_less_ur, vr, vi
        )  # fmt: skip
        Kr += wr * (Rr + Sr) - wi * (Ri - Si)
        Ki += wr * (Ri + Si) + wi * (Rr - Sr)
    at = out + 2 * (line * bins + m)
    tl.store(at, Kr, inside)
    tl.store(at + 1, Ki, inside)


@triton.jit(do_not_specialize=SIZES)
def transfer_backward(  # type: ignore[no-untyped-def]
    grad, lam, mu, w, k, alpha, roots, rho, g_lam, g_mu, g_w, g_alpha, channels, modes, bins, size,
    dtype: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """Compute the gradients. Programs: blocks of modes x (directions and channels).

    With g = conj(grad), X = g R^2 and Y = g S^2,

    g_w   = sum conj(g R) + g S
    g_lam = conj(w) sum conj(u X) + u Y       g_mu = conj(w) sum conj(v X) + v Y
    g_alpha = Re(w mu sum s X + conj(w mu) sum s Y)

    for each direction and mode, sums over the frequencies. conj(a X) + a Y is Re a(X + Y) + i Im a(Y - X).
    """
    line = tl.program_id(1).to(tl.int64)
    h = line % channels
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    real = n < modes
    own, shared = 2 * (line * modes + n), 2 * (h * modes + n)
    # Modes beyond the last are lam = mu = w = 0: their denominators are 1, and their results are not written.
    lr = tl.load(lam + shared, real, 0.0)
    li = tl.load(lam + shared + 1, real, 0.0).to(dtype)[:, None]
    one_less_lr, lr = (1 - lr).to(dtype)[:, None], lr.to(dtype)[:, None]
    mr = tl.load(mu + shared, real, 0.0).to(dtype)
    mi = tl.load(mu + shared + 1, real, 0.0).to(dtype)
    wr = tl.load(w + own, real, 0.0).to(dtype)
    wi = tl.load(w + own + 1, real, 0.0).to(dtype)
    sum_wr = tl.zeros([BLOCK_N, BLOCK_M], dtype)
    sum_wi, sum_ur, sum_ui = sum_wr, sum_wr, sum_wr
    sum_vr, sum_vi, sum_sr, sum_si = sum_wr, sum_wr, sum_wr, sum_wr
    for first in range(0, bins, BLOCK_M):
        m = first + tl.arange(0, BLOCK_M).to(tl.int64)
        inside = m < bins
        ur, ui, one_less_ur, vr, vi, sr, si = _grid(m, inside, h, k, alpha, roots, rho, size, dtype)
        ur, ui, one_less_ur, vr, vi = ur[None, :], ui[None, :], one_less_ur[None, :], vr[None, :], vi[None, :]
        sr, si = sr[None, :], si[None, :]
        at = grad + 2 * (line * bins + m)
        gr, gi = tl.load(at, inside, 0.0)[None, :], -tl.load(at + 1, inside, 0.0)[None, :]
        Rr, Ri, Sr, Si = _resolvents(
            lr, li, one_less_lr, mr[:, None], mi[:, None], ur, ui, one_less_ur, vr, vi
        )  # fmt: skip
        ar, ai = gr * Rr - gi * Ri, gr * Ri + gi * Rr
        br, bi = gr * Sr - gi * Si, gr * Si + gi * Sr
        sum_wr += ar + br
        sum_wi += bi - ai
        xr, xi = ar * Rr - ai * Ri, ar * Ri + ai * Rr
        yr, yi = br * Sr - bi * Si, br * Si + bi * Sr
        er, ei, fr, fi = xr + yr, xi + yi, yr - xr, yi - xi
        sum_ur += ur * er - ui * ei
        sum_ui += ur * fi + ui * fr
        sum_vr += vr * er - vi * ei
        sum_vi += vr * fi + vi * fr
        sum_sr += sr * er - si * ei
        sum_si += sr * fi + si * fr
    tl.store(g_w + own, tl.sum(sum_wr, 1), real)
    tl.store(g_w + own + 1, tl.sum(sum_wi, 1), real)
    ar, ai = tl.sum(sum_ur, 1), tl.sum(sum_ui, 1)
    tl.store(g_lam + own, wr * ar + wi * ai, real)
    tl.store(g_lam + own + 1, wr * ai - wi * ar, real)
    br, bi = tl.sum(sum_vr, 1), tl.sum(sum_vi, 1)
    tl.store(g_mu + own, wr * br + wi * bi, real)
    tl.store(g_mu + own + 1, wr * bi - wi * br, real)
    cr, ci = tl.sum(sum_sr, 1), tl.sum(sum_si, 1)
    tl.store(g_alpha + line * modes + n, (wr * mr - wi * mi) * cr + (wr * mi + wi * mr) * ci, real)
