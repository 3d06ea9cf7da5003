"""Runs and what they say together."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from delayssm_lab.recipes import general
from delayssm_lab.training.run import AnyTask, Run, load
from delayssm_lab.training.trainer import Summary, read_metrics, read_summary

#: The order of columns and rows; others follow.
TASK_ORDER = [
    *(f"{name}, {lag} delay" for name in ("Copy", "Sum", "Weighted sum") for lag in ("fixed", "variable")),
    *(run.task.label for run in general.PAPER.values()),
]
MODEL_ORDER = ["LSTM", "S4D", "Mamba", "DS4D narrow", "DS4D", "GPT-2", "Llama"]


@dataclass(frozen=True)
class Record:
    """One run as its directory shows it."""

    directory: Path
    run: Run
    environment: dict[str, str]
    metrics: list[dict[str, float]]
    summary: Summary | None

    @property
    def finished(self) -> bool:
        """Whether it has come to its end."""
        return self.summary is not None

    @property
    def best(self) -> float:
        """The best evaluation so far."""
        return self.run.task.metric.best(value for _, value in self.curve())

    def curve(self) -> list[tuple[int, float]]:
        """Steps, and what evaluations came to."""
        return [(int(entry["step"]), entry[self.run.task.metric.value]) for entry in self.metrics]


@dataclass(frozen=True)
class Cell:
    """One model on one task with the learning rate that served it best: a run for each seed."""

    records: tuple[Record, ...]
    tried: tuple[float, ...]

    @property
    def lr(self) -> float:
        """The learning rate."""
        return self.records[0].run.training.lr

    @property
    def finished(self) -> bool:
        """Whether all of its runs are."""
        return all(record.finished for record in self.records)

    @cached_property
    def mean(self) -> float:
        """Of the best evaluations."""
        return statistics.fmean(record.best for record in self.records)

    @cached_property
    def std(self) -> float | None:
        """Of the best evaluations; None for a single seed."""
        return statistics.stdev(record.best for record in self.records) if len(self.records) > 1 else None


@dataclass(frozen=True)
class Results:
    """All runs, and cells by task and model."""

    records: list[Record]
    tasks: dict[str, AnyTask]
    models: list[str]
    cells: dict[tuple[str, str], Cell]
    unstarted: list[Path]

    def ranked(self, task: str, place: int) -> set[str]:
        """The models that are first (0) or second (1) on a task; those equal in two digits share a place."""
        rounded = {model: round(cell.mean, 2) for (name, model), cell in self.cells.items() if name == task}
        values = sorted(set(rounded.values()), key=self.tasks[task].metric.merit, reverse=True)
        return {m for m, value in rounded.items() if place < len(values) and value == values[place]}


def find(paths: Iterable[Path]) -> list[Path]:
    """Directories of runs: those given, and those inside them."""
    found = []
    for path in paths:
        inside = [path] if (path / "config.json").exists() else sorted(p.parent for p in path.glob("*/config.json"))
        if not inside:
            raise FileNotFoundError(f"there are no runs in {path}: no config.json in it or in a directory inside it")
        found += inside
    return found


def collect(paths: Sequence[Path]) -> Results:
    """Read runs and put them in order."""
    groups: dict[tuple[str, str], dict[float, list[Record]]] = {}
    tasks: dict[str, AnyTask] = {}
    records, unstarted = [], []
    for directory in find(paths):
        run, environment = load(directory)
        metrics = read_metrics(directory)
        if not metrics:
            unstarted.append(directory)
            continue
        known = tasks.setdefault(run.task.label, run.task)
        if known != run.task:
            raise ValueError(f"{directory} and others have different tasks under one name; report them apart")
        record = Record(directory, run, environment, metrics, read_summary(directory))
        records.append(record)
        key = run.task.label, run.model_label
        groups.setdefault(key, {}).setdefault(run.training.lr, []).append(record)
    if not groups:
        raise ValueError("none of these runs has been evaluated yet; train them first")
    cells = {}
    for key, by_rate in groups.items():
        means = {lr: statistics.fmean(record.best for record in found) for lr, found in by_rate.items()}
        rate = max(means, key=lambda lr: tasks[key[0]].metric.merit(means[lr]))
        cells[key] = Cell(tuple(sorted(by_rate[rate], key=lambda r: r.run.seed)), tuple(sorted(by_rate)))
    models = sorted({model for _, model in cells}, key=lambda m: _place(MODEL_ORDER, m))
    ordered = {label: tasks[label] for label in sorted(tasks, key=lambda t: _place(TASK_ORDER, t))}
    return Results(records, ordered, models, cells, unstarted)


def _place(order: list[str], name: str) -> tuple[int, str]:
    return (order.index(name) if name in order else len(order)), name
