"""A trained model, and how well it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from delayssm_lab.tasks.delayed import DelayedMemory, Recall
from delayssm_lab.tasks.task import Split
from delayssm_lab.training import checkpoint
from delayssm_lab.training.run import Run, load


def initial_model(run: Run) -> nn.Module:
    """The model of a run before its first step."""
    torch.manual_seed(run.seed)
    return run.build()


def load_model(directory: Path) -> tuple[nn.Module, Run]:
    """The model of a run with its best weights, ready to answer."""
    run, _ = load(directory)
    model = initial_model(run)
    weights, _ = checkpoint.read(checkpoint.best(directory))
    model.load_state_dict(weights)
    return model.eval(), run


@torch.no_grad()
def answers(model: nn.Module, batch: Recall) -> Tensor:
    """The most likely token at each supervised position, (batch, positions)."""
    found: Tensor = model(batch.tokens, at=batch.positions).argmax(-1)
    return found


@torch.no_grad()
def on_test_samples(model: nn.Module, run: Run, samples: int, rows_at_once: int = 32) -> float:
    """The metric on test samples, at most so many."""
    size = run.task.size(Split.TEST)
    if not size:
        raise ValueError(f"{run.task.label} has no test samples")
    points = answers = 0.0
    for first in range(0, min(samples, size), rows_at_once):
        numbers = range(first, min(first + rows_at_once, samples, size))
        found = run.task.batch(run.seed, Split.TEST, numbers).score(model)
        points, answers = points + float(found.points), answers + found.count
    return run.task.metric.of(points / answers)


@dataclass(frozen=True)
class Accuracy:
    """A share of correct answers, and how many samples it is from."""

    mean: float
    samples: int


def accuracy_by_lag(
    model: nn.Module, task: DelayedMemory, samples: int, seed: int, rows_at_once: int = 32
) -> dict[int, Accuracy]:
    """On validation samples of a task, for each lag that occurs. Another seed gives other samples."""
    if samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    right: dict[int, list[float]] = {}
    for first in range(0, samples, rows_at_once):
        indices = range(first, min(first + rows_at_once, samples))
        batch = task.batch(seed, Split.VALIDATION, indices)
        correct = (answers(model, batch) == batch.targets).double().mean(1)
        for position, value in zip(batch.positions[:, 0].tolist(), correct.tolist(), strict=True):
            right.setdefault(position - task.data_length, []).append(value)
    return {lag: Accuracy(sum(values) / len(values), len(values)) for lag, values in sorted(right.items())}


def overall(by_lag: Mapping[int, Accuracy]) -> float:
    """The share of correct answers over all lags."""
    return sum(a.mean * a.samples for a in by_lag.values()) / sum(a.samples for a in by_lag.values())
