"""Where DS4D should start: delays, p, phase and the learning rate of step sizes in one small factorial design."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from delayssm.layers.layer import DS4DConfig
from delayssm.suggestion import place_delays
from delayssm.system.initial import Fraction
from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.recipes.delayed import TaskName, preset
from delayssm_lab.report import page, tables
from delayssm_lab.report.collect import group
from delayssm_lab.report.drawing import panels, png
from delayssm_lab.studies.contest import SEEDS, SMALL_SHELF
from delayssm_lab.studies.suggested import LABEL, LAGS
from delayssm_lab.studies.trained import Shelf, Trained
from delayssm_lab.study import File, Places
from delayssm_lab.training.record import Record
from delayssm_lab.training.run import Run

DESIGN_TASKS: tuple[TaskName, ...] = ("copy-variable", "sum-variable")
#: The best learning rate of DS4D on every task.
RATE = 4e-3
Placement = Literal["grid", "log", "shared", "suggested"]
FRACTIONS = (0.1, 0.5)
PHASES = {"pi": math.pi, "0": 0.0}
STEP_SIZE_RATES = (1e-4, 1e-3)
#: Channels that share a delay in the placement "shared".
SHARING = 4


@dataclass(frozen=True)
class Setting:
    """One point of the design.

    Args:
        delays: "grid" is even, one delay for each channel; "log" has even ratios; "shared" is an even grid with one
            delay for every four channels; "suggested" has half of the channels at lags that training samples show.
        p: Branch fraction.
        phase: Where the angle of the delayed branch starts.
        dt_lr: Learning rate of the step sizes.
    """

    delays: Placement
    p: float
    phase: str
    dt_lr: float

    def run(self, task: TaskName, seed: int) -> Run:
        """Return the run of a task with this setting."""
        run = _placed(preset(task, "ds4d", "small"), task, self.delays, self.p, phase=PHASES[self.phase])
        training = replace(run.training, lr=RATE, dt_lr=self.dt_lr)
        label = f"DS4D, {self.delays} delays, p {self.p:g}, phase {self.phase}, step sizes at {self.dt_lr:g}"
        return replace(run, training=training, label=label, seed=seed)


def design() -> list[Setting]:
    """Return half of all combinations: each pair of levels of any two options is in equally many of them.

    The placements count as two options of two levels. The product of all five is the same everywhere, so that main
    effects are mixed with interactions of four options only, and those of two with those of three.
    """
    settings = []
    for numbers in product(range(4), range(2), range(2), range(2)):
        delays, p, phase, rate = numbers
        if (delays // 2 + delays % 2 + p + phase + rate) % 2 == 0:
            setting = Setting(get_args(Placement)[delays], FRACTIONS[p], list(PHASES)[phase], STEP_SIZE_RATES[rate])
            settings.append(setting)
    return settings


def design_runs() -> dict[Run, Setting]:
    """Return the setting of each run of the design; each setting has a seed of its own."""
    return {setting.run(task, seed): setting for task in DESIGN_TASKS for seed, setting in enumerate(design(), start=1)}


def fraction_runs() -> tuple[Run, ...]:
    """Return runs with suggested delays and three choices of p, with three seeds; all first seeds come first.

    Where the study of suggested delays has the same runs, they have the same names.
    """
    choices = {f"{LABEL}, p 0.1": 0.1, LABEL: 0.5, f"{LABEL}, p 0.5 there and 0.1 elsewhere": None}
    runs = []
    for seed, task, (label, p) in product(SEEDS, DESIGN_TASKS, choices.items()):
        run = _placed(preset(task, "ds4d", "small"), task, "suggested", p)
        runs.append(replace(run, training=replace(run.training, lr=RATE), label=label, seed=seed))
    return tuple(runs)


def _placed(run: Run, task: TaskName, placement: Placement, p: float | None, **options: float) -> Run:
    """Return a run with other delays and another p; None is 0.5 for channels at suggested lags and 0.1 for others."""
    assert isinstance(run.model, StateSpaceSpec)
    layer = run.model.layer
    assert isinstance(layer, DS4DConfig)
    H, longest = layer.d_model, layer.max_delay
    delays = {
        "grid": "grid",
        "log": tuple(np.geomspace(2, longest - 2, H).tolist()),
        "shared": tuple((1 + (np.arange(H) // SHARING + 0.5) / math.ceil(H / SHARING) * (longest - 2)).tolist()),
        "suggested": tuple(place_delays(LAGS[task], longest, H).tolist()),
    }[placement]
    fraction: Fraction = tuple((0.5,) if h < (H + 1) // 2 else (0.1,) for h in range(H)) if p is None else p
    return replace(run, model=run.model.with_layer(delays=delays, branch_fraction=fraction, **options))


@dataclass(frozen=True)
class Initialisation(Trained):
    """Effects of each option on the validation accuracy."""

    name = "initialisation"
    title = "Initial delays, p, phase and the learning rate of step sizes (small scale)"

    settings: Mapping[Run, Setting] = field(default_factory=design_runs)
    runs: tuple[Run, ...] = field(default_factory=lambda: (*design_runs(), *fraction_runs()))
    shelf: Shelf = SMALL_SHELF

    def files(self, places: Places) -> Iterable[File]:
        records = self.records(places)
        yield from self.effects([record for record in records if record.run in self.settings])
        if others := [record for record in records if record.run not in self.settings]:
            yield "fractions.md", _fractions(others).encode()

    def effects(self, records: Sequence[Record]) -> Iterable[File]:
        """Yield table and figure of the effects that runs of the design determine, if there are any."""
        effects = _effects(records, self.settings)
        if any(effects.values()):
            yield "effects.md", _table(effects).encode()
            yield "effects.png", _picture(effects)


#: Mean and standard error of the accuracies of each level, by its name; no error if there are too few runs for one.
Estimates = dict[str, tuple[float, float | None]]


def mean_over_training(record: Record) -> float:
    """Return the mean of all evaluations; a run that ended early, because the task is solved, stays where it ended."""
    curve = record.curve()
    missing = (record.run.steps - curve[-1][0]) // record.run.training.evaluate_every
    return float(np.mean([value for _, value in curve] + [curve[-1][1]] * missing))


#: What is estimated from a run.
RESPONSES: dict[str, Callable[[Record], float]] = {
    "best accuracy": lambda record: record.best,
    "mean accuracy over training": mean_over_training,
}


def _effects(records: Sequence[Record], settings: Mapping[Run, Setting]) -> dict[tuple[str, str], Estimates]:
    """Return estimates by task and response."""
    effects = {}
    for task in dict.fromkeys(record.run.task.label for record in records):
        mine = [record for record in records if record.run.task.label == task]
        for name, response in RESPONSES.items():
            values = np.array([response(record) for record in mine])
            effects[task, name] = estimates([settings[record.run] for record in mine], values)
    return effects


def estimates(settings: Sequence[Setting], values: NDArray[np.float64]) -> Estimates:
    """Fit values by one number for each pair of placement and p, and one for phase and rate each, by least squares.

    The estimate of a level is the mean of the fit over all levels of the other options; for phase and rate, over those
    pairs of placement and p that there are. A level that the runs do not determine, because some are missing, is left
    out. The residual has what phase and rate do together with others, and what seeds do.
    """
    X = np.stack([_row(setting) for setting in settings])
    inverse = np.linalg.pinv(X)
    weights = inverse @ values
    freedom = len(X) - int(np.linalg.matrix_rank(X))
    variance = float(np.square(values - X @ weights).sum()) / freedom if freedom > 0 else None
    every = [Setting(*levels) for levels in product(get_args(Placement), FRACTIONS, PHASES, STEP_SIZE_RATES)]
    cells = {(setting.delays, setting.p) for setting in settings}
    result: Estimates = {}
    for name in dict.fromkeys(name for setting in every for name in _levels(setting)):
        those = [setting for setting in every if name in _levels(setting)]
        if name.startswith(("phase", "step sizes")):
            those = [setting for setting in those if (setting.delays, setting.p) in cells]
        mean = np.mean([_row(setting) for setting in those], axis=0)
        if np.allclose(mean @ inverse @ X, mean, atol=1e-9):
            error = None if variance is None else float(np.sqrt(variance) * np.linalg.norm(mean @ inverse))
            result[name] = float(mean @ weights), error
    return result


def _row(setting: Setting) -> NDArray[np.float64]:
    cells = list(product(get_args(Placement), FRACTIONS))
    row = np.zeros(len(cells) + 2)
    row[cells.index((setting.delays, setting.p))] = 1
    row[-2:] = list(PHASES).index(setting.phase) - 0.5, STEP_SIZE_RATES.index(setting.dt_lr) - 0.5
    return row


def _levels(setting: Setting) -> tuple[str, ...]:
    """Return the names of the levels that a setting has: of each option, and of placement and p together."""
    return (
        f"{setting.delays} delays",
        f"p {setting.p:g}",
        f"phase {setting.phase}",
        f"step sizes at {setting.dt_lr:g}",
        f"{setting.delays} delays, p {setting.p:g}",
    )


def _order(effects: Mapping[tuple[str, str], Estimates]) -> list[str]:
    """Return the names of all levels, those of the same option together."""
    options = zip(*(_levels(setting) for setting in design()), strict=True)
    names = [name for option in options for name in dict.fromkeys(option)]
    return [name for name in names if any(name in estimates for estimates in effects.values())]


def _table(effects: Mapping[tuple[str, str], Estimates]) -> str:
    rows = []
    for name in _order(effects):
        cells = (estimates.get(name) for estimates in effects.values())
        rows.append([name, *("" if cell is None else _text(*cell) for cell in cells)])
    return tables.markdown(["level", *(f"{task}: {response}" for task, response in effects)], rows)


def _text(mean: float, error: float | None) -> str:
    return f"{mean:.2f}" if error is None else f"{mean:.2f} ± {error:.2f}"


def _picture(effects: Mapping[tuple[str, str], Estimates]) -> bytes:
    """Return a panel for each task and response: the estimate of each level with its standard error."""
    names = _order(effects)
    figure, axes = panels(len(effects), width=5.2, height=4.4, columns=2)
    for axis, ((task, response), estimated) in zip(axes, effects.items(), strict=True):
        for place, name in enumerate(reversed(names)):
            if name in estimated:
                mean, error = estimated[name]
                axis.errorbar(mean, place, xerr=error, fmt="o", color="C3" if ", " in name else "C0", capsize=3)
        axis.set_yticks(range(len(names)), list(reversed(names)))
        axis.set(title=task, xlabel=response)
        axis.grid(axis="x", alpha=0.3)
    return png(figure)


def _fractions(records: Sequence[Record]) -> str:
    """Return accuracies with suggested delays, a row for each p."""
    results = group(records)
    rows = []
    for label in dict.fromkeys(record.run.model_label for record in records):
        cells = [results.cells.get((task, label)) for task in results.tasks]
        texts = ("" if cell is None else f"{page.cell_text(cell)} ({len(cell.records)})" for cell in cells)
        rows.append([label, *texts])
    return tables.markdown(["model", *results.tasks], rows)
