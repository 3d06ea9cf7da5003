"""Tables of the sizes of models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from delayssm_lab.recipes.delayed import MODELS, Scale, TaskName, preset
from delayssm_lab.recipes.general import BENCHMARKS, ORIGINAL_WIDTHS
from delayssm_lab.training.run import Run

#: Tasks that share their models. Sum and weighted sum have the same vocabulary and lengths.
FAMILIES: dict[str, tuple[TaskName, TaskName]] = {
    "copy": ("copy-fixed", "copy-variable"),
    "sum, weighted sum": ("sum-fixed", "sum-variable"),
}


def rows(scale: Scale) -> Iterator[tuple[str, ...]]:
    """Yield a row for each model: tasks, model, layers, width, heads, state, parameters.

    A model whose sizes differ between fixed and variable delays has a row for each.
    """
    for family, tasks in FAMILIES.items():
        for model in MODELS:
            fixed, variable = (_sizes(preset(task, model, scale)) for task in tasks)
            if fixed == variable:
                yield family, *fixed
            else:
                yield f"{family}, fixed", *fixed
                yield f"{family}, variable", *variable


def _sizes(run: Run) -> tuple[str, ...]:
    """Return model, layers, width, heads, state and parameters of a run."""
    spec = run.model
    heads, state = (str(getattr(spec, name, "-")) for name in ("heads", "d_state"))
    return run.label, str(spec.depth), str(spec.d_model), heads, state, f"{run.parameters():,}"


def benchmark_rows(scale: Scale) -> Iterator[tuple[str, ...]]:
    """Yield a row for each benchmark and model: task, model, layers, width, state, parameters, excess over DS4D.

    At the paper's scale, S4D has a second row if its own recipe has another width.
    """
    for name in BENCHMARKS:
        ds4d, s4d = preset(name, "ds4d", scale), preset(name, "s4d", scale)
        runs = [ds4d, s4d]
        if scale == "paper" and name in ORIGINAL_WIDTHS:
            original = s4d.model.with_width(ORIGINAL_WIDTHS[name])
            runs.append(replace(s4d, model=original, label="S4D's own recipe"))
        for run in runs:
            sizes = str(run.model.depth), str(run.model.d_model), str(getattr(run.model, "d_state", "-"))
            excess = f"{100 * (run.parameters() / ds4d.parameters() - 1):+.1f} %"
            yield run.task.label, run.model_label, *sizes, f"{run.parameters():,}", "" if run is ds4d else excess
