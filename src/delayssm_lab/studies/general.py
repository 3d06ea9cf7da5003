"""DS4D and S4D on the general benchmarks at mini scale: table `general-seq`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from delayssm_lab.recipes.general import BENCHMARKS, MINI, BenchmarkName, mini
from delayssm_lab.report import figures, reported, tables
from delayssm_lab.report.collect import Cell, Results
from delayssm_lab.report.drawing import png
from delayssm_lab.report.page import runs_json
from delayssm_lab.studies.trained import Trained, adopt
from delayssm_lab.study import File
from delayssm_lab.tasks.task import Metric
from delayssm_lab.training.run import AnyTask, Run

#: Benchmarks that are run with two seeds; the others have one.
TWO_SEEDS: tuple[BenchmarkName, ...] = ("smnist", "bidmc-hr", "text")


def mini_runs() -> tuple[Run, ...]:
    """Return the mini runs of both models, with the same budget and seeds; all first seeds come first."""
    first = [replace(mini(name, model), seed=0) for name in BENCHMARKS for model in ("ds4d", "s4d")]
    second = [replace(mini(name, model), seed=1) for name in TWO_SEEDS for model in ("ds4d", "s4d")]
    return (*first, *second)


@dataclass(frozen=True)
class General(Trained):
    """Test results of both models beside those that the paper reports at full scale."""

    name = "general"
    title = "DS4D and S4D on the general benchmarks, mini scale (table general-seq)"

    runs: tuple[Run, ...] = field(default_factory=mini_runs)
    root: str = "general"

    def adopt(self, out: Path, work: Path) -> None:
        adopt(self.runs, out / "runs.json", work / self.root)

    def files(self, work: Path) -> Iterable[File]:
        results = self.collected(work)
        yield "table.md", comparison(results).encode()
        yield from run_files(results)


def comparison(results: Results) -> str:
    """Return a table of test results with the chance level, the results of the paper, and what differs from it."""
    differs = {small.task.label: small.differs for small in MINI.values()}
    models = [model for model in ("S4D", "DS4D") if model in results.models]
    rows = []
    for label, task in results.tasks.items():
        mini_results = (metric_text(task, results.cells.get((label, model))) for model in models)
        paper_results = (reported.GENERAL[model][label] for model in models)
        rows.append(
            [row_label(task), _value_text(task, task.chance_level()), *mini_results, *paper_results, differs[label]]
        )
    sources = [f"{model}, {source}" for source in ("mini run", "paper") for model in models]
    return tables.markdown(["task", "chance level", *sources, "differs from the paper's run"], rows)


def row_label(task: AnyTask) -> str:
    """Return the label of a task with the unit of its metric."""
    return f"{task.label}, {'%' if task.metric is Metric.ACCURACY else 'RMSE'}"


def metric_text(task: AnyTask, cell: Cell | None) -> str:
    """Return the test metric, mean ± standard deviation where there are several seeds; a dash without runs."""
    if cell is None:
        return "–"
    values = [record.summary[f"test_{task.metric.value}"] for record in cell.records if record.summary is not None]
    deviation = f" ± {_value_text(task, statistics.stdev(values))}" if len(values) > 1 else ""
    return f"{_value_text(task, statistics.fmean(values))}{deviation}"


def run_files(results: Results) -> Iterable[File]:
    """Yield the learning curves, and the settings and evaluations of all runs."""
    yield "curves.png", png(figures.learning_curves(results))
    yield "runs.json", runs_json(results)


def _value_text(task: AnyTask, value: float) -> str:
    return f"{100 * value:.2f}" if task.metric is Metric.ACCURACY else f"{value:.3f}"
