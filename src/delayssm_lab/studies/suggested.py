"""DS4D with delays suggested by training samples, beside all other models on the delayed-memory tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch

from delayssm.layers.layer import DS4DConfig
from delayssm.suggestion import DelayEvidence, delay_evidence, place_delays
from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.recipes.delayed import SMALL_MEMORIES, TASKS, TaskName, preset
from delayssm_lab.report import figures, page, tables
from delayssm_lab.report.collect import Results, group
from delayssm_lab.report.drawing import panels, png
from delayssm_lab.studies.contest import SMALL, Contest
from delayssm_lab.studies.synthetic import Synthetic, small_contests
from delayssm_lab.studies.trained import of_this_code, records_of
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


def evidence(task: DelayedMemory, samples: int = SAMPLES) -> DelayEvidence:
    """Return what the first training samples of a task say about delays."""
    batch = task.batch(0, Split.TRAIN, range(samples))
    targets = torch.full_like(batch.tokens, -1).scatter(1, batch.positions, batch.targets)
    return delay_evidence(batch.tokens, targets, task.max_length)


def suggested_contests() -> tuple[Contest, ...]:
    """Return a contest for each task, with the same learning rates and seeds as those of all other models.

    The first one decides p: it is the paper's branch fraction on copying with a variable delay.
    """
    paper = Contest(_suggested("copy-variable", 0.1, f"{LABEL}, p 0.1"))
    return paper, *(Contest(_suggested(task, BRANCH_FRACTION, LABEL)) for task in TASKS)


def _suggested(task: TaskName, branch_fraction: float, label: str) -> Run:
    run = preset(task, "ds4d", "small")
    assert isinstance(run.model, StateSpaceSpec)
    layer = run.model.layer
    assert isinstance(layer, DS4DConfig)
    delays = place_delays(LAGS[task], layer.max_delay, layer.d_model).tolist()
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
        yield "curves.png", png(figures.learning_curves(results))
        yield "evidence.png", self._picture()

    def _picture(self) -> bytes:
        """Return the scores of all lags for each task."""
        figure, axes = panels(len(self.tasks), width=4.4, height=2.6)
        for axis, task in zip(axes, self.tasks, strict=True):
            evidence(task, self.samples).draw(axis)
            axis.set_title(task.label)
        return png(figure)


def _table(results: Results) -> str:
    """Return the accuracies, a row for each model."""
    cells = {key: page.cell_text(cell) for key, cell in results.cells.items()}
    rows = [[model, *(cells.get((task, model), "") for task in results.tasks)] for model in results.models]
    return tables.markdown(["model", *results.tasks], rows)
