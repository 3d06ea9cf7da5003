"""Series of the Mackey-Glass equation, whose feedback is delayed."""

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
