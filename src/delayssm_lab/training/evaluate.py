"""Loading and evaluation of trained models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from delayssm_lab.tasks.delayed import DelayedMemory
from delayssm_lab.tasks.task import Batch, Split, Task
from delayssm_lab.training import checkpoint
from delayssm_lab.training.directory import check_loaded, check_model
from delayssm_lab.training.run import Run


def best_model(directory: Path, run: Run) -> nn.Module:
    """Return the model of the run in a directory with its best weights, in evaluation mode."""
    path = checkpoint.best(directory)
    saved = checkpoint.read_best(path, run)  # first, because it tells if this is not the run of the files
    check_loaded(directory, run, check_model)
    return checkpoint.model_with(saved, run, path)


@dataclass(frozen=True)
class Totals:
    """Sums over answers.

    Args:
        loss: Sum of losses.
        points: Sum of points, see `Metric`.
        answers: Number of answers.
    """

    loss: float = 0.0
    points: float = 0.0
    answers: float = 0.0


@torch.no_grad()
def evaluate(model: nn.Module, batches: Iterable[Batch]) -> Totals:
    """Return the sums of loss and points of a model over batches, in evaluation mode."""
    model.eval()
    loss = points = answers = 0.0
    for batch in batches:
        score = batch.score(model)
        loss, points = loss + float(score.loss), points + float(score.points)
        answers += score.count
    return Totals(loss, points, answers)


def batches(task: Task, seed: int, split: Split, indices: Sequence[int], rows_at_once: int = 32) -> Iterator[Batch]:
    """Yield the samples with these numbers in batches of at most `rows_at_once`."""
    for first in range(0, len(indices), rows_at_once):
        yield task.batch(seed, split, indices[first : first + rows_at_once])


def available(task: Task, split: Split, count: int | None) -> int:
    """Return the number of samples of a split, but at most `count`; None means all."""
    size = task.size(split)
    if count is None and size is None:
        raise ValueError(f"{task.label} has unlimited samples; set validation_size")
    return min(n for n in (count, size) if n is not None)


def measure(model: nn.Module, task: Task, split: Split, count: int, seed: int) -> float:
    """Return the metric of a model on the first `count` samples of a split, or on all of them if there are fewer."""
    if count < 1:
        raise ValueError(f"samples must be at least 1, not {count}")
    indices = range(available(task, split, count))
    if not indices:
        raise ValueError(f"{task.label} has no {split.name.lower()} samples")
    totals = evaluate(model, batches(task, seed, split, indices))
    return task.metric.of(totals.points / totals.answers)


@dataclass(frozen=True)
class Accuracy:
    """Accuracy over a number of samples.

    Args:
        mean: Share of correct answers.
        samples: Number of samples.
    """

    mean: float
    samples: int


def accuracy_by_lag(model: nn.Module, task: DelayedMemory, samples: int, seed: int) -> dict[int, Accuracy]:
    """Return the accuracy for each lag that occurs in the first validation samples of a seed."""
    if samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    indices_by_lag: dict[int, list[int]] = {}
    for index in range(samples):
        indices_by_lag.setdefault(task.lag(seed, Split.VALIDATION, index), []).append(index)
    accuracies = {}
    for lag, indices in sorted(indices_by_lag.items()):
        totals = evaluate(model, batches(task, seed, Split.VALIDATION, indices))
        accuracies[lag] = Accuracy(totals.points / totals.answers, len(indices))
    return accuracies
