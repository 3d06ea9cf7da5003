"""Base of the tasks that ask for tokens which a sequence has shown before. Samples are drawn as they are needed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from delayssm_lab.models.specs import Spec
from delayssm_lab.tasks.task import Metric, Score, Split, Task, score_classes

#: Token of the positions that hold nothing.
PAD = 0
#: Sizes are below this number.
LARGEST = 2**31


@dataclass(frozen=True)
class RecallBatch:
    """Sequences of tokens, and the targets at some positions of each."""

    tokens: Int[Tensor, "B L"]
    positions: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]

    def to(self, device: object) -> RecallBatch:
        """Return the batch on another device."""
        return RecallBatch(*(t.to(device) for t in (self.tokens, self.positions, self.targets)))  # type: ignore[call-overload]

    def score(self, model: nn.Module) -> Score:
        """Return the cross-entropy and the number of correct answers, at the supervised positions only."""
        logits = model(self.tokens, at=self.positions)
        return score_classes(logits.flatten(0, 1), self.targets.flatten())


class RecallTask(Task):
    """A task whose samples are sequences of tokens, each of which depends on (seed, split, number) only."""

    metric: ClassVar[Metric] = Metric.ACCURACY

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of tokens, including the padding 0."""

    @abstractmethod
    def batch(self, seed: int, split: Split, indices: Sequence[int]) -> RecallBatch:
        """Return the samples with these numbers."""

    def build(self, spec: Spec) -> nn.Module:
        """Return a model for this task, freshly initialised."""
        return spec.build(self.vocab_size, self.max_length)

    def size(self, split: Split) -> int | None:
        """Return None, as samples are drawn on demand; 0 for the test split, as no sample is ever seen twice."""
        return 0 if split is Split.TEST else None

    def answers(self, model: nn.Module, batch: RecallBatch) -> Int[Tensor, "B T"]:
        """Return the most likely token at each supervised position."""
        with torch.no_grad():
            answers: Tensor = model(batch.tokens, at=batch.positions).argmax(-1)
        return answers


def random_of(seed: int, split: Split, index: int) -> np.random.Generator:
    """Return the random generator of the sample with this number."""
    return np.random.Generator(np.random.Philox(key=[seed, split], counter=[0, index, 0, 0]))


def check_sizes(**sizes: int) -> None:
    """Raise ValueError for a size below 1, or beyond all machines."""
    for name, size in sizes.items():
        if not 1 <= size < LARGEST:
            raise ValueError(f"{name} must be at least 1 and below 2**31, not {size}")
