"""DS4D with delays suggested by training samples, beside other models on the delayed-memory tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch

from delayssm.layers.layer import DS4DConfig
from delayssm.suggestion import DelayEvidence, delay_evidence, place_delays
from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.recipes.delayed import SMALL_MEMORIES, TASKS, TaskName, grid, preset
from delayssm_lab.report import figures, page, tables
from delayssm_lab.report.collect import Cell, Results, group
from delayssm_lab.report.drawing import panels, png
from delayssm_lab.studies.contest import SMALL, Contest
from delayssm_lab.studies.synthetic import PAPER, Synthetic, small_contests
from delayssm_lab.studies.trained import Shelf, Trained, of_this_code, records_of
from delayssm_lab.study import File, Places
from delayssm_lab.tasks.delayed import DelayedMemory
from delayssm_lab.tasks.task import Split
from delayssm_lab.training.run import Run

#: Training samples that delays are suggested from.
SAMPLES = 2048
#: p of the layers. It was chosen by copying with a variable delay, and is the same for all tasks.
BRANCH_FRACTION = 0.5
LABEL = "DS4D, suggested delays"
#: What `evidence` finds for each task at small scale, the clearest lag first. A test finds it again.
LAGS: dict[TaskName, tuple[int, ...]] = {
    "copy-fixed": (264,),
    "copy-variable": (254, 264, 255, 261, 263, 262, 260, 258, 257, 259, 256),
    "sum-fixed": (264, 268),
    "sum-variable": (11, 134, 136, 135, 133, 4, 137, 132, 5),
    "weighted-sum-fixed": (264, 268),
    "weighted-sum-variable": (11, 4, 7, 136, 134, 135, 133, 5, 137, 132),
}

#: What `evidence` finds in 512 samples of copying with a variable delay at the paper's size.
PAPER_LAGS = 1048, 1056, 1050, 1053, 1049, 1055, 1052, 1051, 1054, 1047, 1046
#: Learning rate of the runs at the paper's size.
PAPER_RATE = 1e-3


def evidence(task: DelayedMemory, samples: int = SAMPLES) -> DelayEvidence:
    """Return what the first training samples of a task say about delays."""
    batch = task.batch(0, Split.TRAIN, range(samples))
    targets = torch.full_like(batch.tokens, -1).scatter(1, batch.positions, batch.targets)
    return delay_evidence(batch.tokens, targets, task.max_length)


def suggested_contests() -> tuple[Contest, ...]:
    """Return a contest for each task, with the same learning rates and seeds as those of all other models.

    The first one decides p: it is the paper's branch fraction on copying with a variable delay.
    """
    settings: list[tuple[TaskName, float, str]] = [("copy-variable", 0.1, f"{LABEL}, p 0.1")]
    settings += [(task, BRANCH_FRACTION, LABEL) for task in TASKS]
    return tuple(
        Contest(_suggested(preset(task, "ds4d", "small"), LAGS[task], p, label)) for task, p, label in settings
    )


def paper_runs() -> tuple[Run, ...]:
    """Return copying with a variable delay at the paper's size, with suggested delays."""
    run = preset("copy-variable", "ds4d", "paper")
    run = replace(run, training=replace(run.training, lr=PAPER_RATE))
    return (_suggested(run, PAPER_LAGS, BRANCH_FRACTION, LABEL),)


def _suggested(run: Run, lags: Sequence[int], branch_fraction: float, label: str) -> Run:
    """Return a run of DS4D with half of its delays at some lags."""
    assert isinstance(run.model, StateSpaceSpec)
    layer = run.model.layer
    assert isinstance(layer, DS4DConfig)
    delays = place_delays(lags, layer.max_delay, layer.d_model).tolist()
    return replace(run, model=run.model.with_layer(delays=delays, branch_fraction=branch_fraction), label=label)


@dataclass(frozen=True)
class SuggestedDelays(Synthetic):
    """Validation accuracy with suggested delays, and what the suggestions are made from."""

    name = "suggested-delays"
    title = "DS4D with delays suggested by training samples, on the delayed-memory tasks, small scale"

    contests: tuple[Contest, ...] = field(default_factory=suggested_contests)
    others: tuple[Contest, ...] = field(default_factory=small_contests)
    tasks: tuple[DelayedMemory, ...] = tuple(SMALL_MEMORIES.values())
    samples: int = SAMPLES

    def files(self, places: Places) -> Iterable[File]:
        find = of_this_code(places)
        others = [run for contest in self.others for run in contest.finals(find)]
        results = group([*self._finals(find), *records_of(SMALL, others, find)])
        yield "rates.md", self._rates(find).encode()
        yield "table.md", _table(results).encode()
        yield "margins.md", margins(results).encode()
        yield "curves.png", png(figures.learning_curves(results))
        yield "evidence.png", self._picture()

    def _picture(self) -> bytes:
        """Return the scores of all lags for each task."""
        figure, axes = panels(len(self.tasks), width=3.4, height=2.4)
        for axis, task in zip(axes, self.tasks, strict=True):
            evidence(task, self.samples).draw(axis)
            axis.set_title(task.label)
        return png(figure)


@dataclass(frozen=True)
class SuggestedAtPaperScale(Trained):
    """Validation accuracy with suggested delays at the paper's size, beside DS4D on a grid and S4D."""

    name = "suggested-at-paper-scale"
    title = "DS4D with suggested delays, copying with a variable delay at the paper's size"

    runs: tuple[Run, ...] = field(default_factory=paper_runs)
    shelf: Shelf = PAPER
    others: tuple[Run, ...] = field(
        default_factory=lambda: tuple(grid(["copy-variable"], ["ds4d", "s4d"], "paper", [PAPER_RATE]))
    )

    def files(self, places: Places) -> Iterable[File]:
        results = group([*self.records(places), *records_of(self.shelf, self.others, of_this_code(places))])
        yield "table.md", _table(results).encode()
        yield "curves.png", png(figures.learning_curves(results))


def _table(results: Results) -> str:
    """Return the accuracies, a row for each model."""
    cells = {key: page.cell_text(cell) for key, cell in results.cells.items()}
    rows = [[model, *(cells.get((task, model), "") for task in results.tasks)] for model in results.models]
    return tables.markdown(["model", *results.tasks], rows)


def margins(results: Results) -> str:
    """Return how far suggested delays are ahead of the grid and of the best baseline, with standard errors."""
    baselines = [model for model in results.models if not model.startswith("DS4D")]
    rows = []
    for task in results.tasks:
        suggested, grid = (results.cells.get((task, model)) for model in (LABEL, "DS4D"))
        others = {model: results.cells[task, model] for model in baselines if (task, model) in results.cells}
        if suggested is None:
            continue
        row = [task, page.cell_text(suggested), "" if grid is None else _margin(suggested, grid)]
        if others:
            best = max(others, key=lambda model: others[model].mean)
            row += [f"{best}, {page.cell_text(others[best])}", _margin(suggested, others[best])]
        rows.append([*row, *[""] * (5 - len(row))])
    return tables.markdown(
        ["task", "suggested delays", "ahead of the grid by", "best baseline", "ahead of it by"], rows
    )


def _margin(cell: Cell, other: Cell) -> str:
    """Return the difference of two means with its standard error, if both have several seeds."""
    difference = f"{cell.mean - other.mean:+.2f}"
    if cell.std is None or other.std is None:
        return difference
    error = math.sqrt(cell.std**2 / len(cell.records) + other.std**2 / len(other.records))
    return f"{difference} ± {error:.2f}"
