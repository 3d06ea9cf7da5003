"""Tasks on recorded data: each sample is a sequence, or two, and has one answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
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
from delayssm_lab.tasks.task import Batch, Metric, Score, Split, classified

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Classified:
    """Sequences of tokens or values, and the class of each."""

    x: Int[Tensor, "B L"] | Float[Tensor, "B L F"]
    lengths: Int[Tensor, " B"] | None
    targets: Int[Tensor, " B"]

    def to(self, device: object) -> Classified:
        """The same on another device."""
        return Classified(*_moved(device, self.x, self.lengths, self.targets))  # type: ignore[arg-type]

    def score(self, model: nn.Module) -> Score:
        """Cross-entropy, and right answers."""
        return classified(model(self.x, self.lengths), self.targets)


class Labelled(ABC):
    """A task on prepared data. Subclasses are frozen dataclasses.

    Training samples come in epochs, each in another order; validation and test samples have one order for all runs.
    """

    @property
    @abstractmethod
    def label(self) -> str:
        """For people."""

    @property
    @abstractmethod
    def data(self) -> str:
        """The name of the data set."""

    @property
    @abstractmethod
    def max_length(self) -> int:
        """Positions that a model sees at most."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Numbers in an answer."""

    @property
    def metric(self) -> Metric:
        """How good answers are."""
        return Metric.ACCURACY

    @property
    def pooling(self) -> Pooling:
        """How an answer is read from the outputs at all times."""
        return "mean"

    @abstractmethod
    def inputs(self, width: int) -> Tokens | Values:
        """The first layer of a model."""

    @abstractmethod
    def split(self, split: Split) -> Numbers:
        """The rows of the data that are in a split, by a rule that depends on nothing else."""

    @abstractmethod
    def targets(self, split: Split) -> NDArray[np.generic]:
        """What should be said, for each row of a split."""

    @abstractmethod
    def take(self, split: Split, rows: Numbers) -> Batch:
        """Some rows of the data of a split."""

    def build(self, spec: Spec) -> nn.Module:
        """A model for this task, freshly initialised."""
        return self.pooled(spec, self.outputs)

    def pooled(self, spec: Spec, outputs: int | None) -> PooledModel:
        """A model of one sequence."""
        if not isinstance(spec, StateSpaceSpec):
            raise ValueError(f"{self.label} is a task for DS4D and S4D; a {spec.family} here answers to tokens only")
        return PooledModel(
            self.inputs(spec.d_model),
            spec.backbone(),
            outputs,
            self.pooling,
            spec.block.norm if spec.block.prenorm else None,
        )

    def size(self, split: Split) -> int:
        """How many samples there are."""
        return len(_rows(self, split, data_root()))

    def batch(self, seed: int, split: Split, indices: Sequence[int]) -> Batch:
        """The samples with these numbers; those of training begin again after the last, in another order."""
        rows, numbers = _rows(self, split, data_root()), np.asarray(indices, np.int64)
        if split is Split.TRAIN:
            epochs, places = np.divmod(numbers, len(rows))
            orders = {epoch: _shuffled(len(rows), seed, epoch) for epoch in set(epochs.tolist())}
            numbers = np.array([orders[e][p] for e, p in zip(epochs.tolist(), places.tolist(), strict=True)])
        return self.take(split, rows[numbers])

    def guess(self) -> float:
        """What one answer for all gets: accuracy of the most frequent class, of the test samples."""
        counts = np.unique(self.targets(Split.TEST), return_counts=True)[1]
        return float(counts.max() / counts.sum())

    def prepared(self) -> Prepared:
        """The data; an error that says what to do if it is not there."""
        return _prepared(self.data, data_root())


@lru_cache(maxsize=16)
def _prepared(name: str, place: Path) -> Prepared:
    return load(name)


@lru_cache(maxsize=64)
def _rows(task: Labelled, split: Split, place: Path) -> Numbers:
    rows = task.split(split)
    if split is not Split.TRAIN:  # so that the first few are a fair sample of all
        rows = rows[_shuffled(len(rows), 0, 0)]
    if not len(rows):
        raise ValueError(f"{task.label}: there are no {split.name.lower()} samples in the data that are prepared here")
    return rows


@lru_cache(maxsize=4)
def _shuffled(count: int, *key: int) -> Numbers:
    """Numbers below count, in an order for each key, which are two numbers."""
    return np.random.Generator(np.random.Philox(key=key)).permutation(count)


def shares(count: int, *parts: float) -> list[Numbers]:
    """Numbers below count, shuffled and cut into parts of these shares; the last takes what is left."""
    ends = np.rint(np.cumsum(parts[:-1]) * count).astype(np.int64)
    return np.split(_shuffled(count, 0, count), ends)


def padded(
    flat: NDArray[np.uint8], offsets: NDArray[np.int64], rows: Numbers, longest: int, end: int
) -> tuple[Int[Tensor, "B L"], Int[Tensor, " B"]]:
    """Rows of different lengths as tokens padded with 0, and their lengths.

    Each is cut to `longest` - 1 tokens and closed by the token `end`.
    """
    lengths = np.minimum(offsets[rows + 1] - offsets[rows], longest - 1) + 1
    tokens = np.zeros((len(rows), int(lengths.max())), np.int64)
    for i, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        tokens[i, : length - 1] = flat[offsets[row] : offsets[row] + length - 1]
        tokens[i, length - 1] = end
    return torch.from_numpy(tokens), torch.from_numpy(lengths)


def _moved(device: object, *tensors: Tensor | None) -> list[Tensor | None]:
    return [None if t is None else t.to(device) for t in tensors]  # type: ignore[call-overload]
