"""The backward pass of a chunk through rings. Shapes are those of `delayssm.backends.Backend`."""

import numpy as np

from delayssm.backends.numba_compile import Array, Arrays, compiled, fragment


@fragment(makes_arrays=True)
def _channel(
    h: int, slots: int, first: int, grads: Arrays, coefs: Array, alpha: Array, x: Array, lengths: Array,
    position: Array, state: Array, feedback: Array, gradients: Arrays,
) -> None:  # fmt: skip
    """Compute the states of one channel, whose slots begin at `first`, again, then its gradients backwards in time.

    With G_t = dLoss/dh_t and F_t = dLoss/df_t,

    G_t = 2 conj(c) gy_t + conj(lam) G_(t+1) + conj(mu) [(1 - alpha) F_(t+k) + alpha F_(t+k+1)],   F_t = G_t.
    """
    grad_y, grad_h, grad_feedback = grads
    g_coefs, g_alpha, g_x, g_h, g_feedback = gradients
    modes, a = state.shape[3], alpha[h]
    longest = 0
    for row in range(len(lengths)):
        longest = max(longest, lengths[row])
    H = np.empty((longest + 1, 2, modes))  # h, from the one before the chunk
    F = np.empty((slots, 2, modes))
    past = np.empty((slots, 2, modes))
    G = np.empty((2, modes))
    for row in range(len(lengths)):
        length, at = lengths[row], position[row]
        for n in range(modes):
            H[0, 0, n], H[0, 1, n] = state[row, h, 0, n], state[row, h, 1, n]
            G[0, n], G[1, n] = grad_h[row, h, 0, n], grad_h[row, h, 1, n]
        for s in range(slots):
            for n in range(modes):
                past[s, 0, n], past[s, 1, n] = feedback[row, first + s, 0, n], feedback[row, first + s, 1, n]
                F[s, 0, n], F[s, 1, n] = grad_feedback[row, first + s, 0, n], grad_feedback[row, first + s, 1, n]
        for t in range(length):
            xt = float(x[row, t, h])
            s = (at + t) % slots if slots > 0 else 0
            for n in range(modes):
                pr, pi = H[t, 0, n], H[t, 1, n]
                re = coefs[h, 0, n] * pr - coefs[h, 1, n] * pi + coefs[h, 4, n] * xt
                im = coefs[h, 0, n] * pi + coefs[h, 1, n] * pr + coefs[h, 5, n] * xt
                if slots > 0:
                    re += past[s, 0, n]
                    im += past[s, 1, n]
                    er, ei = re + a * (pr - re), im + a * (pi - im)
                    past[s, 0, n] = coefs[h, 2, n] * er - coefs[h, 3, n] * ei
                    past[s, 1, n] = coefs[h, 2, n] * ei + coefs[h, 3, n] * er
                H[t + 1, 0, n], H[t + 1, 1, n] = re, im

        for t in range(length - 1, -1, -1):
            gy, xt, gx, ga = 2 * float(grad_y[row, t, h]), float(x[row, t, h]), 0.0, 0.0
            s = (at + t) % slots if slots > 0 else 0
            for n in range(modes):
                pr, pi, re, im = H[t, 0, n], H[t, 1, n], H[t + 1, 0, n], H[t + 1, 1, n]
                gr, gi = G[0, n] + gy * coefs[h, 6, n], G[1, n] - gy * coefs[h, 7, n]
                kr = ki = 0.0
                if slots > 0:
                    er, ei = re + a * (pr - re), im + a * (pi - im)
                    fr, fi = F[s, 0, n], F[s, 1, n]
                    g_coefs[h, 2, n] += er * fr + ei * fi
                    g_coefs[h, 3, n] += er * fi - ei * fr
                    kr, ki = coefs[h, 2, n] * fr + coefs[h, 3, n] * fi, coefs[h, 2, n] * fi - coefs[h, 3, n] * fr
                    ga += kr * (pr - re) + ki * (pi - im)
                    gr, gi = gr + (1 - a) * kr, gi + (1 - a) * ki
                    F[s, 0, n], F[s, 1, n] = gr, gi
                g_coefs[h, 0, n] += gr * pr + gi * pi
                g_coefs[h, 1, n] += gi * pr - gr * pi
                g_coefs[h, 4, n] += gr * xt
                g_coefs[h, 5, n] += gi * xt
                g_coefs[h, 6, n] += gy * re
                g_coefs[h, 7, n] -= gy * im
                gx += gr * coefs[h, 4, n] + gi * coefs[h, 5, n]
                G[0, n] = coefs[h, 0, n] * gr + coefs[h, 1, n] * gi + a * kr
                G[1, n] = coefs[h, 0, n] * gi - coefs[h, 1, n] * gr + a * ki
            g_x[row, t, h] = gx
            g_alpha[h] += ga
        for n in range(modes):
            g_h[row, h, 0, n], g_h[row, h, 1, n] = G[0, n], G[1, n]
        for s in range(slots):
            for n in range(modes):
                g_feedback[row, first + s, 0, n], g_feedback[row, first + s, 1, n] = F[s, 0, n], F[s, 1, n]


@compiled
def scan_backward(
    part: int, parts: int, grads: Arrays, coefs: Array, k: Array, alpha: Array, x: Array, lengths: Array,
    position: Array, state: Array, feedback: Array, gradients: Arrays,
) -> None:  # fmt: skip
    """Do a part of the backward pass."""
    first = 0
    for h in range(len(alpha)):
        if h % parts == part:
            _channel(h, k[h], first, grads, coefs, alpha, x, lengths, position, state, feedback, gradients)
        first += k[h]
