"""What it does that step sizes and dynamics of state-space layers have learning rates of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from delayssm_lab.recipes.delayed import ModelName, preset
from delayssm_lab.report import page, tables
from delayssm_lab.studies.contest import SEEDS, SMALL_SHELF
from delayssm_lab.studies.trained import Shelf, Trained
from delayssm_lab.study import File, Places
from delayssm_lab.training.run import Run

#: The best learning rate of both models on every task.
RATE = 4e-3
#: Settings of training that differ from those of the table, by the model and its label. There, S4D has step sizes and
#: dynamics at 1e-3, the rule of S4, and DS4D has step sizes at 1e-4, the paper's.
VARIANTS: dict[tuple[ModelName, str], dict[str, Any]] = {
    ("s4d", "S4D"): {},
    ("s4d", "S4D, step sizes and dynamics at 4e-3"): {"dt_lr": RATE, "dynamics_lr": RATE},
    ("ds4d", "DS4D"): {},
    ("ds4d", "DS4D, step sizes at 1e-3"): {"dt_lr": 1e-3},
    ("ds4d", "DS4D, step sizes and dynamics at 1e-3"): {"dt_lr": 1e-3, "dynamics_lr": 1e-3},
}


def small_runs() -> tuple[Run, ...]:
    """Return all variants on copying with a variable delay, with three seeds; all first seeds come first."""
    runs = []
    for seed in SEEDS:
        for (model, label), settings in VARIANTS.items():
            run = preset("copy-variable", model, "small")
            training = replace(run.training, lr=RATE, **settings)
            runs.append(replace(run, training=training, label=label, seed=seed))
    return tuple(runs)


@dataclass(frozen=True)
class SeparateRates(Trained):
    """Validation accuracies with and without learning rates of their own for step sizes and dynamics."""

    name = "separate-rates"
    title = "Learning rates of step sizes and dynamics (copying with a variable delay, small scale)"

    runs: tuple[Run, ...] = field(default_factory=small_runs)
    shelf: Shelf = SMALL_SHELF

    def files(self, places: Places) -> Iterable[File]:
        results = self.collected(places)
        rows = []
        for label in dict.fromkeys(run.model_label for run in self.runs):
            for task in results.tasks:
                if (task, label) in results.cells:
                    cell = results.cells[task, label]
                    rows.append([label, page.cell_text(cell), str(len(cell.records))])
        yield "table.md", tables.markdown(["model", "accuracy", "seeds"], rows).encode()
