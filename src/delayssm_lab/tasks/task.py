"""Interface between tasks and the training loop: splits, batches, scores and metrics."""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from delayssm_lab.models.specs import Spec


class Split(enum.IntEnum):
    """Disjoint subsets of the samples of a task."""

    TRAIN = 0
    VALIDATION = 1
    TEST = 2


class Metric(enum.Enum):
    """Quality of answers, computed from the mean of their points.

    For accuracy, a correct answer has 1 point and a wrong one 0. For RMSE, points are squared errors. For bits per
    byte, they are -log2 of the probability of the right byte.
    """

    ACCURACY = "accuracy"
    RMSE = "rmse"
    BITS = "bits_per_byte"

    @property
    def label(self) -> str:
        """Human-readable name of the metric."""
        return "RMSE" if self is Metric.RMSE else self.value.replace("_", " ")

    def of(self, mean: float) -> float:
        """Return the metric from the mean of the points."""
        return math.sqrt(mean) if self is Metric.RMSE else mean

    def merit(self, value: float) -> float:
        """Return a number that is larger for better values."""
        return value if self is Metric.ACCURACY else -value

    def better(self, a: float, b: float) -> bool:
        """Return whether the value a is better than b."""
        return self.merit(a) > self.merit(b)

    def best(self, values: Iterable[float]) -> float:
        """Return the best of several values."""
        return max(values, key=self.merit)


@dataclass(frozen=True)
class Score:
    """Sums over the answers of a batch.

    Args:
        loss: Sum of losses.
        points: Sum of points, see `Metric`.
        count: Number of answers.
    """

    loss: Float[Tensor, ""]
    points: Float[Tensor, ""] | Int[Tensor, ""]
    count: int


class Batch(Protocol):
    """Samples and their targets."""

    @property
    def targets(self) -> Tensor:
        """Targets, one for each answer."""
        ...

    def to(self, device: object) -> Self:
        """Return the batch on another device."""
        ...

    def score(self, model: nn.Module) -> Score:
        """Return the loss and the points of a model's answers."""
        ...


class Task(ABC):
    """Numbered samples, which do not depend on the machine or on the number of processes.

    Subclasses are frozen dataclasses, whose fields are the options of the task.
    """

    @property
    @abstractmethod
    def label(self) -> str:
        """Human-readable name of the task."""

    @property
    @abstractmethod
    def metric(self) -> Metric:
        """Metric of the answers."""

    @property
    @abstractmethod
    def max_length(self) -> int:
        """Length of the longest sequence that a model sees."""

    @abstractmethod
    def build(self, spec: Spec) -> nn.Module:
        """Return a model for this task, freshly initialised."""

    @abstractmethod
    def size(self, split: Split) -> int | None:
        """Return the number of samples in a split; None if it is unlimited."""

    @abstractmethod
    def batch(self, seed: int, split: Split, indices: Sequence[int]) -> Batch:
        """Return the samples with these numbers.

        Numbers of training samples are unlimited: after each epoch the samples repeat in another order.
        """

    @abstractmethod
    def chance_level(self) -> float:
        """Return the metric of the best answer that ignores the data."""

    def data_digest(self) -> str | None:
        """Return the sha256 of the prepared data; None if samples are generated as they are needed."""
        return None


def score_classes(logits: Float[Tensor, "B C"], targets: Int[Tensor, " B"]) -> Score:
    """Return the cross-entropy and the number of correct answers."""
    loss = F.cross_entropy(logits.float(), targets, reduction="sum")
    return Score(loss, (logits.argmax(-1) == targets).sum(), targets.numel())
