"""The runs that studies need, trained if they are not there. They are kept by name, so studies share them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from delayssm.lab import training
from delayssm.lab.presets import TASKS, ModelName, preset
from delayssm.lab.run import Run
from delayssm.lab.sweep import sweep
from delayssm.lab.training import Summary


def one_of_each_task(model: ModelName) -> tuple[Run, ...]:
    """A model on all six tasks at mini scale."""
    return tuple(preset(task, model, "mini") for task in TASKS)


def train(runs: Sequence[Run], root: Path) -> None:
    """Finish runs; an error if one fails, after the others."""
    failed = [outcome for outcome in sweep(runs, root) if outcome.error]
    if failed:
        raise RuntimeError("; ".join(map(str, failed)))


def finished(runs: Sequence[Run], root: Path) -> list[Summary]:
    """Summaries of those that are."""
    found = (training.read_summary(root / run.name) for run in runs)
    return [summary for summary in found if summary is not None]
