"""DS4D and S4D on the general benchmarks at small scale: table `general-seq`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import get_args

from delayssm_lab.recipes.general import BENCHMARKS, SMALL, StateSpaceName, small
from delayssm_lab.report import figures, reported, tables
from delayssm_lab.report.collect import Cell, Results
from delayssm_lab.report.drawing import png
from delayssm_lab.studies.trained import Shelf, Trained
from delayssm_lab.study import File, Places
from delayssm_lab.tasks.task import Metric, Task
from delayssm_lab.training.run import Run

GENERAL = Shelf("general")


def small_runs() -> tuple[Run, ...]:
    """Return the small runs of both models, with the same budget."""
    return tuple(small(name, model) for name in BENCHMARKS for model in get_args(StateSpaceName))


@dataclass(frozen=True)
class General(Trained):
    """Test results of both models beside those that the paper reports at full scale."""

    name = "general"
    title = "DS4D and S4D on the general benchmarks, small scale (table general-seq)"

    runs: tuple[Run, ...] = field(default_factory=small_runs)
    shelf: Shelf = GENERAL

    def files(self, places: Places) -> Iterable[File]:
        results = self.collected(places)
        yield "table.md", comparison(results).encode()
        yield "curves.png", png(figures.learning_curves(results))


def comparison(results: Results) -> str:
    """Return a table of test results with the chance level, the results of the paper, and what differs from it."""
    differs = {reduced.task.label: reduced.differs for reduced in SMALL.values()}
    models = [model for model in ("S4D", "DS4D") if model in results.models]
    rows = []
    for label, task in results.tasks.items():
        our_results = (metric_text(task, results.cells.get((label, model))) for model in models)
        paper_results = (reported.GENERAL[model][label] for model in models)
        times = [_minutes(results.cells.get((label, "DS4D"))), f"{reported.HOURS[label]:g}"]
        values = _value_text(task, task.chance_level()), *our_results, *paper_results, *times, differs[label]
        rows.append([row_label(task), *values])
    sources = [f"{model}, {source}" for source in ("small run", "paper") for model in models]
    times = ["DS4D, small run, minutes", "DS4D, paper, hours"]
    return tables.markdown(["task", "chance level", *sources, *times, "differs from the paper's run"], rows)


def _minutes(cell: Cell | None) -> str:
    """Return the mean time of the runs of a cell in minutes."""
    seconds = [] if cell is None else [r.summary["seconds"] for r in cell.records if r.summary is not None]
    return f"{statistics.fmean(seconds) / 60:.0f}" if seconds else "–"


def row_label(task: Task) -> str:
    """Return the label of a task with the unit of its metric."""
    return f"{task.label}, {'%' if task.metric is Metric.ACCURACY else 'RMSE'}"


def metric_text(task: Task, cell: Cell | None) -> str:
    """Return the test metric, mean ± standard deviation where there are several seeds; a dash without runs."""
    if cell is None:
        return "–"
    values = [record.summary[f"test_{task.metric.value}"] for record in cell.records if record.summary is not None]
    deviation = f" ± {_value_text(task, statistics.stdev(values))}" if len(values) > 1 else ""
    return f"{_value_text(task, statistics.fmean(values))}{deviation}"


def _value_text(task: Task, value: float) -> str:
    return f"{100 * value:.2f}" if task.metric is Metric.ACCURACY else f"{value:.3f}"
