"""A trained model, and how well it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from delayssm.lab import checkpoint
from delayssm.lab.run import Run, load
from delayssm.tasks.task import Batch, Split


def initial_model(run: Run) -> nn.Module:
    """The model of a run before its first step."""
    torch.manual_seed(run.seed)
    return run.model.build(run.task.vocab_size, run.task.max_length)


def load_model(directory: Path) -> tuple[nn.Module, Run]:
    """The model of a run with its best weights, ready to answer."""
    run, _ = load(directory)
    model = initial_model(run)
    weights, _ = checkpoint.read(checkpoint.best(directory))
    model.load_state_dict(weights)
    return model.eval(), run


@torch.no_grad()
def answers(model: nn.Module, batch: Batch) -> Tensor:
    """The most likely token at each supervised position, (batch, positions)."""
    found: Tensor = model(batch.tokens, at=batch.positions).argmax(-1)
    return found


@dataclass(frozen=True)
class Accuracy:
    """A share of correct answers, and how many samples it is from."""

    mean: float
    samples: int


def accuracy_by_lag(
    model: nn.Module, run: Run, samples: int, seed: int | None = None, rows_at_once: int = 32
) -> dict[int, Accuracy]:
    """On validation samples of a run, for each lag that occurs. Another seed gives other samples."""
    if samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    right: dict[int, list[float]] = {}
    for first in range(0, samples, rows_at_once):
        indices = range(first, min(first + rows_at_once, samples))
        batch = run.task.batch(run.seed if seed is None else seed, Split.VALIDATION, indices)
        correct = (answers(model, batch) == batch.targets).double().mean(1)
        for position, value in zip(batch.positions[:, 0].tolist(), correct.tolist(), strict=True):
            right.setdefault(position - run.task.data_length, []).append(value)
    return {lag: Accuracy(sum(values) / len(values), len(values)) for lag, values in sorted(right.items())}


def overall(by_lag: Mapping[int, Accuracy]) -> float:
    """The share of correct answers over all lags."""
    return sum(a.mean * a.samples for a in by_lag.values()) / sum(a.samples for a in by_lag.values())
