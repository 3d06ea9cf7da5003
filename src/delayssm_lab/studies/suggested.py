"""DS4D with delays suggested by training samples, beside other models on the delayed-memory tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import torch

from delayssm.layers.layer import DS4DConfig
from delayssm.suggestion import DelayEvidence, delay_evidence, place_delays
from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.recipes.delayed import SMALL_MEMORIES, TASKS, TaskName, grid, preset
from delayssm_lab.report import figures, page, tables
from delayssm_lab.report.collect import Cell, Results, group
from delayssm_lab.report.drawing import panels, png
from delayssm_lab.studies.contest import Contest, Contests, records_of_all
from delayssm_lab.studies.synthetic import PAPER_SHELF, small_contests
from delayssm_lab.studies.trained import Shelf, Trained, of_this_code, records_of
from delayssm_lab.study import File, Places
from delayssm_lab.tasks.delayed import DelayedMemory
from delayssm_lab.tasks.task import Split
from delayssm_lab.training.run import Run

#: Training samples that delays are suggested from.
SAMPLES = 2048
#: p of the layers with suggested delays, and of those with delays on a grid. For both it is the better of these two
#: values on copying with a variable delay, and the same for all other tasks.
BRANCH_FRACTION, GRID_FRACTION = 0.5, 0.1
#: Shares of the channels with suggested delays, by the label of the model. The rest are on a grid.
LABEL = "DS4D, suggested delays"
SHARES = {LABEL: 0.5, f"{LABEL} only": 1.0}
#: The models with delays on a grid: that of the study of all models, and the one with the other p.
GRID_LABELS = "DS4D", f"DS4D, p {BRANCH_FRACTION:g}"
#: The models that have no delays, as tables call them.
BASELINES = "LSTM", "S4D", "Mamba", "GPT-2", "Llama"
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
    """Return contests for each task, with the same learning rates and seeds as those of all other models.

    The first ones decide p, in the same way for all placements: on copying with a variable delay, suggested delays are
    also run with the grid's p, and the grid with that of suggested delays. If one of them is the better one there,
    `BRANCH_FRACTION` or `GRID_FRACTION` has to change, and with it the runs on all other tasks.
    """
    deciding = preset("copy-variable", "ds4d", "small")
    assert isinstance(deciding.model, StateSpaceSpec)
    other_grid = deciding.model.with_layer(branch_fraction=BRANCH_FRACTION)
    runs = [replace(deciding, model=other_grid, label=GRID_LABELS[1])]
    for label in SHARES:
        other = _suggested(deciding, LAGS["copy-variable"], GRID_FRACTION, label)
        runs.append(replace(other, label=f"{label}, p {GRID_FRACTION:g}"))
        runs += [_suggested(preset(task, "ds4d", "small"), LAGS[task], BRANCH_FRACTION, label) for task in TASKS]
    return tuple(map(Contest, runs))


def paper_runs() -> tuple[Run, ...]:
    """Return copying with a variable delay at the paper's size, with suggested delays."""
    run = preset("copy-variable", "ds4d", "paper")
    run = replace(run, training=replace(run.training, lr=PAPER_RATE))
    return tuple(_suggested(run, PAPER_LAGS, BRANCH_FRACTION, label) for label in SHARES)


def _suggested(run: Run, lags: Sequence[int], branch_fraction: float, label: str) -> Run:
    """Return a run of DS4D with the share of its delays that a label stands for at some lags."""
    assert isinstance(run.model, StateSpaceSpec)
    layer = run.model.layer
    assert isinstance(layer, DS4DConfig)
    delays = place_delays(lags, layer.max_delay, layer.d_model, SHARES[label]).tolist()
    return replace(run, model=run.model.with_layer(delays=delays, branch_fraction=branch_fraction), label=label)


@dataclass(frozen=True)
class SuggestedDelays(Contests):
    """Validation accuracy with suggested delays, and what the suggestions are made from."""

    name = "suggested-delays"
    title = "DS4D with delays suggested by training samples, on the delayed-memory tasks, small scale"

    contests: tuple[Contest, ...] = field(default_factory=suggested_contests)
    others: tuple[Contest, ...] = field(default_factory=small_contests)
    tasks: tuple[DelayedMemory, ...] = tuple(SMALL_MEMORIES.values())
    samples: int = SAMPLES

    def files(self, places: Places) -> Iterable[File]:
        find = of_this_code(places)
        yield "rates.md", self.rates(find).encode()
        yield "evidence.png", self._picture()
        if records := self.records(find):
            results = group([*records, *records_of_all(self.others, find)])
            yield "table.md", table(results).encode()
            yield "margins.md", margins(results, SHARES, GRID_LABELS).encode()
            yield "curves.png", png(figures.learning_curves(results))

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
    shelf: Shelf = PAPER_SHELF
    others: tuple[Run, ...] = field(
        default_factory=lambda: tuple(grid(["copy-variable"], ["ds4d", "s4d"], "paper", [PAPER_RATE]))
    )

    def files(self, places: Places) -> Iterable[File]:
        results = group([*self.records(places), *records_of(self.shelf, self.others, of_this_code(places))])
        yield "table.md", table(results).encode()
        yield "curves.png", png(figures.learning_curves(results))


def table(results: Results) -> str:
    """Return the accuracies, a row for each model."""
    rows = [
        [model, *(page.text_or_blank(results.cells.get((task, model))) for task in results.tasks)]
        for model in results.models
    ]
    return tables.markdown(["model", *results.tasks], rows)


def margins(results: Results, models: Iterable[str], delayed: Sequence[str]) -> str:
    """Return how far some models are ahead of the best of others, with standard errors.

    Args:
        results: Results of all models.
        models: Models to compare with others.
        delayed: Models with delays to compare them with. The others that they are compared with are the baselines.
    """
    baselines = [model for model in results.models if model in BASELINES]
    rows = []
    for task, model in product(results.tasks, models):
        if (cell := results.cells.get((task, model))) is not None:
            compared = [_ahead(cell, task, others, results) for others in (delayed, baselines)]
            rows.append([task, model, page.cell_text(cell), *compared[0], *compared[1]])
    head = ["task", "model", "accuracy", "best with delays alone", "ahead of it by", "best baseline", "ahead of it by"]
    return tables.markdown(head, rows)


def _ahead(cell: Cell, task: str, models: Sequence[str], results: Results) -> tuple[str, str]:
    """Return the best of some models on a task, and how far a cell is ahead of it; nothing if none has run."""
    others = {model: results.cells[task, model] for model in models if (task, model) in results.cells}
    if not others:
        return "", ""
    best = max(others, key=lambda model: others[model].mean)
    return f"{best}, {page.cell_text(others[best])}", _margin(cell, others[best])


def _margin(cell: Cell, other: Cell) -> str:
    """Return the difference of two means with its standard error, if both have several seeds."""
    difference = f"{cell.mean - other.mean:+.2f}"
    if cell.std is None or other.std is None:
        return difference
    error = math.sqrt(cell.std**2 / len(cell.records) + other.std**2 / len(other.records))
    return f"{difference} ± {error:.2f}"
