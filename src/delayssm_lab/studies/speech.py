"""What the delayed branch does to models of spoken words: branch fraction, phase and shared dynamics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.recipes.general import BenchmarkName, small
from delayssm_lab.report import tables
from delayssm_lab.studies.general import GENERAL, metric_text, row_label
from delayssm_lab.studies.trained import Shelf, Trained
from delayssm_lab.study import File, Places
from delayssm_lab.training.run import Run

SEEDS = (0, 1, 2)
#: Options of the layer that differ from the small run, by the label of the model. The small runs of both models have
#: shared dynamics; DS4D has p = 0.1 and phase pi.
VARIANTS: dict[str, dict[str, Any]] = {
    "DS4D": {},
    "DS4D, p 0.015": {"branch_fraction": 0.015},
    "DS4D, phase 0": {"phase": 0.0},
    "DS4D, p 0.015, phase 0": {"branch_fraction": 0.015, "phase": 0.0},
    "DS4D, p 0.001 to 0.3": {"branch_fraction": (0.001, 0.3)},
    "DS4D, p 0.001 to 0.3, phase 0": {"branch_fraction": (0.001, 0.3), "phase": 0.0},
    "DS4D, dynamics per channel": {"n_ssm": None},
    "DS4D, p 0.015, phase 0, dynamics per channel": {"branch_fraction": 0.015, "phase": 0.0, "n_ssm": None},
}
#: Variants that are also run on SC (Bi.).
BOTH = "DS4D", "DS4D, p 0.015, phase 0"


def small_runs() -> tuple[Run, ...]:
    """Return all variants on SC (AR), some on SC (Bi.), and S4D, with three seeds; all first seeds come first."""
    runs = []
    for seed in SEEDS:
        for label, options in VARIANTS.items():
            names: tuple[BenchmarkName, ...] = ("sc-ar", "sc-bi") if label in BOTH else ("sc-ar",)
            runs += [_variant(small(name, "ds4d"), label, options, seed) for name in names]
        runs += [replace(small(name, "s4d"), seed=seed) for name in ("sc-ar", "sc-bi")]
        runs.append(_variant(small("sc-ar", "s4d"), "S4D, dynamics per channel", {"n_ssm": None}, seed))
        slow = small("sc-ar", "ds4d")
        faster = replace(slow, training=replace(slow.training, dt_lr=1e-3), label="DS4D, step sizes at 1e-3", seed=seed)
        runs.append(faster)
    return tuple(runs)


def _variant(run: Run, label: str, options: dict[str, Any], seed: int) -> Run:
    assert isinstance(run.model, StateSpaceSpec)
    named = "" if not options else label  # the first seeds of the small runs themselves are those of `general`
    return replace(run, model=run.model.with_layer(**options), label=named, seed=seed)


@dataclass(frozen=True)
class Speech(Trained):
    """Test accuracies of variants of DS4D on Speech Commands, beside S4D."""

    name = "speech"
    title = "Branch fraction, phase and shared dynamics on spoken words (Speech Commands, small scale)"

    runs: tuple[Run, ...] = field(default_factory=small_runs)
    shelf: Shelf = GENERAL

    def files(self, places: Places) -> Iterable[File]:
        results = self.collected(places)
        order = [label for label in dict.fromkeys(run.model_label for run in self.runs) if label in results.models]
        rows = [
            [label, *(metric_text(task, results.cells.get((name, label))) for name, task in results.tasks.items())]
            for label in order
        ]
        head = ["model", *(row_label(task) for task in results.tasks.values())]
        yield "table.md", tables.markdown(head, rows).encode()
