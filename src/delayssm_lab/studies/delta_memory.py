"""DS4D and S4D with a delta memory in place of their second layer, beside other models on the delayed-memory tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from delayssm.layers.block import BlockConfig
from delayssm.layers.delta_memory import DeltaMemoryConfig
from delayssm.layers.layer import DS4DConfig
from delayssm.suggestion import place_delays
from delayssm_lab.models.specs import StackSpec, StateSpaceSpec
from delayssm_lab.recipes.delayed import TASKS, TaskName, preset
from delayssm_lab.report import figures
from delayssm_lab.report.collect import group
from delayssm_lab.report.drawing import png
from delayssm_lab.studies.contest import Contest, Contests, records_of_all
from delayssm_lab.studies.suggested import (
    BRANCH_FRACTION,
    GRID_LABELS,
    LAGS,
    SHARES,
    margins,
    suggested_contests,
    table,
)
from delayssm_lab.studies.synthetic import small_contests
from delayssm_lab.studies.trained import of_this_code
from delayssm_lab.study import File, Places
from delayssm_lab.training.run import Run

Memory = Literal["s4d", "ds4d", "ds4d-suggested"]
LABELS: dict[Memory, str] = {
    "s4d": "S4D and delta memory",
    "ds4d": "DS4D and delta memory",
    "ds4d-suggested": "DS4D and delta memory, suggested delays",
}
#: Widths for copying and for sums, and heads of the memory, at which the models have as many parameters as all others.
#: DS4D keeps its widths.
WIDTHS: dict[Memory, tuple[int, int]] = {"s4d": (37, 65), "ds4d": (35, 62), "ds4d-suggested": (35, 62)}
HEADS = 2, 4


def memory_contests() -> tuple[Contest, ...]:
    """Return a contest for each model with a memory and each task; S4D tells what delays add to a memory.

    The memory is the second layer, of two for copying and of three for sums. First trials on the sum with a variable
    delay, one seed and 2,000 steps, had it in all three places, and the second was the best.
    """
    return tuple(Contest(_with_memory(task, model)) for model in LABELS for task in TASKS)


def _with_memory(task: TaskName, model: Memory) -> Run:
    run = preset(task, "s4d" if model == "s4d" else "ds4d", "small")
    assert isinstance(run.model, StateSpaceSpec)
    size = 0 if task.startswith("copy") else 1
    layer = replace(run.model.layer, d_model=WIDTHS[model][size])
    if model == "ds4d-suggested":
        assert isinstance(layer, DS4DConfig)
        delays = place_delays(LAGS[task], layer.max_delay, layer.d_model, share=1.0).tolist()
        layer = replace(layer, delays=delays, branch_fraction=BRANCH_FRACTION)
    first, *rest = (BlockConfig(layer=layer) for _ in range(run.model.depth - 1))
    blocks = first, BlockConfig(layer=DeltaMemoryConfig(layer.d_model, heads=HEADS[size])), *rest
    return replace(run, model=StackSpec(blocks=blocks, family=LABELS[model]), label=LABELS[model])


@dataclass(frozen=True)
class WithDeltaMemory(Contests):
    """Validation accuracy of models with a delta memory, beside all others on the same tasks."""

    name = "delta-memory"
    title = "DS4D and S4D with a delta memory, on the delayed-memory tasks, small scale"

    contests: tuple[Contest, ...] = field(default_factory=memory_contests)
    others: tuple[Contest, ...] = field(default_factory=lambda: (*small_contests(), *suggested_contests()))

    def files(self, places: Places) -> Iterable[File]:
        find = of_this_code(places)
        yield "rates.md", self.rates(find).encode()
        if records := self.records(find):
            results = group([*records, *records_of_all(self.others, find)])
            yield "table.md", table(results).encode()
            yield "margins.md", margins(results, LABELS.values(), (*GRID_LABELS, *SHARES)).encode()
            yield "curves.png", png(figures.learning_curves(group(records)))
