"""All models on the delayed-memory tasks: figure `synthetic-learning-curves`, table `synthetic-acc`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from delayssm_lab.recipes.delayed import TASKS, ModelName, preset
from delayssm_lab.report import page, tables
from delayssm_lab.report.collect import Cell, Results
from delayssm_lab.studies import paper
from delayssm_lab.studies.study import File
from delayssm_lab.studies.trained import Trained
from delayssm_lab.training.run import Run

BASELINES: tuple[ModelName, ...] = ("lstm", "gpt2", "mamba", "llama")


def mini_runs() -> tuple[Run, ...]:
    """Two learning rates: that of the preset, and 1e-3. Three seeds for DS4D and S4D, one for the others.

    The order is that in which they are wanted, for machines that do not come to the end.
    """
    return (
        *_grid(("ds4d", "s4d"), (0,), None),
        *_grid(("lstm",), (0,), 1e-3),
        *_grid(("gpt2", "mamba", "llama"), (0,), 1e-3),
        *_grid(("ds4d", "s4d"), (1, 2), None),
        *_grid(("ds4d", "s4d"), (0,), 1e-3),
        *_grid(BASELINES, (0,), None),
        *_grid(("ds4d", "s4d"), (1, 2), 1e-3),
    )


def paper_runs() -> tuple[Run, ...]:
    """Copying over a fixed delay at the paper's size."""
    models: tuple[ModelName, ...] = ("ds4d", "ds4d-narrow", "s4d")
    return tuple(preset("copy-fixed", model, "paper") for model in models)


@dataclass(frozen=True)
class Synthetic(Trained):
    """Runs of all models, in the order in which they are wanted."""

    name = "synthetic"
    title = "Six models on six tasks, mini scale (table synthetic-acc, figure synthetic-learning-curves)"

    runs: tuple[Run, ...] = field(default_factory=mini_runs)
    root: str = "mini"

    def files(self, work: Path) -> Iterable[File]:
        results = self.found(work)
        yield from page.contents(results).items()
        yield "table.md", comparison(results, self.runs).encode()


@dataclass(frozen=True)
class PaperCopy(Synthetic):
    """The same at the paper's size, for the task that a CPU can finish."""

    name = "copy-at-paper-scale"
    title = "Copying over a fixed delay at the paper's size (table synthetic-acc, first column)"

    runs: tuple[Run, ...] = field(default_factory=paper_runs)
    root: str = "paper"


def comparison(results: Results, planned: Iterable[Run]) -> str:
    """Ours above the paper's; models that are planned and have no run yet come last."""
    rows = []
    for model in dict.fromkeys([*results.models, *(run.model_label for run in planned)]):
        rows.append([model, "ours", *(_words(results.cells.get((task, model))) for task in results.tasks)])
        if model in paper.SYNTHETIC:
            reported = dict(zip(paper.TASKS, paper.SYNTHETIC[model], strict=True))
            rows.append(["", "paper", *(f"{reported[t][0]:.2f} ± {reported[t][1]:.2f}" for t in results.tasks)])
    return tables.markdown(["model", "", *results.tasks], rows)


def _words(cell: Cell | None) -> str:
    """The accuracy, and what it is from."""
    if cell is None:
        return "not run"
    seeds, rates = len(cell.records), len(cell.tried)
    return f"{page.words(cell)} ({seeds} {'seed' if seeds == 1 else 'seeds'}, {rates} lr)"


def _grid(models: Iterable[ModelName], seeds: Iterable[int], lr: float | None) -> Iterable[Run]:
    for seed in seeds:
        for task in TASKS:
            for model in models:
                run = preset(task, model, "mini")
                yield replace(run, seed=seed, training=replace(run.training, lr=lr or run.training.lr))
