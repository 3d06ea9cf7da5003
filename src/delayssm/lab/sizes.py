"""The table of models and their sizes."""

from __future__ import annotations

from collections.abc import Iterator

from delayssm.lab.presets import MODELS, Scale, TaskName, preset

#: Tasks that share their models; sum and weighted sum have the same vocabulary and lengths.
FAMILIES: dict[str, tuple[TaskName, TaskName]] = {
    "copy": ("copy-fixed", "copy-variable"),
    "sum, weighted sum": ("sum-fixed", "sum-variable"),
}


def rows(scale: Scale) -> Iterator[tuple[str, ...]]:
    """One for each model: tasks, model, layers, width, heads, state, parameters.

    A model that differs between fixed and variable delays has a row for each.
    """
    for family, tasks in FAMILIES.items():
        for model in MODELS:
            fixed, variable = (preset(task, model, scale) for task in tasks)
            same = fixed.model == variable.model
            for run, delays in ((fixed, ""),) if same else ((fixed, ", fixed"), (variable, ", variable")):
                heads, state = (str(getattr(run.model, name, "-")) for name in ("heads", "d_state"))
                sizes = str(run.model.depth), str(run.model.d_model), heads, state
                yield family + delays, run.label, *sizes, f"{run.parameters():,}"
