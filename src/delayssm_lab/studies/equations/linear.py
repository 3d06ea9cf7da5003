"""Linear forecasts from the last values of a series, fitted by least squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Autoregression:
    """A forecast a fixed number of steps ahead: a constant and a weighted sum of the last values.

    Args:
        weights: The constant, and the weights of values from the oldest to the last: (taps + 1,).
        ahead: Steps ahead.
    """

    weights: Array
    ahead: int

    @classmethod
    def fit(cls, series: Array, taps: int, ahead: int) -> Self:
        """Return the forecast with the smallest squared error at all times of all series, (series, times)."""
        rows = np.zeros((0, taps + 2))
        for values in series:  # a QR decomposition of all rows, a series at a time
            block = np.column_stack([_past(values[:-ahead], taps), values[ahead:]])
            rows = np.asarray(np.linalg.qr(np.concatenate([rows, block]), mode="r"))
        weights: Array = np.linalg.lstsq(rows[:, :-1], rows[:, -1])[0].astype(np.float64)
        return cls(weights, ahead)

    def forecast(self, series: Array) -> Array:
        """Return what is forecast at each time of series (series, times) for `ahead` steps later."""
        taps = len(self.weights) - 1
        return np.stack([_past(values, taps) @ self.weights for values in series])

    def run(self, past: Array, steps: int) -> Array:
        """Return the values of the times after the past, (series, steps), when forecasts are taken for values."""
        taps = len(self.weights) - 1
        window = np.concatenate([np.zeros((len(past), taps)), past], axis=1)[:, -taps:]
        values = list(self.forecast(past)[:, -self.ahead :].T)
        for i in range(steps - self.ahead):
            window = np.concatenate([window[:, 1:], values[i][:, None]], axis=1)
            values.append(self.weights[0] + window @ self.weights[1:])
        return np.stack(values[:steps], axis=1)


def _past(values: Array, taps: int) -> Array:
    """Return a one and the last `taps` values at each time, zeros before the first: (times, taps + 1)."""
    padded = np.concatenate([np.zeros(taps - 1), values])
    windows = np.lib.stride_tricks.sliding_window_view(padded, taps)
    return np.column_stack([np.ones(len(windows)), windows])
