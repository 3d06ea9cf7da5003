"""The paper's delayed-memory tasks (appendix C.2): remember data over a lag, then answer from it.

    x = [data, zeros for the lag, go, target]        target[t] = round(sum over l of G[l] data[t - l])

Copying three tokens over a lag of four, with ten tokens in all (0 pads, 9 is go):

    tokens     7 2 5  0 0 0 0  9  7 2 5
    answers                    7  2 5        each is given one position before its token: teacher forcing

If lags vary, rows with a shorter lag are padded after their target, so that all rows have the same length.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from delayssm_lab.tasks.recall import LARGEST, PAD, RecallBatch, RecallTask, random_of
from delayssm_lab.tasks.task import Split


@dataclass(frozen=True)
class Copy:
    """Copy: each target token is its data token, G = [1]."""

    def weights(self) -> NDArray[np.float64]:
        """Return G, (1,)."""
        return np.ones(1)


@dataclass(frozen=True)
class Sum:
    """Sum of the last `window` data tokens, G = [1, ..., 1].

    Args:
        window: Number of data tokens in a sum.
    """

    window: int = 16

    def __post_init__(self) -> None:
        _check_window(self.window)

    def weights(self) -> NDArray[np.float64]:
        """Return G, (window,)."""
        return np.ones(self.window)


@dataclass(frozen=True)
class WeightedSum:
    """Gaussian-weighted sum of the last `window` data tokens, rounded to the nearest token.

    G[l] = amplitude exp(-(l - center)^2 / (2 width^2))

    Args:
        window: Number of data tokens in a sum.
        amplitude: Largest weight.
        center: Lag of the largest weight.
        width: Standard deviation of the Gaussian, in lags.
    """

    window: int = 16
    amplitude: float = 0.75
    center: float = 8.0
    width: float = 12.0

    def __post_init__(self) -> None:
        _check_window(self.window)
        for name, value in (("amplitude", self.amplitude), ("width", self.width)):
            if not 1e-6 <= value <= 1e6:
                raise ValueError(f"{name} must be positive, from 1e-6 to 1e6, not {value}")
        if not abs(self.center) <= 1e6:
            raise ValueError(f"center must be between -1e6 and 1e6, not {self.center}")

    def weights(self) -> NDArray[np.float64]:
        """Return G, (window,)."""
        lag = np.arange(self.window)
        gaussian: NDArray[np.float64] = self.amplitude * np.exp(-((lag - self.center) ** 2) / (2 * self.width**2))
        return gaussian


def _check_window(window: int) -> None:
    if window < 1:
        raise ValueError(f"window must be at least 1, not {window}")


@dataclass(frozen=True)
class DelayedMemory(RecallTask):
    """A task of delayed memory: copying, summing or weighted summing after a fixed or a variable lag.

    Args:
        mapping: Function from the data to the target.
        lags: Shortest and longest lag. Each sample draws its lag between them, both included.
        vocab_size: Number of tokens, including the padding 0 and the last one, which is the go signal.
        data_length: Number of tokens to remember.
        max_token: Largest data token; the smallest is 1. By default the largest one for which no target exceeds the
            vocabulary.
    """

    mapping: Copy | Sum | WeightedSum = Copy()
    lags: tuple[int, int] = (1024, 1024)
    vocab_size: int = 100
    data_length: int = 32
    max_token: int | None = None

    def __post_init__(self) -> None:
        if self.data_length < 1:
            raise ValueError(f"data_length must be at least 1, not {self.data_length}")
        if not 0 <= self.lags[0] <= self.lags[1]:
            raise ValueError(f"lags must be two numbers of at least 0, the shorter first, not {self.lags}")
        if self.max_token is not None and self.max_token < 1:
            raise ValueError(f"max_token must be at least 1, not {self.max_token}")
        sizes = {"data_length": self.data_length, "vocab_size": self.vocab_size, "lags": self.lags[1]}
        for name, size in {**sizes, "max_token": self.max_token or 0}.items():
            if size >= LARGEST:
                raise ValueError(f"{name} must be below 2**31, not {size}")
        if self.largest_token < 1:
            raise ValueError(f"vocab_size {self.vocab_size} is too small: even data tokens of 1 give targets beyond it")
        if self._largest_target(self.largest_token) > self.go - 1:
            raise ValueError(
                f"data tokens up to {self.max_token} give targets up to {self._largest_target(self.largest_token)}, "
                f"but the largest token below the go signal is {self.go - 1}; "
                f"lower max_token or raise vocab_size"
            )

    @property
    def go(self) -> int:
        """Token that is the signal to answer."""
        return self.vocab_size - 1

    @cached_property
    def largest_token(self) -> int:
        """Largest data token."""
        if self.max_token is not None:
            return self.max_token
        return bisect_left(range(1, self.go), self.go, key=self._largest_target)  # targets grow with their data

    @property
    def max_length(self) -> int:
        """Number of positions that a model sees: all tokens but the last, which it only has to predict."""
        return 2 * self.data_length + self.lags[1]

    @property
    def label(self) -> str:
        """Human-readable name of the task."""
        mapping = {Copy: "Copy", Sum: "Sum", WeightedSum: "Weighted sum"}[type(self.mapping)]
        return f"{mapping}, {'fixed' if self.lags[0] == self.lags[1] else 'variable'} delay"

    def target(self, data: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the target of data, (..., data_length) -> the same shape."""
        target = np.zeros(data.shape)
        for lag, weight in enumerate(self._weights()):
            target[..., lag:] += weight * data[..., : self.data_length - lag]
        return np.rint(target).astype(np.int64)

    def batch(self, seed: int, split: Split, indices: Sequence[int]) -> RecallBatch:
        """Return the samples with these numbers. Each depends on (seed, split, index) only."""
        samples = [self._draw(seed, split, index) for index in indices]
        data = np.stack([data for data, _ in samples])
        lag = np.array([lag for _, lag in samples])
        target = self.target(data)
        tokens = np.full((len(indices), self.max_length + 1), PAD)
        tokens[:, : self.data_length] = data
        go = (self.data_length + lag)[:, None]
        np.put_along_axis(tokens, go, self.go, axis=1)
        positions = go + np.arange(self.data_length)
        np.put_along_axis(tokens, positions + 1, target, axis=1)
        return RecallBatch(*map(torch.from_numpy, (tokens[:, :-1].copy(), positions, target)))

    def lag(self, seed: int, split: Split, index: int) -> int:
        """Return the lag of the sample with this number."""
        return self._draw(seed, split, index)[1]

    def chance_level(self) -> float:
        """Return the validation accuracy of always giving the most frequent training target of each position.

        Both are counted over 4,096 samples. If they were the same samples, the most frequent target would be partly one
        that is frequent in these by chance, and its accuracy too high.
        """
        seen, held_out = (self.batch(0, split, range(4096)).targets for split in (Split.TRAIN, Split.VALIDATION))
        answers = torch.stack([column.bincount().argmax() for column in seen.T])
        return float((held_out == answers).double().mean())

    def _draw(self, seed: int, split: Split, index: int) -> tuple[NDArray[np.int64], int]:
        """Return the data and the lag of one sample."""
        random = random_of(seed, split, index)
        data = random.integers(1, self.largest_token, self.data_length, endpoint=True)
        return data, int(random.integers(*self.lags, endpoint=True))

    def _largest_target(self, token: int) -> int:
        """Return the largest target of data tokens up to one, summed in the order in which `target` does."""
        return int(np.rint(np.add.accumulate(self._weights() * token).max()))

    def _weights(self) -> NDArray[np.float64]:
        """Return the weights of those data tokens that there are."""
        window = min(getattr(self.mapping, "window", 1), self.data_length)
        return (self.mapping if isinstance(self.mapping, Copy) else replace(self.mapping, window=window)).weights()
