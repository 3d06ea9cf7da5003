"""The normalised LMS filter, with which echoes are usually cancelled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def adapt(weights: Array, played: Array, heard: Array, rate: float, floor: float = 1e-3) -> Array:
    """Return the weights of a filter after it has followed signals, (signals, length), sample by sample.

        e_t = y_t - w . u_t,    w <- w + rate e_t u_t / (floor taps + u_t . u_t),    u_t = (x_t, ..., x_(t-taps+1))

    Args:
        weights: Weights before, (taps,).
        played: Inputs x.
        heard: Targets y.
        rate: Step size, between 0 and 2.
        floor: Power per tap that is added, so that silence does not divide by zero.
    """
    if not 0 < rate < 2:
        raise ValueError(f"rate must lie between 0 and 2, where the filter is stable, not {rate}")
    w, taps = weights.copy(), len(weights)
    for x, y in zip(played, heard, strict=True):
        padded = np.concatenate([np.zeros(taps - 1), x])
        windows = np.lib.stride_tricks.sliding_window_view(padded, taps)[:, ::-1]
        for u, target in zip(windows, y, strict=True):
            w += rate * (target - w @ u) / (floor * taps + u @ u) * u
    return w
