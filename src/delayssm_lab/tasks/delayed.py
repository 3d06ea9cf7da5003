"""The paper's delayed-memory tasks (appendix C.2): remember, wait, then answer from what was seen long ago.

    x = [data, zeros for the lag, go, target]        target[t] = round(sum over l of G[l] data[t - l])

Copying three tokens over a lag of four, with ten tokens in all (0 pads, 9 is go):

    tokens     7 2 5  0 0 0 0  9  7 2 5
    answers                    7  2 5        each given one position before its token: teacher forcing

Where lags vary, a row with a shorter lag is padded behind its target, so that all rows are equally long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor, nn

from delayssm_lab.models.specs import Spec
from delayssm_lab.tasks.task import Metric, Score, Split, classified

PAD = 0


@dataclass(frozen=True)
class Copy:
    """G = [1]: each target token is its data token."""

    def weights(self) -> NDArray[np.float64]:
        """G, (1,)."""
        return np.ones(1)


@dataclass(frozen=True)
class Sum:
    """G = [1, ..., 1]: the sum of the last `window` data tokens."""

    window: int = 16

    def __post_init__(self) -> None:
        _check_window(self.window)

    def weights(self) -> NDArray[np.float64]:
        """G, (window,)."""
        return np.ones(self.window)


@dataclass(frozen=True)
class WeightedSum:
    """G[l] = amplitude exp(-(l - center)^2 / (2 width^2)), rounded to the nearest token."""

    window: int = 16
    amplitude: float = 0.75
    center: float = 8.0
    width: float = 12.0

    def __post_init__(self) -> None:
        _check_window(self.window)
        if not (self.amplitude > 0 and self.width > 0):
            raise ValueError(f"amplitude and width must be positive, not {self.amplitude} and {self.width}")

    def weights(self) -> NDArray[np.float64]:
        """G, (window,)."""
        lag = np.arange(self.window)
        gaussian: NDArray[np.float64] = self.amplitude * np.exp(-((lag - self.center) ** 2) / (2 * self.width**2))
        return gaussian


def _check_window(window: int) -> None:
    if window < 1:
        raise ValueError(f"window must be at least 1, not {window}")


@dataclass(frozen=True)
class Recall:
    """Token sequences, and what should be said at some positions of each."""

    tokens: Int[Tensor, "B L"]
    positions: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]

    def to(self, device: object) -> Recall:
        """The same on another device."""
        return Recall(*(t.to(device) for t in (self.tokens, self.positions, self.targets)))  # type: ignore[call-overload]

    def score(self, model: nn.Module) -> Score:
        """Cross-entropy and right answers, at the supervised positions only."""
        logits = model(self.tokens, at=self.positions)
        return classified(logits.flatten(0, 1), self.targets.flatten())


@dataclass(frozen=True)
class DelayedMemory:
    """One task.

    Args:
        mapping: what the target is.
        lags: the shortest and the longest lag; each sample draws its own between them, both included.
        vocab_size: tokens including 0, which pads, and the last one, which is the go signal.
        data_length: tokens to remember.
        max_token: data tokens are 1 to this. By default as many as can be without a target overflowing.
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
            raise ValueError(f"lags must be two numbers from 0 on, the shorter first, not {self.lags}")
        if self.max_token is not None and self.max_token < 1:
            raise ValueError(f"max_token must be at least 1, not {self.max_token}")
        if self.largest_token < 1:
            raise ValueError(f"a vocabulary of {self.vocab_size} is too small: the target of a data token 1 overflows")
        if self._largest_target(self.largest_token) > self.go - 1:
            raise ValueError(
                f"data tokens up to {self.max_token} give targets up to {self._largest_target(self.largest_token)}, "
                f"but the largest token below the go signal is {self.go - 1}; "
                f"lower max_token or raise vocab_size"
            )

    @property
    def go(self) -> int:
        """The signal to answer."""
        return self.vocab_size - 1

    @cached_property
    def largest_token(self) -> int:
        """The largest data token."""
        if self.max_token is not None:
            return self.max_token
        return max((m for m in range(1, self.go) if self._largest_target(m) < self.go), default=0)

    @property
    def max_length(self) -> int:
        """Positions a model sees: all tokens but the last, which it only has to predict."""
        return 2 * self.data_length + self.lags[1]

    @property
    def label(self) -> str:
        """For people."""
        mapping = {Copy: "Copy", Sum: "Sum", WeightedSum: "Weighted sum"}[type(self.mapping)]
        return f"{mapping}, {'fixed' if self.lags[0] == self.lags[1] else 'variable'} delay"

    @property
    def metric(self) -> Metric:
        """The share of right answers."""
        return Metric.ACCURACY

    def build(self, spec: Spec) -> nn.Module:
        """A model of its tokens, freshly initialised."""
        return spec.build(self.vocab_size, self.max_length)

    def size(self, split: Split) -> int | None:
        """Samples are made as they are wanted; there are none to test on, since none is ever seen twice."""
        return 0 if split is Split.TEST else None

    def target(self, data: NDArray[np.int64]) -> NDArray[np.int64]:
        """The answer to data, (..., data_length) -> the same shape."""
        found = np.zeros(data.shape)
        for lag, weight in enumerate(self.mapping.weights()[: self.data_length]):
            found[..., lag:] += weight * data[..., : self.data_length - lag]
        return np.rint(found).astype(np.int64)

    def batch(self, seed: int, split: Split, indices: Sequence[int]) -> Recall:
        """The samples with these numbers. Each is made from (seed, split, index) alone."""
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
        return Recall(torch.from_numpy(tokens[:, :-1].copy()), torch.from_numpy(positions), torch.from_numpy(target))

    def lag(self, seed: int, split: Split, index: int) -> int:
        """Return the lag of the sample with this number."""
        return self._draw(seed, split, index)[1]

    def answers(self, model: nn.Module, batch: Recall) -> Int[Tensor, "B T"]:
        """Return the most likely token at each supervised position."""
        with torch.no_grad():
            answers: Tensor = model(batch.tokens, at=batch.positions).argmax(-1)
        return answers

    def guess(self) -> float:
        """Accuracy of the best guess that ignores the data: the most frequent target. By counting, 4096 samples."""
        targets = self.batch(0, Split.VALIDATION, range(4096)).targets
        return float(torch.stack([column.bincount().max() for column in targets.T]).sum()) / math.prod(targets.shape)

    def _draw(self, seed: int, split: Split, index: int) -> tuple[NDArray[np.int64], int]:
        """Return the data and the lag of one sample."""
        random = np.random.Generator(np.random.Philox(key=[seed, split], counter=[0, index, 0, 0]))
        data = random.integers(1, self.largest_token, self.data_length, endpoint=True)
        return data, int(random.integers(*self.lags, endpoint=True))

    def _largest_target(self, token: int) -> int:
        return int(self.target(np.full(self.data_length, token)).max())
