"""What the training loop needs to know of a task."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class Split(enum.IntEnum):
    """Samples of different splits are drawn from independent streams."""

    TRAIN = 0
    VALIDATION = 1


@dataclass(frozen=True)
class Batch:
    """Token sequences, and what should be said at some positions of each."""

    tokens: Int[Tensor, "B L"]
    positions: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]

    def to(self, device: object) -> Batch:
        """The same on another device."""
        return Batch(*(t.to(device) for t in (self.tokens, self.positions, self.targets)))  # type: ignore[call-overload]


@dataclass(frozen=True)
class Score:
    """Sums over the answers of a batch."""

    loss: Float[Tensor, ""]
    correct: Int[Tensor, ""]
    count: int


class Task(Protocol):
    """Samples by number, the same for every machine and every number of processes."""

    def batch(self, seed: int, split: Split, indices: Sequence[int]) -> Batch:
        """The samples with these numbers."""
        ...


def score(model: nn.Module, batch: Batch) -> Score:
    """Cross-entropy and correct answers, at the supervised positions only."""
    logits = model(batch.tokens, at=batch.positions).flatten(0, 1).float()
    targets = batch.targets.flatten()
    loss = F.cross_entropy(logits, targets, reduction="sum")
    return Score(loss, (logits.argmax(-1) == targets).sum(), targets.numel())
