"""Series of the Mackey-Glass equation, whose feedback is delayed, and how fast they diverge."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

_SUBSTEPS = 10


def mackey_glass(count: int, length: int, *, tau: int = 17, washout: int = 100, seed: int = 0) -> NDArray[np.float64]:
    """Return series (count, length) as in the public notebook of the LMU paper: with its numbers, for its seed 0.

        x'(t) = 0.2 x(t - tau) / (1 + x(t - tau)^10) - 0.1 x(t)

    is integrated by Euler's method in tenths of a step. Each series begins with a random past around 1.2 and with the
    last value of the series before it. The first `washout` steps are left out, and tanh(x - 1) is returned, less its
    mean over all series.
    """
    random = np.random.RandomState(seed)  # the generator of the notebook
    x = 1.2
    series = np.empty((count, washout + length))
    for row in series:
        past = deque((1.2 + 0.2 * (random.rand(tau * _SUBSTEPS) - 0.5)).tolist())
        for t in range(len(row)):
            for _ in range(_SUBSTEPS):
                delayed = past.popleft()
                past.append(x)
                x += (0.2 * delayed / (1 + delayed**10) - 0.1 * x) / _SUBSTEPS
            row[t] = x
    squashed = np.tanh(series[:, washout:] - 1)
    centred: NDArray[np.float64] = squashed - squashed.mean()
    return centred


def lyapunov_exponents(
    count: int, length: int, *, tau: int = 17, washout: int = 1000, seed: int = 0
) -> NDArray[np.float64]:
    """Return the largest Lyapunov exponent per time unit, as `count` solutions estimate it over `length` time units.

    A small difference d between two solutions of the equation follows its tangent,

        d'(t) = 0.2 (1 - 9 z) / (1 + z)^2 d(t - tau) - 0.1 d(t),    z = x(t - tau)^10,

    which is integrated beside the equation by the same method. The state of a delay equation is its past over tau, and
    so is the difference. Its logarithmic growth, after the washout, is divided by the time.
    """
    if length < tau:
        raise ValueError(f"growth is measured over whole delays of {tau} time units, so {length} are too few")
    random = np.random.default_rng(seed)
    slots = tau * _SUBSTEPS
    past = 1.2 + 0.2 * (random.random((slots, count)) - 0.5)
    apart = random.standard_normal((slots, count))
    x, d = past[-1].copy(), apart[-1].copy()
    growth, periods = np.zeros(count), 0
    for n in range((washout + length) * _SUBSTEPS):
        slot = n % slots
        delayed, delayed_d = past[slot].copy(), apart[slot].copy()
        past[slot], apart[slot] = x, d
        z = delayed**10
        x = x + (0.2 * delayed / (1 + z) - 0.1 * x) / _SUBSTEPS
        d = d + (0.2 * (1 - 9 * z) / (1 + z) ** 2 * delayed_d - 0.1 * d) / _SUBSTEPS
        if slot == slots - 1:  # stay within range
            size = np.sqrt((np.square(apart).sum(0) + np.square(d)) / (slots + 1))
            apart, d = apart / size, d / size
            if n >= washout * _SUBSTEPS:
                growth, periods = growth + np.log(size), periods + 1
    return growth / (periods * tau)
