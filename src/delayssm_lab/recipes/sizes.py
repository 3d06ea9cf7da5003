"""Tables of the sizes of models."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from delayssm_lab.recipes.delayed import Scale, TaskName, models_of, preset
from delayssm_lab.recipes.general import BENCHMARKS
from delayssm_lab.recipes.language import LANGUAGE_MODELS, LANGUAGE_TASKS
from delayssm_lab.training.run import Run

#: Tasks that share their models. Sum and weighted sum have the same vocabulary and lengths.
FAMILIES: dict[str, tuple[TaskName, TaskName]] = {
    "copy": ("copy-fixed", "copy-variable"),
    "sum, weighted sum": ("sum-fixed", "sum-variable"),
}


def rows(scale: Scale, unavailable: list[ModuleNotFoundError]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each model: tasks, model, layers, width, heads, state, parameters.

    A model whose sizes differ between fixed and variable delays has a row for each. A model that needs a package which
    is not installed has none; its error is added to `unavailable`.
    """
    for family, tasks in FAMILIES.items():
        for model in models_of(scale):
            try:
                fixed, variable = (_sizes(preset(task, model, scale)) for task in tasks)
            except ModuleNotFoundError as error:
                unavailable.append(error)
                continue
            if fixed == variable:
                yield family, *fixed
            else:
                yield f"{family}, fixed", *fixed
                yield f"{family}, variable", *variable


def language_rows(unavailable: list[ModuleNotFoundError]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each language model, as `rows` does; there is one scale."""
    for task, model in product(LANGUAGE_TASKS, LANGUAGE_MODELS):
        try:
            yield task, *_sizes(preset(task, model, "small"))
        except ModuleNotFoundError as error:
            unavailable.append(error)


def _sizes(run: Run) -> tuple[str, ...]:
    """Return model, layers, width, heads, state and parameters of a run."""
    spec = run.model
    heads, state = (str(getattr(spec, name, "-")) for name in ("heads", "d_state"))
    return run.model_label, str(spec.depth), str(spec.d_model), heads, state, f"{run.parameters():,}"


def benchmark_rows(scale: Scale) -> Iterator[tuple[str, ...]]:
    """Yield a row for each benchmark and model: task, model, layers, width, state, parameters, excess over S4D."""
    for name in BENCHMARKS:
        s4d, ds4d = preset(name, "s4d", scale), preset(name, "ds4d", scale)
        for run in (s4d, ds4d):
            sizes = str(run.model.depth), str(run.model.d_model), str(getattr(run.model, "d_state", "-"))
            excess = f"{100 * (run.parameters() / s4d.parameters() - 1):+.2f} %"
            yield run.task.label, run.model_label, *sizes, f"{run.parameters():,}", "" if run is s4d else excess
