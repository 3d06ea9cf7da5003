"""Kernels in time, for channels whose echoes are few. Shapes are those of `delayssm.backends.Backend`.

Expanded in powers of the delayed branch, with v = u^k ((1 - alpha) + alpha u), a transfer function is a sum of echoes:

    w / (1 - lam u - mu v)  =  sum over j of  v^j  w mu^j / (1 - lam u)^(j+1).

Echo j begins after j k steps, so finitely many are heard, and each is known in time: 1 / (1 - lam u)^(j+1) is the sum
over s of C(s+j, j) lam^s u^s. Of the real system,

    e_j[s] = C(s+j, j) 2 Re sum_n w_n mu_n^j lam_n^s
    y_j[s] = e_j[s] + (1 - alpha) y_(j+1)[s-k] + alpha y_(j+1)[s-k-1],

and the kernel is y_0. With s = a B + b, the sum over modes is a product of two small matrices, w mu^j lam^(a B) and
lam^b. As lam decays, an echo ends after some rows a, long before the kernel does if the main branch is short.

Times of one channel lie side by side here. `plan` decides which channels are computed in this way: those for which it
takes less work than the loops over frequencies do.
"""

import math

import numpy as np

from delayssm.backends.numba_compile import Array, Arrays, compiled, fragment
from delayssm.backends.numba_vectors import VECTOR_BYTES, Complex, Index, Memory, Real, repeat, vectorised

_LANES = VECTOR_BYTES // 8
#: B, the times of a row; and the rows that are multiplied at a time, as many as there are registers for.
COLUMNS, ROWS = 4 * _LANES, VECTOR_BYTES // 16
#: The largest number of echoes: binomial coefficients stay far from the largest float.
ECHOES = 16
#: Channels that are written together, because they lie side by side in memory.
GROUP = 8
#: An echo ends where it is smaller than its largest value by this factor (its logarithm), beyond what float64 holds.
_END = 39.0


@fragment()
def _duration(j: int, decay: float) -> float:
    """Return a time s after which echo j has ended, for |lam| = e^-decay.

    It is largest at about s' = j / (e^decay - 1). From there on, C(s+j, j) grows less than (s+1)^j, so that it has
    ended when (s - s') decay - j log((s+1) / (s'+1)) is _END.
    """
    largest = j / max(math.expm1(decay), 1e-9)
    s = largest + _END / decay
    for _ in range(6):  # from below, and each time at least three times as close
        s = largest + (_END + j * math.log((s + 1) / (largest + 1))) / decay
    return s


@compiled
def plan(lam: Array, k: Array, length: int, size: int) -> Array:
    """Return how many rows of each echo are needed, (H, ECHOES), 0 from the first that is not heard on.

    A channel without any row is left to the loops over frequencies. The work that is compared is counted in products:
    for each mode, two at each time forwards and five backwards, and as much as 40 for the passes over all times; there,
    75 for each mode and frequency.
    """
    channels, modes, _ = lam.shape
    rows = np.zeros((channels, ECHOES), dtype=np.int64)
    for h in range(channels):
        echoes = 1 if k[h] == 0 else (length - 1) // k[h] + 1
        if echoes > ECHOES:
            continue
        square = 1e-300
        for n in range(modes):
            square = max(square, lam[h, n, 0] ** 2 + lam[h, n, 1] ** 2)
        decay = max(-0.5 * math.log(square), 1e-9)
        work = 0
        for j in range(echoes):
            audible = length - j * k[h]
            rows[h, j] = math.ceil(min(float(audible), _duration(j, decay)) / COLUMNS)
            work += 7 * modes * rows[h, j] * COLUMNS + 40 * audible
        if work > 75 * modes * (size // 2):
            rows[h] = 0
    return rows


@vectorised
def _columns(lam: Memory, width: Index, n: Index, Q: Memory) -> None:
    """Set Q[n] to Re and -Im of lam_n^b, for b < COLUMNS."""
    power, one = Complex(lam.number(n), lam.number(n + width)), lam.number(n).constant(1.0)
    z = Complex(one, one.zero())
    for bit in (2**i for i in range(_LANES.bit_length() - 1)):
        chosen, other = (
            one.constants(float((lane & bit != 0) == wanted) for lane in range(_LANES)) for wanted in (True, False)
        )
        z = z * Complex(power.re * chosen + other, power.im * chosen)
        power = power * power
    for b in range(0, COLUMNS, _LANES):
        Q.store(Q.address(n * (2 * COLUMNS) + b), z.re)
        Q.store(Q.address(n * (2 * COLUMNS) + (COLUMNS + b)), -z.im)
        z = z * power


@vectorised
def _geometric(start: Memory, ratio: Memory, rows: Index, width: Index, n: Index, out: Memory) -> None:
    """Set out[a, :, n] to start[:, n] ratio[:, n]^a, for a <= rows and one vector of modes."""
    first, factor = (Complex(t.load(t.address(n)), t.load(t.address(n + width))) for t in (start, ratio))

    def write(a: Index, z: list[Real]) -> list[Real]:
        at = width * 2 * a + n
        for i, part in enumerate(z):
            out.store(out.address(at + width * i), part)
        after = Complex(*z) * factor
        return [after.re, after.im]

    repeat(rows + 1, [first.re, first.im], write)


@vectorised
def _multiply(P: Memory, p: Index, width: Index, modes: Index, Q: Memory, e: Memory, at: Index) -> None:
    """Set ROWS rows of e from `at` on to the sum over modes of Re P[row, n] Q[n, column]; Q has -Im after Re."""
    columns = range(0, COLUMNS, _LANES)
    zero = e.load(e.address(at)).zero()

    def add(n: Index, sums: list[Real]) -> list[Real]:
        for part in range(2):
            q = [Q.load(Q.address(n * (2 * COLUMNS) + (part * COLUMNS + c))) for c in columns]
            factors = [P.number(p + n + width * (2 * row + part)) for row in range(ROWS)]
            terms = [f * column for f in factors for column in q]
            sums = [total + term for total, term in zip(sums, terms, strict=True)]
        return sums

    for i, total in enumerate(repeat(modes, [zero] * (ROWS * len(columns)), add)):
        e.store(e.address(at + i * _LANES), total)


@vectorised
def _project(X: Memory, x: Index, R: Memory, n: Index, width: Index, U: Memory, u: Index) -> None:
    """Set U[row, :, n] to the sum over b of X[row, b] R[b, :, n], for ROWS rows and one vector of modes."""
    zero = U.load(U.address(u)).zero()

    def add(b: Index, sums: list[Real]) -> list[Real]:
        at = width * 2 * b + n
        powers = R.load(R.address(at)), R.load(R.address(at + width))
        factors = [X.number(x + b + row * COLUMNS) for row in range(ROWS)]
        terms = [f * z for f in factors for z in powers]
        return [total + term for total, term in zip(sums, terms, strict=True)]

    for i, total in enumerate(repeat(COLUMNS, [zero] * (2 * ROWS), add)):
        U.store(U.address(u + width * i + n), total)


@vectorised
def _evaluate(
    U: Memory, last: Index, back: Index, rows: Index, step: Memory, n: Index, width: Index, S: Memory
) -> None:
    """Set S[:, n] to the sum over a of step^a U[a, :, n], by Horner's rule from the last row on."""
    ratio = Complex(step.load(step.address(n)), step.load(step.address(n + width)))

    def add(i: Index, total: list[Real]) -> list[Real]:
        at = last + back * i + n
        z = Complex(*total) * ratio + Complex(U.load(U.address(at)), U.load(U.address(at + width)))
        return [z.re, z.im]

    re, im = repeat(rows, [ratio.re.zero()] * 2, add)
    S.store(S.address(n), re)
    S.store(S.address(n + width), im)


@fragment()
def _rows(start: Array, ratio: Array, count: int, out: Array) -> None:
    """Set out[a] to start ratio^a, for a <= count; all (2, width), real before imaginary parts."""
    width = start.shape[1]
    for n in range(0, width, _LANES):
        _geometric(start, ratio, count, width, n, out)


@fragment()
def _planar(z: Array, out: Array) -> None:
    """Set out (2, width) to z (n, 2) and zeros."""
    out[:] = 0.0
    for n in range(len(z)):
        out[0, n], out[1, n] = z[n, 0], z[n, 1]


@fragment()
def _count(rows: Array) -> int:
    """Return the number of echoes that have any rows."""
    count = 0
    while count < ECHOES and rows[count] > 0:
        count += 1
    return count


@fragment()
def _powers(lam: Array, mu: Array, z: Array, R: Array, M: Array) -> None:
    """Set R[b] to lam^b for b <= COLUMNS, and M[j] to 2 mu^j, each (2, width); z is a work array, (2, 2, width)."""
    start, ratio = z[0], z[1]
    start[0], start[1] = 1.0, 0.0
    _planar(lam, ratio)
    _rows(start, ratio, COLUMNS, R)
    start[0] = 2.0
    _planar(mu, ratio)
    _rows(start, ratio, len(M) - 1, M)


@fragment()
def _echo(w: Array, M: Array, rows: int, R: Array, Q: Array, z: Array, P: Array, e: Array) -> None:
    """Set the first rows of e to 2 Re sum_n w_n mu_n^j lam_n^s; M has 2 mu^j, and R[COLUMNS] the step of a row."""
    width, padded = M.shape[1], -(-rows // ROWS) * ROWS
    start = z[0]
    start[:] = 0.0
    for n in range(len(w)):
        start[0, n] = w[n, 0] * M[0, n] - w[n, 1] * M[1, n]
        start[1, n] = w[n, 0] * M[1, n] + w[n, 1] * M[0, n]
    _rows(start, R[COLUMNS], padded - 1, P)
    for a in range(0, padded, ROWS):
        _multiply(P, a * 2 * width, width, len(w), Q, e, a * COLUMNS)


@fragment()
def _with_later(e: Array, binomials: Array, times: int, k: int, alpha: float, later: Array, y: Array) -> None:
    """Set y[s] to C(s+j, j) e[s], which ends after some times, plus the later echoes, delayed."""
    for s in range(times):
        y[s] = binomials[s] * e[s]
    y[times:] = 0.0
    if k < len(y):
        y[k] += (1 - alpha) * later[0]
    for s in range(k + 1, len(y)):
        y[s] += (1 - alpha) * later[s - k] + alpha * later[s - k - 1]


@compiled
def kernel(
    part: int, parts: int, system: Arrays, rows: Array, channels: Array, binomials: Array, skip: Array, out: Array
) -> None:
    """Do a part of the kernels, (D, L, H), of some channels.

    binomials[j, s] is C(s+j, j), for as many times s as the longest echo has.
    """
    lam, mu, w, k, alpha = system
    directions, length, _ = out.shape
    modes, most = lam.shape[1], binomials.shape[1] // COLUMNS + ROWS
    width = -(-modes // _LANES) * _LANES
    z, R, M = np.empty((2, 2, width)), np.empty((COLUMNS + 1, 2, width)), np.empty((ECHOES, 2, width))
    Q, P, e = np.empty((modes, 2, COLUMNS)), np.empty((most, 2, width)), np.empty(most * COLUMNS)
    y, later, responses = np.empty(length), np.empty(length), np.empty((GROUP, length + _LANES))
    groups = -(-len(channels) // GROUP)
    for task in range(part, directions * groups, parts):
        d, first = task // groups, task % groups * GROUP
        count = min(GROUP, len(channels) - first)
        for i in range(count):
            h = channels[first + i]
            echoes = _count(rows[h])
            _powers(lam[h], mu[h], z, R, M[:echoes])
            for n in range(modes):
                _columns(R[1], width, n, Q)
            for j in range(echoes - 1, -1, -1):
                audible = length - j * k[h]
                times, delay = min(rows[h, j] * COLUMNS, audible), k[h] if j < echoes - 1 else length
                _echo(w[d, h], M[j], rows[h, j], R, Q, z, P, e)
                _with_later(e, binomials[j], times, delay, alpha[h], later, y[:audible])
                y, later = later, y
            for t in range(length):
                responses[i, t] = later[t]
            if d == 0:
                responses[i, 0] += skip[h]
        for t in range(length):
            for i in range(count):
                out[d, t, channels[first + i]] = responses[i, t]


@fragment()
def _earlier(g: Array, k: int, alpha: float, slope: Array, out: Array) -> None:
    """Set out to the gradient of the next echo, (1 - alpha) g[s+k] + alpha g[s+k+1], and slope to that by alpha."""
    last = len(g) - k - 1
    for s in range(last):
        slope[s] = g[s + k + 1] - g[s + k]
    slope[last] = -g[last + k]
    for s in range(last + 1):
        out[s] = g[s + k] + alpha * slope[s]


@fragment()
def _terms(g: Array, slope: Array, j: int, binomials: Array, size: int, X: Array) -> None:
    """Set three parts of X, each of a size, to what is to be summed with lam^s over the times s of echo j.

    For the gradient g of the echo, the first is C(s+j, j) g[s]. The second is for its derivative by lam: it comes from
    s C(s+j, j) g[s] lam^(s-1), which with s + 1 for s is (j+1) C(s+j+1, j+1) g[s+1] lam^s. The third is for that by
    alpha, C(s+j, j) slope[s].
    """
    times = min(size, len(g))
    X[: 3 * size] = 0.0
    for s in range(times):
        X[s] = binomials[j, s] * g[s]
    for s in range(min(times, len(g) - 1)):
        X[size + s] = (j + 1) * binomials[j + 1, s] * g[s + 1]
    if j > 0:
        for s in range(times):
            X[2 * size + s] = binomials[j, s] * slope[s]


@fragment()
def _sums(X: Array, rows: int, parts: int, R: Array, U: Array, S: Array) -> None:
    """Set S[i, :, n] to the sum over s of lam_n^s and part i of X, of some rows each."""
    width, step = R.shape[2], R[COLUMNS]
    for n in range(0, width, _LANES):
        for a in range(0, parts * rows, ROWS):
            _project(X, a * COLUMNS, R, n, width, U, a * 2 * width)
        for i in range(parts):
            _evaluate(U, ((i + 1) * rows - 1) * 2 * width, -2 * width, rows, step, n, width, S[i])


@fragment()
def _add_gradients(d: int, h: int, j: int, w: Array, M: Array, S: Array, gradients: Arrays) -> None:
    """Add the gradients of echo j of one channel; M has 2 mu^j for all j, and S the sums of `_terms`."""
    g_lam, g_mu, g_w, g_alpha = gradients
    for n in range(len(w)):
        wr, wi, mr, mi = w[n, 0], w[n, 1], M[j, 0, n], M[j, 1, n]
        vr, vi = wr * mr - wi * mi, wr * mi + wi * mr
        g_w[d, h, n, 0] += mr * S[0, 0, n] - mi * S[0, 1, n]
        g_w[d, h, n, 1] -= mr * S[0, 1, n] + mi * S[0, 0, n]
        g_lam[h, n, 0] += vr * S[1, 0, n] - vi * S[1, 1, n]
        g_lam[h, n, 1] -= vr * S[1, 1, n] + vi * S[1, 0, n]
        if j > 0:
            g_alpha[h] += j * (vr * S[2, 0, n] - vi * S[2, 1, n])
            mr, mi = j * M[j - 1, 0, n], j * M[j - 1, 1, n]
            vr, vi = wr * mr - wi * mi, wr * mi + wi * mr
            g_mu[h, n, 0] += vr * S[0, 0, n] - vi * S[0, 1, n]
            g_mu[h, n, 1] -= vr * S[0, 1, n] + vi * S[0, 0, n]


@compiled
def kernel_backward(
    part: int, parts: int, grad: Array, system: Arrays, rows: Array, channels: Array, binomials: Array,
    gradients: Arrays,
) -> None:  # fmt: skip
    """Do a part of the backward pass; gradients begin as zeros."""
    lam, mu, w, k, alpha = system
    directions, length, _ = grad.shape
    modes, most = lam.shape[1], 3 * (binomials.shape[1] // COLUMNS) + ROWS
    width = -(-modes // _LANES) * _LANES
    z, R, M = np.empty((2, 2, width)), np.empty((COLUMNS + 1, 2, width)), np.empty((ECHOES, 2, width))
    X, U, S = np.zeros(most * COLUMNS), np.empty((most, 2, width)), np.empty((3, 2, width))
    g, after, slope, received = np.empty(length), np.empty(length), np.empty(length), np.empty((GROUP, length + _LANES))
    groups = -(-len(channels) // GROUP)
    for task in range(part, groups, parts):
        first = task * GROUP
        count = min(GROUP, len(channels) - first)
        for d in range(directions):
            for t in range(length):
                for i in range(count):
                    received[i, t] = grad[d, t, channels[first + i]]
            for i in range(count):
                h = channels[first + i]
                echoes = _count(rows[h])
                _powers(lam[h], mu[h], z, R, M[:echoes])
                for t in range(length):
                    g[t] = received[i, t]
                for j in range(echoes):
                    if j > 0:
                        _earlier(g[: length - (j - 1) * k[h]], k[h], alpha[h], slope, after)
                        g, after = after, g
                    _terms(g[: length - j * k[h]], slope, j, binomials, rows[h, j] * COLUMNS, X)
                    _sums(X, rows[h, j], 3 if j > 0 else 2, R, U, S)
                    _add_gradients(d, h, j, w[d, h], M, S, gradients)
