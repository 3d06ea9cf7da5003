"""Mamba's selective scan on a CPU, row by row.

    h_t = exp(dt_t A) h_(t-1) + dt_t u_t B_t        y_t = C_t . h_t

u, dt, y (rows, L, D); A (D, N), negative; B, C (rows, L, N). float32.
"""

from typing import Any

import numpy as np

from delayssm.backends.numba_compile import Array, Arrays, compiled, fragment

_LOG2_E = np.float32(1.4426950408889634)
_LN_2 = np.float32(0.6931471805599453)
#: 2^-k. For larger k, exp is 0 in float32.
_HALVES = np.array([0.5**k for k in range(127)] + [0.0], np.float32)


@fragment(inline=True)
def _exp(x: Any) -> Any:
    """Return exp(x) for x <= 0: 2^-k exp(r), |r| <= ln(2) / 2, as a polynomial that fits in registers."""
    k = np.float32(np.floor(np.float32(0.5) - x * _LOG2_E))
    k = min(k, np.float32(127))
    r = x + k * _LN_2
    p = np.float32(1 / 720)
    p = p * r + np.float32(1 / 120)
    p = p * r + np.float32(1 / 24)
    p = p * r + np.float32(1 / 6)
    p = p * r + np.float32(0.5)
    p = p * r + np.float32(1)
    p = p * r + np.float32(1)
    return _HALVES[np.int32(k)] * p


@compiled
def forward(part: int, parts: int, u: Array, dt: Array, A: Array, B: Array, C: Array, y: Array) -> None:
    """Compute the outputs of the scan into y."""
    rows, L, D = u.shape
    N = A.shape[1]
    for row in range(part, rows, parts):
        h = np.zeros((D, N), np.float32)
        for t in range(L):
            for d in range(D):
                step = dt[row, t, d]
                drive = step * u[row, t, d]
                total = np.float32(0)
                for n in range(N):
                    h[d, n] = _exp(step * A[d, n]) * h[d, n] + drive * B[row, t, n]
                    total += C[row, t, n] * h[d, n]
                y[row, t, d] = total


@compiled
def backward(
    part: int, parts: int, u: Array, dt: Array, A: Array, B: Array, C: Array, grad_y: Array, gradients: Arrays
) -> None:
    """Compute the gradients of u, dt, A (one per row, to be summed), B and C into `gradients`.

    The states are recomputed first. Then, backwards in time, with G_t = dLoss/dh_t and a_t = exp(dt_t A),

    G_t = C_t gy_t + a_(t+1) G_(t+1).
    """
    g_u, g_dt, g_A, g_B, g_C = gradients
    rows, L, D = u.shape
    N = A.shape[1]
    for row in range(part, rows, parts):
        h = np.zeros((L + 1, D, N), np.float32)
        for t in range(L):
            for d in range(D):
                step = dt[row, t, d]
                drive = step * u[row, t, d]
                for n in range(N):
                    h[t + 1, d, n] = _exp(step * A[d, n]) * h[t, d, n] + drive * B[row, t, n]
        G = np.zeros((D, N), np.float32)
        for t in range(L - 1, -1, -1):
            for n in range(N):
                g_B[row, t, n] = 0
                g_C[row, t, n] = 0
            for d in range(D):
                step, x, gy = dt[row, t, d], u[row, t, d], grad_y[row, t, d]
                drive = step * x
                by_input = np.float32(0)
                by_decay = np.float32(0)
                for n in range(N):
                    a = _exp(step * A[d, n])
                    g = G[d, n] + C[row, t, n] * gy
                    g_C[row, t, n] += gy * h[t + 1, d, n]
                    g_B[row, t, n] += g * drive
                    by_input += g * B[row, t, n]
                    kept = g * a
                    moved = kept * h[t, d, n]
                    by_decay += moved * A[d, n]
                    g_A[row, d, n] += moved * step
                    G[d, n] = kept
                g_u[row, t, d] = step * by_input
                g_dt[row, t, d] = x * by_input + by_decay
