"""What the training loop needs to know of a task."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from delayssm_lab.models.specs import Spec


class Split(enum.IntEnum):
    """No sample is in two of them."""

    TRAIN = 0
    VALIDATION = 1
    TEST = 2


class Metric(enum.Enum):
    """How good answers are, from the mean of the points that they get."""

    ACCURACY = "accuracy"
    RMSE = "rmse"

    def of(self, mean: float) -> float:
        """Points are 1 for a right answer and 0 for a wrong one; or squared errors."""
        return math.sqrt(mean) if self is Metric.RMSE else mean

    def merit(self, value: float) -> float:
        """The larger the better."""
        return -value if self is Metric.RMSE else value

    def better(self, a: float, b: float) -> bool:
        """Whether a is better than b."""
        return self.merit(a) > self.merit(b)

    def best(self, values: Iterable[float]) -> float:
        """Of some values."""
        return max(values, key=self.merit)


@dataclass(frozen=True)
class Score:
    """Sums over the answers of a batch."""

    loss: Float[Tensor, ""]
    points: Float[Tensor, ""] | Int[Tensor, ""]
    count: int


class Batch(Protocol):
    """Some samples, and what should be said to them."""

    @property
    def targets(self) -> Tensor:
        """One for each answer."""
        ...

    def to(self, device: object) -> Self:
        """The same on another device."""
        ...

    def score(self, model: nn.Module) -> Score:
        """Loss and points of a model's answers."""
        ...


class Task(Protocol):
    """Samples by number, the same for every machine and every number of processes."""

    @property
    def label(self) -> str:
        """For people."""
        ...

    @property
    def metric(self) -> Metric:
        """How good answers are."""
        ...

    @property
    def max_length(self) -> int:
        """Positions that a model sees at most."""
        ...

    def build(self, spec: Spec) -> nn.Module:
        """A model for this task, freshly initialised."""
        ...

    def size(self, split: Split) -> int | None:
        """How many samples there are; None for any number of them."""
        ...

    def batch(self, seed: int, split: Split, indices: Sequence[int]) -> Batch:
        """The samples with these numbers; of training samples there is no end, they come again in another order."""
        ...

    def guess(self) -> float:
        """What the best answer that does not look at the data gets."""
        ...


def classified(logits: Float[Tensor, "B C"], targets: Int[Tensor, " B"]) -> Score:
    """Cross-entropy, and right answers."""
    loss = F.cross_entropy(logits.float(), targets, reduction="sum")
    return Score(loss, (logits.argmax(-1) == targets).sum(), targets.numel())
