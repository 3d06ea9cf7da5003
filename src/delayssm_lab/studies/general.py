"""DS4D and S4D on the general benchmarks, in small: table `general-seq`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from delayssm_lab.recipes.general import BENCHMARKS, BenchmarkName, mini
from delayssm_lab.report import figures, tables
from delayssm_lab.report.collect import Cell, Results
from delayssm_lab.report.drawing import png
from delayssm_lab.report.page import facts
from delayssm_lab.studies import paper
from delayssm_lab.studies.study import File
from delayssm_lab.studies.trained import Trained, adopt
from delayssm_lab.tasks.task import Metric
from delayssm_lab.training.run import AnyTask, Run

#: Two seeds; the others have one.
TWICE: tuple[BenchmarkName, ...] = ("smnist", "bidmc-hr", "text")


def mini_runs() -> tuple[Run, ...]:
    """Both models on all benchmarks, the same budget and seeds; in the order in which they are wanted."""
    first = [replace(mini(name, model), seed=0) for name in BENCHMARKS for model in ("ds4d", "s4d")]
    again = [replace(mini(name, model), seed=1) for name in TWICE for model in ("ds4d", "s4d")]
    return (*first, *again)


@dataclass(frozen=True)
class General(Trained):
    """Runs of both models."""

    name = "general"
    title = "DS4D and S4D on the general benchmarks, mini scale (table general-seq)"

    runs: tuple[Run, ...] = field(default_factory=mini_runs)
    root: str = "general"

    def adopt(self, out: Path, work: Path) -> None:
        adopt(self.runs, out / "runs.json", work / self.root)

    def files(self, work: Path) -> Iterable[File]:
        results = self.found(work)
        yield "table.md", comparison(results).encode()
        yield from evidence(results)


def comparison(results: Results) -> str:
    """Test results, ours beside what guessing gets and beside the paper's at full scale."""
    head = ["task", "without looking", "S4D, mini", "DS4D, mini", "S4D, paper, full scale", "DS4D, paper, full scale"]
    rows = []
    for label, task in results.tasks.items():
        mine = [tested(task, results.cells.get((label, model))) for model in ("S4D", "DS4D")]
        rows.append([heading(task), _shown(task, task.guess()), *mine, *paper.GENERAL[label]])
    return tables.markdown(head, rows)


def heading(task: AnyTask) -> str:
    """Of a row: the task, and what is counted."""
    return f"{task.label}, {'%' if task.metric is Metric.ACCURACY else 'RMSE'}"


def tested(task: AnyTask, cell: Cell | None) -> str:
    """The mean over seeds on test samples, and the standard deviation where there are several."""
    if cell is None:
        return "not run"
    values = [record.summary[f"test_{task.metric.value}"] for record in cell.records if record.summary is not None]
    spread = f" ± {_shown(task, statistics.stdev(values))}" if len(values) > 1 else ""
    return f"{_shown(task, statistics.fmean(values))}{spread}"


def evidence(results: Results) -> Iterable[File]:
    """Learning curves, and all there is to know of the runs but their weights."""
    yield "curves.png", png(figures.curves(results))
    yield "runs.json", facts(results)


def _shown(task: AnyTask, value: float) -> str:
    return f"{100 * value:.2f}" if task.metric is Metric.ACCURACY else f"{value:.3f}"
