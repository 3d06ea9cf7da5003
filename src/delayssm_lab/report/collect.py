"""Results of many runs, grouped by task and model."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from delayssm_lab.recipes import general, recall
from delayssm_lab.tasks.language import FilmReviews
from delayssm_lab.tasks.task import Task
from delayssm_lab.training.record import Record, of_directory
from delayssm_lab.training.run import Run, leaves, to_json

#: Order of the columns and rows of tables; other names follow in alphabetical order.
TASK_ORDER = [
    *(f"{name}, {lag} delay" for name in ("Copy", "Sum", "Weighted sum") for lag in ("fixed", "variable")),
    *(run.task.label for run in general.PAPER.values()),
    *(task.label for task in recall.TASKS.values()),
    FilmReviews.label,
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
        left_out: Reasons why runs cannot be shown, by their directory.
    """

    records: list[Record]
    tasks: dict[str, Task]
    models: list[str]
    cells: dict[tuple[str, str], Cell]
    unstarted: list[Path]
    left_out: dict[Path, str]

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
    records: list[Record] = []
    unstarted: list[Path] = []
    left_out: dict[Path, str] = {}
    for directory in run_directories(paths):
        try:
            record = of_directory(directory)
        except (ValueError, OSError, ImportError) as error:
            left_out[directory] = str(error)
        else:
            if record is None:
                unstarted.append(directory)
            else:
                records.append(record)
    if not records:
        waiting = [f"{directory} has not been evaluated yet" for directory in unstarted]
        reasons = "".join(f"; {reason}" for reason in (*left_out.values(), *waiting))
        raise ValueError(f"none of these runs has an evaluation that can be shown{reasons}")
    return group(records, unstarted, left_out)


def group(
    records: Sequence[Record], unstarted: Sequence[Path] = (), left_out: Mapping[Path, str] | None = None
) -> Results:
    """Group runs by task and model, and choose the best learning rate of each.

    Only the rates with the most seeds are compared, so that one lucky seed of another rate does not count as its mean.
    Runs that differ in more than learning rate and seed are different tasks or models, and are labelled as such.
    """
    labels = _labels([(record.run.task.label, record.run.task) for record in records])
    tasks = {label: record.run.task for label, record in zip(labels, records, strict=True)}
    groups: dict[tuple[str, str], dict[float, list[Record]]] = {}
    families: dict[str, str] = {}
    for task in tasks:
        members = [record for label, record in zip(labels, records, strict=True) if label == task]
        models = _labels([(record.run.model_label, _variant(record.run)) for record in members])
        for model, record in zip(models, members, strict=True):
            families[model] = record.run.model_label
            groups.setdefault((task, model), {}).setdefault(record.run.training.lr, []).append(record)
    cells = {}
    for key, by_rate in groups.items():
        most = max(map(len, by_rate.values()))
        means = {
            lr: statistics.fmean(record.best for record in seeds) for lr, seeds in by_rate.items() if len(seeds) == most
        }
        best = max(means, key=lambda lr: tasks[key[0]].metric.merit(means[lr]))
        cells[key] = Cell(tuple(sorted(by_rate[best], key=lambda record: record.run.seed)), tuple(sorted(by_rate)))
    ordered_models = sorted(families, key=lambda model: (_position(MODEL_ORDER, families[model]), model))
    ordered = sorted(tasks, key=lambda label: (_position(TASK_ORDER, tasks[label].label), label))
    return Results(
        list(records),
        {label: tasks[label] for label in ordered},
        ordered_models,
        cells,
        list(unstarted),
        dict(left_out or {}),
    )


def _variant(run: Run) -> Run:
    """Return a run with the learning rate and the seed of all others, and without the label that names it anyway."""
    return replace(run, seed=0, label="", training=replace(run.training, lr=1.0))


def _labels(named: Sequence[tuple[str, object]]) -> list[str]:
    """Return a label for each value, which tells it from other values of the same name by the settings that differ."""
    settings = [dict(leaves(to_json(value))) for _, value in named]
    labels = []
    for (name, _), own in zip(named, settings, strict=True):
        others = [other for (same, _), other in zip(named, settings, strict=True) if same == name]
        differing = [key for key in own if any(other.get(key) != own[key] for other in others)]
        values: dict[str, list[str]] = {}
        for key in differing:
            words = [word for word in key.split(".") if not word.isdigit()]
            values.setdefault(words[-1], []).append(str(own[key]))
        labels.append(", ".join([name, *(f"{word} {' '.join(texts)}" for word, texts in values.items())]))
    return labels


def _position(order: list[str], name: str) -> tuple[int, str]:
    return (order.index(name) if name in order else len(order)), name
