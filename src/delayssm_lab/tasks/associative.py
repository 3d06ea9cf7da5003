"""Multi-query associative recall: answer each key with the value that was paired with it before.

The construction is that of Zoology (Arora et al., 2023): a sequence begins with all pairs, and then asks for each of
them once. Keys and values are of two halves of the vocabulary, and no key or value occurs in two pairs. Two pairs in 16
tokens, with a vocabulary of 12 (0 pads, 1 to 5 are keys, 6 to 11 are values):

    tokens     2 8  4 7  0 0  4 0  0 0  0 0  2 0  0 0
    answers                   7              8            each at the position of its key

Each pair of positions after the first part has room for one query, and the query of a pair is placed in slot i = 1, 2,
... with a probability proportional to i^(power - 1), without replacement: gaps follow a power law, as those between
repetitions in texts do. Values are not shown again after their queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from delayssm_lab.tasks.recall import PAD, RecallBatch, RecallTask, check_sizes, random_of
from delayssm_lab.tasks.task import Split


@dataclass(frozen=True)
class AssociativeRecall(RecallTask):
    """Multi-query associative recall.

    Args:
        length: Number of tokens of a sequence.
        pairs: Number of pairs, each of which is asked for once.
        vocab_size: Number of tokens, including the padding 0. The upper half of them are values, and the others keys.
        power: Exponent of the power law of the gaps. 1 makes all gaps equally likely; small ones favour short gaps.
    """

    length: int = 64
    pairs: int = 4
    vocab_size: int = 128
    power: float = 0.01

    def __post_init__(self) -> None:
        check_sizes(length=self.length, pairs=self.pairs, vocab_size=self.vocab_size)
        if 4 * self.pairs > self.length:
            raise ValueError(
                f"{self.pairs} pairs and their queries take {4 * self.pairs} tokens, but length is {self.length}; "
                "lower pairs or raise length"
            )
        if self.pairs > self._first_value - 1:
            raise ValueError(
                f"a vocabulary of {self.vocab_size} has {self._first_value - 1} keys, too few for {self.pairs} pairs; "
                f"raise vocab_size to at least {2 * self.pairs + 2}"
            )
        if not 0 < self.power <= 10:
            raise ValueError(f"power must be positive and at most 10, not {self.power}")

    @property
    def label(self) -> str:
        """Human-readable name of the task."""
        return f"Associative recall, {self.length} tokens, {self.pairs} pairs"

    @property
    def max_length(self) -> int:
        """Number of positions that a model sees."""
        return self.length

    def batch(self, seed: int, split: Split, indices: Sequence[int]) -> RecallBatch:
        """Return the samples with these numbers. Each depends on (seed, split, index) only."""
        tokens = np.full((len(indices), self.length), PAD)
        positions, values = np.empty((2, len(indices), self.pairs), np.int64)
        shown = 2 * self.pairs
        for row, index in enumerate(indices):
            random = random_of(seed, split, index)
            keys = 1 + random.choice(self._first_value - 1, self.pairs, replace=False)
            values[row] = self._first_value + random.choice(self._values, self.pairs, replace=False)
            # Gumbel noise on log-weights: the largest are as if drawn by weight, one after another.
            order = np.argsort(-(self._log_weights + random.gumbel(size=len(self._log_weights))))
            positions[row] = shown + 2 * order[: self.pairs]
            tokens[row, 0:shown:2], tokens[row, 1:shown:2] = keys, values[row]
            tokens[row, positions[row]] = keys
        return RecallBatch(*map(torch.from_numpy, (tokens, positions, values)))

    def chance_level(self) -> float:
        """Return the accuracy of always giving the same answer: all values are equally likely."""
        return 1 / self._values

    @property
    def _first_value(self) -> int:
        return self.vocab_size // 2

    @property
    def _values(self) -> int:
        """Return the number of different values."""
        return self.vocab_size - self._first_value

    @cached_property
    def _log_weights(self) -> NDArray[np.float64]:
        """Return the logarithm of each slot's weight, (slots,)."""
        slots = np.arange(1, (self.length - 2 * self.pairs) // 2 + 1)
        return (self.power - 1) * np.log(slots)
