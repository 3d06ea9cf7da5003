"""All models on the delayed-memory tasks: figure `synthetic-learning-curves`, table `synthetic-acc`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from delayssm_lab.recipes.delayed import TASKS, ModelName, grid, preset
from delayssm_lab.report import page, reported, tables
from delayssm_lab.report.collect import Results, group
from delayssm_lab.studies.contest import Contest, Contests
from delayssm_lab.studies.trained import Shelf, Trained, every_run, of_this_code
from delayssm_lab.study import File, Places
from delayssm_lab.training.run import Run

#: Models, cheap ones first.
MODELS: tuple[ModelName, ...] = ("ds4d", "s4d", "lstm", "gpt2", "llama", "mamba")


def small_contests() -> tuple[Contest, ...]:
    """Return a contest for each model and task."""
    return tuple(Contest(preset(task, model, "small")) for model in MODELS for task in TASKS)


@dataclass(frozen=True)
class Synthetic(Contests):
    """Validation accuracy of all models at small scale, beside that which the paper reports."""

    name = "synthetic"
    title = (
        "Six models on six delayed-memory tasks, small scale (table synthetic-acc, figure synthetic-learning-curves)"
    )

    contests: tuple[Contest, ...] = field(default_factory=small_contests)

    def files(self, places: Places) -> Iterable[File]:
        find = of_this_code(places)
        yield "rates.md", self.rates(find).encode()
        if records := self.records(find):
            results = group(records)
            yield from page.contents(results).items()
            yield "table.md", comparison(results, "small run").encode()


def paper_runs() -> tuple[Run, ...]:
    """Return the runs at the paper's size, the most informative first, for machines that do not have time for all."""
    rate = (1e-3,)
    return (
        *grid(["copy-fixed"], ["ds4d", "s4d"], "paper", rate, (0, 1, 2)),
        *grid(["copy-variable"], ["ds4d", "s4d"], "paper", rate),
        *grid(["copy-fixed"], ["ds4d-narrow"], "paper", rate),
    )


#: Each of these runs takes long.
PAPER_SHELF = Shelf("paper", every_run)


@dataclass(frozen=True)
class PaperScale(Trained):
    """Copying at the paper's size, which a CPU can train."""

    name = "copy-at-paper-scale"
    title = "Copying at the paper's size (table synthetic-acc, first two columns)"

    runs: tuple[Run, ...] = field(default_factory=paper_runs)
    shelf: Shelf = PAPER_SHELF

    def files(self, places: Places) -> Iterable[File]:
        results = self.collected(places)
        yield from page.contents(results).items()
        yield "table.md", comparison(results, "full-size run").encode()


def comparison(results: Results, source: str) -> str:
    """Return a table of best validation accuracies with those of the paper below them; `source` names the runs."""
    rows = []
    for model in results.models:
        cells = (page.text_or_blank(results.cells.get((task, model))) for task in results.tasks)
        rows.append([f"{model}, {source}", *cells])
        if model in reported.SYNTHETIC:
            by_task = dict(zip(reported.TASKS, reported.SYNTHETIC[model], strict=True))
            numbers = (by_task[task] for task in results.tasks)
            rows.append([f"{model}, paper", *(f"{mean:.2f} ± {deviation:.2f}" for mean, deviation in numbers)])
    return tables.markdown(["model", *results.tasks], rows)
