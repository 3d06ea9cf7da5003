"""Base of the tasks on prepared data: each sample is one sequence, or two, with one answer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from delayssm.layers.inputs import Tokens, Values
from delayssm.models.pooled import PooledModel, Pooling
from delayssm_lab.data.catalogue import load
from delayssm_lab.data.prepared.location import data_root
from delayssm_lab.data.prepared.reader import Prepared
from delayssm_lab.models.specs import Spec, StateSpaceSpec
from delayssm_lab.tasks.task import Batch, Metric, Score, Split, Task, score_classes

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class ClassificationBatch:
    """Sequences of tokens or values, and the class of each."""

    x: Int[Tensor, "B L"] | Float[Tensor, "B L F"]
    lengths: Int[Tensor, " B"] | None
    targets: Int[Tensor, " B"]

    def to(self, device: object) -> ClassificationBatch:
        """Return the batch on another device."""
        tensors = (self.x, self.lengths, self.targets)
        return ClassificationBatch(*(None if t is None else t.to(device) for t in tensors))  # type: ignore[arg-type,call-overload]

    def score(self, model: nn.Module) -> Score:
        """Return the cross-entropy and the number of correct answers."""
        return score_classes(model(self.x, self.lengths), self.targets)


class LabelledTask(Task):
    """Base of the tasks on prepared data. Subclasses are frozen dataclasses.

    Training samples are in a new order in every epoch. Validation and test samples have one order for all runs.
    """

    @property
    @abstractmethod
    def data(self) -> str:
        """Name of the data set."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Number of outputs of a model: classes, or values to regress."""

    @property
    def metric(self) -> Metric:
        """Metric of the answers."""
        return Metric.ACCURACY

    @property
    def pooling(self) -> Pooling:
        """Pooling over time before the head of a model."""
        return "mean"

    @abstractmethod
    def inputs(self, width: int) -> Tokens | Values:
        """Return the input layer of a model."""

    @abstractmethod
    def split(self, split: Split) -> Indices:
        """Return the rows of the prepared data that belong to a split. They do not depend on the seed of a run."""

    @abstractmethod
    def targets(self, split: Split) -> NDArray[np.generic]:
        """Return the target of each row of a split."""

    @abstractmethod
    def take(self, split: Split, rows: Indices) -> Batch:
        """Return rows of the prepared data of a split as a batch."""

    def build(self, spec: Spec) -> nn.Module:
        """Return a model for this task, freshly initialised."""
        return self.pooled(spec, self.outputs)

    def pooled(self, spec: Spec, outputs: int | None) -> PooledModel:
        """Return a model of one sequence, freshly initialised; without a head if `outputs` is None."""
        if not isinstance(spec, StateSpaceSpec):
            raise ValueError(
                f"{self.label} is a task for DS4D and S4D; {spec.family} is available for tasks on delayed memory only"
            )
        return PooledModel(
            self.inputs(spec.d_model),
            spec.backbone(),
            outputs,
            self.pooling,
            spec.block.norm if spec.block.prenorm else None,
        )

    def size(self, split: Split) -> int:
        """Return the number of samples in a split."""
        return len(_rows(self, split, data_root()))

    def batch(self, seed: int, split: Split, indices: Sequence[int]) -> Batch:
        """Return the samples with these numbers. Training samples repeat after each epoch in another order."""
        rows, numbers = _rows(self, split, data_root()), np.asarray(indices, np.int64)
        return self.take(split, rows[in_epochs(numbers, len(rows), seed) if split is Split.TRAIN else numbers])

    def chance_level(self) -> float:
        """Return the accuracy of always answering with the most frequent class of the test samples."""
        counts = np.unique(self.targets(Split.TEST), return_counts=True)[1]
        return float(counts.max() / counts.sum())

    def data_digest(self) -> str:
        """Return the sha256 of the prepared data."""
        return self.prepared().digest

    def prepared(self) -> Prepared:
        """Return the prepared data. If it is missing, the error states the command that prepares it."""
        return prepared(self.data, data_root())


# The location of the data is an argument of the cached functions, because the environment can change it.
@lru_cache(maxsize=16)
def prepared(name: str, root: Path) -> Prepared:
    """Return a prepared data set. If it is missing, the error states the command that prepares it."""
    return load(name)


@lru_cache(maxsize=64)
def _rows(task: LabelledTask, split: Split, root: Path) -> Indices:
    rows = task.split(split)
    if split is not Split.TRAIN:  # shuffled, so that the first few are a fair sample of all
        rows = rows[permutation(len(rows), 0, 0)]
    if not len(rows):
        raise ValueError(f"the prepared data of {task.label} has no {split.name.lower()} samples; prepare more of it")
    return rows


@lru_cache(maxsize=4)
def permutation(count: int, *key: int) -> Indices:
    """Return the numbers below `count` in an order that depends on the key of two numbers."""
    return np.random.Generator(np.random.Philox(key=key)).permutation(count)


def in_epochs(numbers: Indices, count: int, seed: int) -> Indices:
    """Return which of `count` rows each training sample is, by its number: all rows once in every epoch, reordered."""
    epochs, positions = np.divmod(numbers, count)
    orders = {epoch: permutation(count, seed, epoch) for epoch in set(epochs.tolist())}
    return np.array([orders[e][p] for e, p in zip(epochs.tolist(), positions.tolist(), strict=True)])


def split_shares(count: int, *shares: float) -> list[Indices]:
    """Shuffle the numbers below `count` and split them into these shares. The last one takes the remainder."""
    ends = np.rint(np.cumsum(shares[:-1]) * count).astype(np.int64)
    return np.split(permutation(count, 0, count), ends)


def pad_rows(
    flat: NDArray[np.uint8], offsets: NDArray[np.int64], rows: Indices, max_length: int, end: int
) -> tuple[Int[Tensor, "B L"], Int[Tensor, " B"]]:
    """Return rows of different lengths as tokens padded with 0, and their lengths.

    Each row is cut to `max_length` - 1 tokens and followed by the token `end`.
    """
    lengths = np.minimum(offsets[rows + 1] - offsets[rows], max_length - 1) + 1
    tokens = np.zeros((len(rows), int(lengths.max())), np.int64)
    for i, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        tokens[i, : length - 1] = flat[offsets[row] : offsets[row] + length - 1]
        tokens[i, length - 1] = end
    return torch.from_numpy(tokens), torch.from_numpy(lengths)
