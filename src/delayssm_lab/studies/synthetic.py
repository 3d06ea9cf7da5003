"""All models on the delayed-memory tasks: figure `synthetic-learning-curves`, table `synthetic-acc`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from delayssm_lab.recipes.delayed import TASKS, ModelName, grid
from delayssm_lab.report import page, reported, tables
from delayssm_lab.report.collect import Cell, Results
from delayssm_lab.studies.trained import Trained
from delayssm_lab.study import File
from delayssm_lab.training.run import Run


def mini_runs() -> tuple[Run, ...]:
    """Return the mini runs with two learning rates, that of the preset and 1e-3.

    DS4D and S4D have three seeds, the others one. The most informative runs come first, for machines that do not have
    the time for all.
    """
    state_space: tuple[ModelName, ...] = ("ds4d", "s4d")
    plan: tuple[tuple[tuple[ModelName, ...], int, tuple[float, ...] | None], ...] = (
        (state_space, 0, None),
        (("lstm",), 0, (1e-3,)),
        (("gpt2", "mamba", "llama"), 0, (1e-3,)),
        (state_space, 1, None),
        (state_space, 2, None),
        (state_space, 0, (1e-3,)),
        (("lstm", "gpt2", "mamba", "llama"), 0, None),
        (state_space, 1, (1e-3,)),
        (state_space, 2, (1e-3,)),
    )
    return tuple(run for models, seed, rates in plan for run in grid(TASKS, models, "mini", rates, (seed,)))


def paper_runs() -> tuple[Run, ...]:
    """Return the runs at the paper's size that copy over a fixed delay."""
    return tuple(grid(["copy-fixed"], ["ds4d", "ds4d-narrow", "s4d"], "paper"))


@dataclass(frozen=True)
class Synthetic(Trained):
    """Validation accuracy of all models beside that which the paper reports."""

    name = "synthetic"
    title = "Six models on six delayed-memory tasks, mini scale (table synthetic-acc, figure synthetic-learning-curves)"
    #: Name of the runs in the table.
    source: ClassVar[str] = "mini run"

    runs: tuple[Run, ...] = field(default_factory=mini_runs)
    root: str = "mini"

    def files(self, work: Path) -> Iterable[File]:
        results = self.collected(work)
        yield from page.contents(results).items()
        yield "table.md", comparison(results, self.source).encode()


@dataclass(frozen=True)
class PaperCopy(Synthetic):
    """Copying over a fixed delay at the paper's size, which a CPU can train."""

    name = "copy-at-paper-scale"
    title = "Copying over a fixed delay at the paper's size (table synthetic-acc, first column)"
    source = "full-size run"

    runs: tuple[Run, ...] = field(default_factory=paper_runs)
    root: str = "paper"


def comparison(results: Results, source: str) -> str:
    """Return a table of best validation accuracies with those of the paper below them; `source` names the runs."""
    rows = []
    for model in results.models:
        cells = (_cell_text(results.cells.get((task, model))) for task in results.tasks)
        rows.append([f"{model}, {source}", *cells])
        if model in reported.SYNTHETIC:
            by_task = dict(zip(reported.TASKS, reported.SYNTHETIC[model], strict=True))
            numbers = (by_task[task] for task in results.tasks)
            rows.append([f"{model}, paper", *(f"{mean:.2f} ± {deviation:.2f}" for mean, deviation in numbers)])
    return tables.markdown(["model", *results.tasks], rows)


def _cell_text(cell: Cell | None) -> str:
    """Return the accuracy with the number of seeds and of learning rates that were tried."""
    if cell is None:
        return page.cell_text(cell)
    seeds, rates = len(cell.records), len(cell.learning_rates)
    return f"{page.cell_text(cell)} ({seeds} {'seed' if seeds == 1 else 'seeds'}, {rates} lr)"
