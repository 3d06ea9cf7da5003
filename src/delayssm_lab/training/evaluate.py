"""Trained models, and how well they do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from delayssm_lab.tasks.delayed import DelayedMemory
from delayssm_lab.tasks.task import Batch, Split, Task
from delayssm_lab.training import checkpoint
from delayssm_lab.training.run import Run, load


def load_model(directory: Path) -> tuple[nn.Module, Run]:
    """Return the model of a run with its best weights, in evaluation mode, and the run."""
    run, _ = load(directory)
    model = run.initial_model()
    weights, _ = checkpoint.read(checkpoint.best(directory))
    model.load_state_dict(weights)
    return model.eval(), run


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


def batches(task: Task, seed: int, split: Split, numbers: Sequence[int], rows_at_once: int = 32) -> Iterator[Batch]:
    """Yield the samples with these numbers, a few at a time."""
    for first in range(0, len(numbers), rows_at_once):
        yield task.batch(seed, split, numbers[first : first + rows_at_once])


def measure(model: nn.Module, task: Task, split: Split, count: int, seed: int) -> float:
    """Return the metric of a model on the first `count` samples of a split, or on all if there are fewer."""
    if count < 1:
        raise ValueError(f"samples must be at least 1, not {count}")
    size = task.size(split)
    if size == 0:
        raise ValueError(f"{task.label} has no {split.name.lower()} samples")
    numbers = range(count if size is None else min(count, size))
    totals = evaluate(model, batches(task, seed, split, numbers))
    return task.metric.of(totals.points / totals.answers)


@dataclass(frozen=True)
class Accuracy:
    """A share of correct answers, and the number of samples that it is from."""

    mean: float
    samples: int


def accuracy_by_lag(model: nn.Module, task: DelayedMemory, samples: int, seed: int) -> dict[int, Accuracy]:
    """Return the accuracy on validation samples for each lag that occurs. Another seed gives other samples."""
    if samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    numbers: dict[int, list[int]] = {}
    for number in range(samples):
        numbers.setdefault(task.lag(seed, Split.VALIDATION, number), []).append(number)
    by_lag = {}
    for lag, chosen in sorted(numbers.items()):
        totals = evaluate(model, batches(task, seed, Split.VALIDATION, chosen))
        by_lag[lag] = Accuracy(totals.points / totals.answers, len(chosen))
    return by_lag
