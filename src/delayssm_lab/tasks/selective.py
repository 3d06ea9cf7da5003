"""Selective copying: remember a few tokens among many that are noise, and repeat them in their order.

The construction is that of the Mamba paper (Gu and Dao, 2023), which takes it from the copying task of S4's code: the
data tokens are at random places among noise, and as many markers follow, each of which asks for one data token. Four
data tokens in a context of ten, with a vocabulary of 8 (0 is noise, 7 is the marker):

    tokens     0 0 3 0 6 6 0 0 1 0  7 7 7 7
    answers                         3 6 6 1

A model sees no answer, and markers are all alike. As the places vary, no fixed delay leads from data to answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from delayssm_lab.tasks.recall import PAD, RecallBatch, RecallTask, check_sizes, random_of
from delayssm_lab.tasks.task import Split


@dataclass(frozen=True)
class SelectiveCopying(RecallTask):
    """Selective copying.

    Args:
        length: Number of tokens before the markers, data and noise together.
        data_length: Number of tokens to remember.
        vocab_size: Number of tokens, including the noise 0 and the last one, which is the marker.
    """

    length: int = 128
    data_length: int = 8
    vocab_size: int = 16

    def __post_init__(self) -> None:
        check_sizes(length=self.length, data_length=self.data_length, vocab_size=self.vocab_size)
        if self.data_length > self.length:
            raise ValueError(
                f"{self.data_length} data tokens do not fit into a length of {self.length}; lower data_length"
            )
        if self.vocab_size < 3:
            raise ValueError(f"vocab_size must be at least 3, for noise, data and marker, not {self.vocab_size}")

    @property
    def label(self) -> str:
        """Human-readable name of the task."""
        return f"Selective copying, {self.length} tokens"

    @property
    def marker(self) -> int:
        """Token that asks for an answer."""
        return self.vocab_size - 1

    @property
    def max_length(self) -> int:
        """Number of positions that a model sees: the context and the markers."""
        return self.length + self.data_length

    def batch(self, seed: int, split: Split, indices: Sequence[int]) -> RecallBatch:
        """Return the samples with these numbers. Each depends on (seed, split, index) only."""
        tokens = np.full((len(indices), self.max_length), PAD)
        tokens[:, self.length :] = self.marker
        data = np.empty((len(indices), self.data_length), np.int64)
        for row, index in enumerate(indices):
            random = random_of(seed, split, index)
            data[row] = random.integers(1, self.marker, self.data_length)
            tokens[row, np.sort(random.choice(self.length, self.data_length, replace=False))] = data[row]
        positions = np.broadcast_to(np.arange(self.length, self.max_length), data.shape).copy()
        return RecallBatch(*map(torch.from_numpy, (tokens, positions, data)))

    def chance_level(self) -> float:
        """Return the accuracy of always giving the same answer: all data tokens are equally likely."""
        return 1 / (self.vocab_size - 2)
