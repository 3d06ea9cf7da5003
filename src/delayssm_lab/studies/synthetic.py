"""All models on the delayed-memory tasks: figure `synthetic-learning-curves`, table `synthetic-acc`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from delayssm_lab.recipes.delayed import TASKS, ModelName, grid, preset
from delayssm_lab.report import page, reported, tables
from delayssm_lab.report.collect import Cell, Results, group
from delayssm_lab.studies.contest import Contest, hold
from delayssm_lab.studies.trained import (
    Finder,
    Shelf,
    Trained,
    every_run,
    last_made,
    of_any_code,
    of_this_code,
    records_of,
    total_seconds,
)
from delayssm_lab.study import File, Places, Study
from delayssm_lab.training.record import Record
from delayssm_lab.training.run import Run

#: Models, cheap ones first.
MODELS: tuple[ModelName, ...] = ("ds4d", "s4d", "lstm", "gpt2", "llama", "mamba")


def small_contests() -> tuple[Contest, ...]:
    """Return a contest for each model and task."""
    return tuple(Contest(preset(task, model, "small")) for model in MODELS for task in TASKS)


@dataclass(frozen=True)
class Synthetic(Study):
    """Validation accuracy of all models at small scale, beside that which the paper reports."""

    name = "synthetic"
    title = (
        "Six models on six delayed-memory tasks, small scale (table synthetic-acc, figure synthetic-learning-curves)"
    )

    contests: tuple[Contest, ...] = field(default_factory=small_contests)

    def progress(self, places: Places) -> tuple[int, int]:
        find = of_any_code(places)
        done = len(self._screening(find)) + len(self._finals(find))
        return done, sum(len(contest.screening(find)) + len(contest.seeds) for contest in self.contests)

    def run(self, places: Places) -> None:
        for model in dict.fromkeys(contest.run.model_label for contest in self.contests):
            hold([contest for contest in self.contests if contest.run.model_label == model], places)

    def files(self, places: Places) -> Iterable[File]:
        find = of_this_code(places)
        yield "rates.md", self._rates(find).encode()
        if finals := self._finals(find):
            results = group(finals)
            yield from page.contents(results).items()
            yield "table.md", comparison(results, "small run").encode()

    def seconds(self, places: Places) -> float:
        return total_seconds(self._records(places))

    def made(self, places: Places) -> tuple[str, dict[str, str]]:
        return last_made(self._records(places))

    def _records(self, places: Places) -> list[Record]:
        find = of_this_code(places)
        return [*self._screening(find), *self._finals(find)]

    def _screening(self, find: Finder) -> list[Record]:
        return [
            record
            for contest in self.contests
            for record in records_of(contest.short_shelf, contest.screening(find), find)
        ]

    def _finals(self, find: Finder) -> list[Record]:
        return [
            record
            for contest in self.contests
            for record in records_of(contest.whole_shelf, contest.finals(find), find)
        ]

    def _rates(self, find: Finder) -> str:
        """Return a table of the best metrics in the screening; bold ones are at the rates that were chosen."""
        results = group(self._screening(find))
        chosen = {_place(run) for contest in self.contests for run in contest.finals(find)[:1]}
        texts = {_place(record.run): f"{record.best:.2f}" for record in results.records}
        cells = {place: f"**{text}**" if place in chosen else text for place, text in texts.items()}
        rows = []
        for model in results.models:
            for rate in sorted({rate for other, rate, _ in cells if other == model}):
                row = (cells.get((model, rate, task), "") for task in results.tasks)
                rows.append([model, f"{rate:g}", *row])
        return tables.markdown(["model", "learning rate", *results.tasks], rows)


def _place(run: Run) -> tuple[str, float, str]:
    """Return the row and column of a run in the table of learning rates."""
    return run.model_label, run.training.lr, run.task.label


def paper_runs() -> tuple[Run, ...]:
    """Return the runs at the paper's size, the most informative first, for machines that do not have time for all."""
    rate = (1e-3,)
    return (
        *grid(["copy-fixed"], ["ds4d", "s4d"], "paper", rate, (0, 1, 2)),
        *grid(["copy-variable"], ["ds4d", "s4d"], "paper", rate),
        *grid(["copy-fixed"], ["ds4d-narrow"], "paper", rate),
    )


#: Each of these runs takes long.
PAPER = Shelf("paper", every_run)


@dataclass(frozen=True)
class PaperScale(Trained):
    """Copying at the paper's size, which a CPU can train."""

    name = "copy-at-paper-scale"
    title = "Copying at the paper's size (table synthetic-acc, first two columns)"

    runs: tuple[Run, ...] = field(default_factory=paper_runs)
    shelf: Shelf = PAPER

    def files(self, places: Places) -> Iterable[File]:
        results = self.collected(places)
        yield from page.contents(results).items()
        yield "table.md", comparison(results, "full-size run").encode()


def comparison(results: Results, source: str) -> str:
    """Return a table of best validation accuracies with those of the paper below them; `source` names the runs."""
    rows = []
    for model in results.models:
        cells = (cell_text(results.cells.get((task, model))) for task in results.tasks)
        rows.append([f"{model}, {source}", *cells])
        if model in reported.SYNTHETIC:
            by_task = dict(zip(reported.TASKS, reported.SYNTHETIC[model], strict=True))
            numbers = (by_task[task] for task in results.tasks)
            rows.append([f"{model}, paper", *(f"{mean:.2f} ± {deviation:.2f}" for mean, deviation in numbers)])
    return tables.markdown(["model", *results.tasks], rows)


def cell_text(cell: Cell | None) -> str:
    """Return mean ± standard deviation over seeds, without the latter if there is one seed; nothing without any."""
    return "" if cell is None else page.cell_text(cell)
