"""Mamba's selective scan on a CPU, row by row.

    h_t = exp(dt_t A) h_(t-1) + dt_t u_t B_t        y_t = C_t . h_t

u, dt, y (rows, L, D); A (D, N), negative; B, C (rows, L, N). float32.

Channels are the lanes of vectors. Inside, they are padded with zeros to whole vectors, and states are (N, channels).
"""

import numpy as np

from delayssm.backends.numba_compile import Array, Arrays, compiled, fragment
from delayssm.backends.numba_vectors import VECTOR_BYTES, Index, Memory, Real, repeat, vectorised

LANES = VECTOR_BYTES // 4
#: What is smaller than this becomes 0. It would soon be so small that processors compute with it very slowly.
SMALLEST = 1e-25


@vectorised
def _advance(
    step: Memory, drive: Memory, A: Memory, B: Memory, C: Memory, at: Index,
    h: Memory, before: Index, after: Index, modes: Index, channels: Index, j: Index, y: Memory,
) -> None:  # fmt: skip
    """Compute the states and outputs of channels from j on at one time, whose B and C begin at `at`."""
    dt, x = step.load(step.address(j)), drive.load(drive.address(j))

    def mode(n: Index, total: list[Real]) -> list[Real]:
        k = channels * n + j
        a = _decay(dt, A.load(A.address(k)))
        state = a * h.load(h.address(before + k)) + x * B.number(at + n)
        h.store(h.address(after + k), state)
        return [total[0] + state * C.number(at + n)]

    (output,) = repeat(modes, [dt.zero()], mode)
    y.store(y.address(j), output)


@vectorised
def _retreat(
    step: Memory, drive: Memory, A: Memory, B: Memory, C: Memory, at: Index,
    h: Memory, before: Index, after: Index, modes: Index, channels: Index, j: Index, grad_y: Memory,
    G: Memory, by_input: Memory, by_decay: Memory, g_A: Memory, g_B: Memory, g_C: Memory,
) -> None:  # fmt: skip
    """Add what channels from j on contribute to the gradients at one time. Each of g_B and g_C is a vector per mode."""
    dt, x, gy = step.load(step.address(j)), drive.load(drive.address(j)), grad_y.load(grad_y.address(j))

    def mode(n: Index, sums: list[Real]) -> list[Real]:
        k, lanes = channels * n + j, n * LANES
        decay = A.load(A.address(k))
        g = G.load(G.address(k)) + gy * C.number(at + n)
        _add(g_C, lanes, gy * h.load(h.address(after + k)))
        _add(g_B, lanes, g * x)
        kept = (g * _decay(dt, decay)).flushed(SMALLEST)
        moved = kept * h.load(h.address(before + k))
        _add(g_A, k, moved * dt)
        G.store(G.address(k), kept)
        return [sums[0] + g * B.number(at + n), sums[1] + moved * decay]

    for sums, total in zip((by_input, by_decay), repeat(modes, [dt.zero(), dt.zero()], mode), strict=True):
        sums.store(sums.address(j), total)


@vectorised
def _sum_lanes(vectors: Memory, n: Index, sums: Memory, at: Index) -> None:
    """Set one number to the sum over the lanes of vector n, and the vector to 0."""
    vector = vectors.load(vectors.address(n * LANES))
    sums.store_number(sums.address(at), vector.total())
    vectors.store(vectors.address(n * LANES), vector.zero())


def _decay(step: Real, A: Real) -> Real:
    return (step * A).exp().flushed(SMALLEST)


def _add(sums: Memory, at: Index, term: Real) -> None:
    address = sums.address(at)
    sums.store(address, sums.load(address) + term)


@fragment(makes_arrays=True)
def _padded(A: Array) -> Array:
    """Return the transpose of A (D, N), with zeros for further channels: (N, channels)."""
    D, N = A.shape
    padded = np.zeros((N, (D + LANES - 1) // LANES * LANES), np.float32)
    padded[:, :D] = A.T
    return padded


@fragment()
def _load(u: Array, dt: Array, row: int, t: int, step: Array, drive: Array) -> None:
    """Fill in dt_t and dt_t u_t of all channels."""
    for d in range(u.shape[2]):
        step[d] = dt[row, t, d]
        drive[d] = dt[row, t, d] * u[row, t, d]


@compiled
def forward(part: int, parts: int, u: Array, dt: Array, A: Array, B: Array, C: Array, y: Array) -> None:
    """Compute the outputs of the scan into y."""
    rows, L, D = u.shape
    A = _padded(A)
    N, channels = A.shape
    step, drive, output = np.zeros((3, channels), np.float32)
    for row in range(part, rows, parts):
        h = np.zeros((N, channels), np.float32)
        for t in range(L):
            _load(u, dt, row, t, step, drive)
            for j in range(0, channels, LANES):
                _advance(step, drive, A, B, C, (row * L + t) * N, h, 0, 0, N, channels, j, output)
            y[row, t] = output[:D]


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
    A = _padded(A)
    N, channels = A.shape
    step, drive, gy, by_input, by_decay, output = np.zeros((6, channels), np.float32)
    sums_B, sums_C = np.zeros((2, N, LANES), np.float32)
    h = np.zeros((L + 1, N, channels), np.float32)
    size = N * channels
    for row in range(part, rows, parts):
        for t in range(L):
            _load(u, dt, row, t, step, drive)
            at = (row * L + t) * N
            for j in range(0, channels, LANES):
                _advance(step, drive, A, B, C, at, h, t * size, (t + 1) * size, N, channels, j, output)
        G, sums_A = np.zeros((2, N, channels), np.float32)
        for t in range(L - 1, -1, -1):
            _load(u, dt, row, t, step, drive)
            gy[:D] = grad_y[row, t]
            at = (row * L + t) * N
            for j in range(0, channels, LANES):
                _retreat(
                    step, drive, A, B, C, at, h, t * size, (t + 1) * size, N, channels, j, gy,
                    G, by_input, by_decay, sums_A, sums_B, sums_C,
                )  # fmt: skip
            for n in range(N):
                _sum_lanes(sums_B, n, g_B, at + n)
                _sum_lanes(sums_C, n, g_C, at + n)
            for d in range(D):
                g_u[row, t, d] = step[d] * by_input[d]
                g_dt[row, t, d] = u[row, t, d] * by_input[d] + by_decay[d]
        g_A[row] = sums_A[:, :D].T
