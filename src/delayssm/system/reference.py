"""The truth that every fast path is tested against: float64 loops, straight from the equations.

One channel at a time, all N modes written out (each stored mode beside its conjugate), the history
buffer of section 3.2 kept as the paper states it. Never optimise this file.
"""

import cmath
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Complex = NDArray[np.complex128]
Real = NDArray[np.float64]


@dataclass(frozen=True)
class Channel:
    """One scalar-input, scalar-output delay system. The arrays have shape (N/2,)."""

    lam: Complex
    mu: Complex
    b: Complex
    c: Complex
    k: int
    alpha: float


def discretize(
    nu_dt: float,
    nu_re: Sequence[float],
    nu_im: Sequence[float],
    r: Sequence[float],
    theta: Sequence[float],
    nu_tau: float,
    B: Sequence[complex],
    C: Sequence[complex],
    max_delay: int,
) -> Channel:
    """Return the discrete system of section 3.3, equation by equation."""
    dt = math.log1p(math.exp(nu_dt))
    lam, mu, b = [], [], []
    for n in range(len(nu_re)):
        zeta = -math.exp(nu_re[n]) + 1j * nu_im[n]
        zeta_bar = cmath.exp(zeta * dt)
        p = 1 / (1 + math.exp(-r[n]))
        lam.append((1 - p) * zeta_bar)
        mu.append(p * abs(zeta_bar) * cmath.exp(1j * theta[n]))
        effective = zeta + math.log(1 - p) / dt
        b.append((lam[n] - 1) / effective * B[n])
    q = 1 / (1 + math.exp(-nu_tau))
    tau_max = (max_delay - 1) * dt
    tau = dt + q * (tau_max - dt)
    k = math.floor(tau / dt)
    return Channel(np.array(lam), np.array(mu), np.array(b), np.array(C), k, tau / dt - k)


def simulate(channel: Channel, x: Real, max_delay: int) -> Real:
    """Return y_t = sum_n c_n h_(t,n) for the recurrence of Eq. (discrete_recurrence), with h_j = 0 for j < 0."""
    # Conjugate pairs written out: (N/2,) -> (N,).
    lam, mu, b, c = (np.concatenate([v, v.conj()]) for v in (channel.lam, channel.mu, channel.b, channel.c))
    buffer: dict[int, Complex] = {}  # time j -> h_j, for t - max_delay <= j < t
    zero = np.zeros_like(lam)
    y = np.zeros(len(x))
    for t in range(len(x)):
        delayed = zero
        if channel.k > 0:
            anchor = buffer.get(t - channel.k, zero)
            older = buffer.get(t - channel.k - 1, zero)
            delayed = (1 - channel.alpha) * anchor + channel.alpha * older
        h = lam * buffer.get(t - 1, zero) + mu * delayed + b * x[t]
        buffer[t] = h
        buffer.pop(t - max_delay, None)
        y[t] = (c * h).sum().real
    return y


def kernel(channel: Channel, length: int, max_delay: int) -> Real:
    """Return the impulse response."""
    impulse = np.zeros(length)
    impulse[:1] = 1.0
    return simulate(channel, impulse, max_delay)


def convolve(kernel: Real, x: Real) -> Real:
    """Return y_t = sum over s <= t of kernel[t - s] x_s."""
    y = np.zeros(len(x))
    for t in range(len(x)):
        for s in range(t + 1):
            y[t] += kernel[t - s] * x[s]
    return y


def convolve_both(forward: Real, backward: Real, x: Real) -> Real:
    """Return the causal convolution with `forward`, plus the sum over s > t of backward[s - t - 1] x_s."""
    y = convolve(forward, x)
    for t in range(len(x)):
        for s in range(t + 1, len(x)):
            y[t] += backward[s - t - 1] * x[s]
    return y


def companion(channel: Channel, mode: int) -> Complex:
    """Return A of the first-order form of one mode (appendix A.5), H_t = A H_(t-1) + b x_t e_1.

    H_t = [h_t, h_(t-1), ..., h_(t-k)], so A is (k + 1, k + 1), and this is for small delays.
    """
    size = channel.k + 1
    A = np.zeros((size, size), dtype=np.complex128)
    A[0, 0] = channel.lam[mode]
    if channel.k > 0:
        A[0, channel.k - 1] += channel.mu[mode] * (1 - channel.alpha)
        A[0, channel.k] += channel.mu[mode] * channel.alpha
    for i in range(1, size):
        A[i, i - 1] = 1
    return A


def delta_rule(q: Real, k: Real, v: Real, beta: Real) -> Real:
    """Return y_t = S_t q_t for one head, with S_t = S_(t-1) + beta_t (v_t - S_(t-1) k_t) k_t^T and S_(-1) = 0.

    q and k are (L, d), v and y are (L, e), beta is (L,).
    """
    S = np.zeros((v.shape[1], k.shape[1]))
    y = np.zeros_like(v)
    for t in range(len(v)):
        S = S + beta[t] * np.outer(v[t] - S @ k[t], k[t])
        y[t] = S @ q[t]
    return y
