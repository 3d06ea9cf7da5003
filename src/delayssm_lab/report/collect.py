"""Results of many runs, grouped by task and model."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from delayssm_lab.recipes import general
from delayssm_lab.training.record import Record, of_directory
from delayssm_lab.training.run import AnyTask

#: Order of the columns and rows of tables; other names follow in alphabetical order.
TASK_ORDER = [
    *(f"{name}, {lag} delay" for name in ("Copy", "Sum", "Weighted sum") for lag in ("fixed", "variable")),
    *(run.task.label for run in general.PAPER.values()),
]
MODEL_ORDER = ["LSTM", "S4D", "Mamba", "DS4D narrow", "DS4D", "GPT-2", "Llama"]


@dataclass(frozen=True)
class Cell:
    """One model on one task: the runs with the best learning rate, one for each seed.

    Args:
        records: Runs in the order of their seeds.
        learning_rates: All learning rates that were tried.
    """

    records: tuple[Record, ...]
    learning_rates: tuple[float, ...]

    @property
    def lr(self) -> float:
        """Best learning rate."""
        return self.records[0].run.training.lr

    @property
    def finished(self) -> bool:
        """Whether all runs have ended."""
        return all(record.finished for record in self.records)

    @cached_property
    def mean(self) -> float:
        """Mean over seeds of the best validation metric."""
        return statistics.fmean(record.best for record in self.records)

    @cached_property
    def std(self) -> float | None:
        """Standard deviation over seeds of the best validation metric; None for a single seed."""
        return statistics.stdev(record.best for record in self.records) if len(self.records) > 1 else None


@dataclass(frozen=True)
class Results:
    """All runs, and their cells by task and model.

    Args:
        records: Runs that have been evaluated at least once.
        tasks: Tasks by label, in the order of tables.
        models: Labels of models, in the order of tables.
        cells: Cells by the labels of task and model.
        unstarted: Directories of runs without an evaluation.
    """

    records: list[Record]
    tasks: dict[str, AnyTask]
    models: list[str]
    cells: dict[tuple[str, str], Cell]
    unstarted: list[Path]

    def ranked(self, task: str, rank: int) -> set[str]:
        """Return the models that are best (rank 0) or second (rank 1) on a task; equal in two digits is a tie."""
        rounded = {model: round(cell.mean, 2) for (name, model), cell in self.cells.items() if name == task}
        values = sorted(set(rounded.values()), key=self.tasks[task].metric.merit, reverse=True)
        return {model for model, value in rounded.items() if rank < len(values) and value == values[rank]}


def run_directories(paths: Iterable[Path]) -> list[Path]:
    """Return the directories of runs among the paths and their subdirectories."""
    directories = []
    for path in paths:
        inside = [path] if (path / "config.json").exists() else sorted(p.parent for p in path.glob("*/config.json"))
        if not inside:
            raise FileNotFoundError(f"there are no runs in {path}: no config.json in it or in its subdirectories")
        directories += inside
    return directories


def collect(paths: Sequence[Path]) -> Results:
    """Read all runs in the paths and choose the best learning rate of each model on each task."""
    made = {directory: of_directory(directory) for directory in run_directories(paths)}
    records = [record for record in made.values() if record is not None]
    if not records:
        raise ValueError("none of these runs has been evaluated yet; train them first")
    return group(records, [directory for directory, record in made.items() if record is None])


def group(records: Sequence[Record], unstarted: Sequence[Path] = ()) -> Results:
    """Group runs by task and model, and choose the best learning rate of each."""
    groups: dict[tuple[str, str], dict[float, list[Record]]] = {}
    tasks: dict[str, AnyTask] = {}
    for record in records:
        run = record.run
        if tasks.setdefault(run.task.label, run.task) != run.task:
            raise ValueError(
                f"the task {run.task.label!r} of {run.name} has other settings than in the runs before it; "
                "report them separately"
            )
        key = run.task.label, run.model_label
        groups.setdefault(key, {}).setdefault(run.training.lr, []).append(record)
    cells = {}
    for key, by_rate in groups.items():
        means = {lr: statistics.fmean(record.best for record in seeds) for lr, seeds in by_rate.items()}
        best = max(means, key=lambda lr: tasks[key[0]].metric.merit(means[lr]))
        cells[key] = Cell(tuple(sorted(by_rate[best], key=lambda record: record.run.seed)), tuple(sorted(by_rate)))
    models = sorted({model for _, model in cells}, key=lambda model: _position(MODEL_ORDER, model))
    ordered = {label: tasks[label] for label in sorted(tasks, key=lambda label: _position(TASK_ORDER, label))}
    return Results(list(records), ordered, models, cells, list(unstarted))


def _position(order: list[str], name: str) -> tuple[int, str]:
    return (order.index(name) if name in order else len(order)), name
