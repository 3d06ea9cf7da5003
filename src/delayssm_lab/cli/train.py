"""Train one model on one task."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from delayssm_lab.cli.common import before_help, is_first_process, leave, program, quoted, task_choice
from delayssm_lab.models.specs import Spec, StateSpaceSpec
from delayssm_lab.recipes.delayed import ModelName, Scale, preset
from delayssm_lab.training.interrupt import EXIT_CODE, Interrupted
from delayssm_lab.training.run import Run, leaves, to_json
from delayssm_lab.training.schedules import Constant, Cosine, MultiStep, Schedule
from delayssm_lab.training.tracking import Tracker

if TYPE_CHECKING:
    from delayssm_lab.recipes.delayed import AnyTaskName
else:
    AnyTaskName = task_choice()

_PROG = f"{program()} train"
_SCHEDULES: dict[str, Schedule] = {"constant": Constant(), "cosine": Cosine(), "multi-step": MultiStep(at=())}


@dataclass(frozen=True)
class Choice:
    """Train one model on one task.

    All other settings of the run (learning rate, steps, batch size, width, lags, ...) are options that follow the task
    and the model. `delayssm train TASK MODEL --help` lists them with their defaults.
    """

    task: tyro.conf.Positional[AnyTaskName]
    """Task to learn."""
    model: tyro.conf.Positional[ModelName]
    """Model to train."""
    scale: Scale = "small"
    """Sizes of the paper, or smaller ones that train on a laptop."""
    schedule: Literal["constant", "cosine", "multi-step"] | None = None
    """Learning-rate schedule. The default depends on the task."""
    out: Path | None = None
    """Directory of the run. By default runs/SCALE/NAME, with a name made of task, model, learning rate and seed, and
    of a suffix if any other setting is not the default."""
    track: Tracker | None = None
    """Experiment tracker to report each evaluation to."""


def main(arguments: Sequence[str]) -> None:
    """Parse the arguments of `delayssm train` in two passes and train.

    The first pass reads the task, the model and the scale. They select the preset that defines the options, and their
    defaults, of the second pass.
    """
    from delayssm_lab.training.directory import check, create

    given = before_help(arguments)
    if given is not None and not _is_complete(given):
        tyro.cli(Choice, prog=_PROG, args=["--help"])
    choice, settings = tyro.cli(
        Choice, prog=_PROG, args=arguments if given is None else given, return_unknown_args=True
    )
    try:
        standard = preset(choice.task, choice.model, choice.scale)
        default = _with_schedule(standard, choice)
        run = tyro.cli(
            Run,
            prog=f"{_PROG} {choice.task} {choice.model} --scale {choice.scale}",
            description="All settings of this run. In addition there are --scale, --schedule, --out and --track.",
            default=default,
            args=settings if given is None else ["--help"],
            config=(tyro.conf.AvoidSubcommands, tyro.conf.OmitArgPrefixes),
        )
        if isinstance(run.training.schedule, MultiStep) and not run.training.schedule.at:
            raise ValueError(
                "--schedule multi-step needs --at, the fractions of the run at which the learning rate decays, such as "
                "--at 0.5 0.75"
            )
        run = replace(run, model=_fitted(run.model, default.task.max_length, run.task.max_length))
        check(run)
    except ValueError as error:  # a model that cannot learn the task, or settings that contradict each other
        leave(2, f"delayssm: {error}")
    directory = choice.out or Path("runs") / choice.scale / directory_name(run, standard)
    create(directory, run)
    finish(directory, run, choice.track)


def directory_name(run: Run, standard: Run) -> str:
    """Return the name of a run, with a suffix of its own if more than rate and seed is not that of the preset."""
    rate = float(f"{run.training.lr:g}")  # the name has six digits of it
    expected = replace(standard, training=replace(standard.training, lr=rate), seed=run.seed)
    before, after = (dict(leaves(to_json(some))) for some in (expected, run))
    changed = {key: after.get(key) for key in {**before, **after} if after.get(key) != before.get(key)}
    if not changed:
        return run.name
    return f"{run.name}-{hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()[:8]}"


def finish(directory: Path, run: Run, tracker: Tracker | None = None) -> None:
    """Train a run from its last checkpoint to its end, with a progress display, and print where its results are."""
    from delayssm_lab.display import Board, Silent, duration
    from delayssm_lab.training import trainer as training

    try:
        if not is_first_process():
            training.train(directory, Silent(), tracker)
            return
        print(f"{run.name}: {run.parameters():,} parameters", flush=True)
        with Board() as board:
            summary = training.train(directory, board.add("training"), tracker)
    except Interrupted as interrupted:
        leave(EXIT_CODE, f"Interrupted: {interrupted}. To continue: {program()} resume {quoted(directory)}")
    metric, name = run.task.metric.value, run.task.metric.label
    test = f", {summary[f'test_{metric}']:.4f} on test samples" if f"test_{metric}" in summary else ""
    print(
        f"Best {name} {summary[metric]:.4f} at step {summary['best_step']}{test}, "
        f"after {duration(summary['seconds'])}. Results are in {directory}. "
        f"To plot them: {program()} report {quoted(directory)}"
    )


def _is_complete(arguments: Sequence[str]) -> bool:
    """Return whether the arguments name a task and a model."""
    try:
        tyro.cli(Choice, prog=_PROG, args=arguments, return_unknown_args=True, console_outputs=False)
    except SystemExit:
        return False
    return True


def _fitted(model: Spec, preset_length: int, length: int) -> Spec:
    """Return the model with delays up to the length of the sequences, unless --max-delay has set another limit."""
    if isinstance(model, StateSpaceSpec) and model == model.with_delays_up_to(preset_length):
        return model.with_delays_up_to(length)
    return model


def _with_schedule(run: Run, choice: Choice) -> Run:
    if choice.schedule is None:
        return run
    return replace(run, training=replace(run.training, schedule=_SCHEDULES[choice.schedule]))
