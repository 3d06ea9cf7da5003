"""Train and compare sequence models on delayed memory and on the general benchmarks.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted (saved, and can be resumed).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

if TYPE_CHECKING:
    from delayssm_lab.training.run import Run

try:
    import tyro
    from rich.console import Console
    from rich.table import Table

    from delayssm_lab.cli.listening import listen
    from delayssm_lab.environment import Device
    from delayssm_lab.recipes.delayed import MODELS, TASKS, AnyTaskName, ModelName, Scale
    from delayssm_lab.training.interrupt import EXIT_CODE, Interrupted
except ImportError as missing:
    sys.exit(f"the command line needs the lab extra ({missing}): pip install 'delayssm[lab]'")


@dataclass(frozen=True)
class Choice:
    """Train one model on one task.

    `delayssm train TASK MODEL --help` lists every setting of that run, with the value it has unless you give another:
    learning rate, steps, batch size, width, lags and all others.
    """

    task: tyro.conf.Positional[AnyTaskName]
    """What to learn."""
    model: tyro.conf.Positional[ModelName]
    """By what."""
    scale: Scale = "mini"
    """The paper's sizes, or smaller ones for a laptop."""
    schedule: Literal["constant", "cosine", "multi-step"] | None = None
    """How the learning rate changes, if not as usual for this task."""
    out: Path | None = None
    """Directory of the run; by default under runs/, by its name."""


def train(arguments: Sequence[str]) -> None:
    """Train one model on one task."""
    from delayssm_lab.recipes.delayed import preset
    from delayssm_lab.training import trainer as training
    from delayssm_lab.training.run import Run
    from delayssm_lab.training.schedules import Constant, Cosine, MultiStep, Schedule

    chosen = len([a for a in arguments if not a.startswith("-")]) >= 2
    choice, rest = tyro.cli(
        Choice, prog="delayssm train", args=arguments, return_unknown_args=True, add_help=not chosen
    )
    run = preset(choice.task, choice.model, choice.scale)
    schedules: dict[str, Schedule] = {"constant": Constant(), "cosine": Cosine(), "multi-step": MultiStep(at=())}
    if choice.schedule is not None:
        run = replace(run, training=replace(run.training, schedule=schedules[choice.schedule]))
    try:
        run = tyro.cli(
            Run,
            prog=f"delayssm train {choice.task} {choice.model} --scale {choice.scale}",
            description="Every setting of this run. Besides: --scale, --schedule, --out.",
            default=run,
            args=rest,
            config=(tyro.conf.AvoidSubcommands, tyro.conf.OmitArgPrefixes),
        )
    except ValueError as error:  # settings that do not go together
        _leave(2, f"delayssm: {error}")
    directory = choice.out or Path("runs") / choice.scale / run.name
    training.create(directory, run)
    _train(directory, run)


def data(arguments: Sequence[str]) -> None:
    """Show, check, prepare and generate data sets."""
    from delayssm_lab.cli import datasets
    from delayssm_lab.cli.generating import generate

    tyro.extras.subcommand_cli_from_dict(
        {**datasets.COMMANDS, "generate": generate}, prog="delayssm data", description=data.__doc__, args=arguments
    )


def resume(directory: tyro.conf.Positional[Path]) -> None:
    """Go on with a run that was interrupted.

    Args:
        directory: of the run.
    """
    from delayssm_lab.training.run import load

    run, _ = load(directory)
    _train(directory, run)


def evaluate(directory: tyro.conf.Positional[Path], samples: int = 1024, seed: int | None = None) -> None:
    """Measure the best weights of a run: on test samples, or for delayed memory on new ones, lag by lag.

    Args:
        directory: of the run.
        samples: how many, at most.
        seed: of new samples; by default that of the run.
    """
    from delayssm_lab.tasks.delayed import DelayedMemory
    from delayssm_lab.training.evaluate import accuracy_by_lag, load_model, on_test_samples, overall

    model, run = load_model(directory)
    if not isinstance(run.task, DelayedMemory):
        found = on_test_samples(model, run, samples)
        print(f"{run.task.metric.value} {found:.4f} on test samples; without looking {run.task.guess():.4f}")
        return
    by_lag = accuracy_by_lag(model, run.task, samples, run.seed if seed is None else seed)
    for lag, accuracy in by_lag.items():
        print(f"lag {lag}: {accuracy.mean:.4f} ({accuracy.samples} samples)")
    print(f"accuracy {overall(by_lag):.4f}")


def sweep(
    tasks: tuple[AnyTaskName, ...] = TASKS,
    models: tuple[ModelName, ...] = ("ds4d", "s4d"),
    scale: Scale = "mini",
    learning_rates: tuple[float, ...] = (),
    seeds: tuple[int, ...] = (0,),
    out: Path | None = None,
    workers: int | None = None,
    ray: bool = False,
) -> None:
    """Train every model on every task, with every learning rate and seed; what is finished is not run again.

    Args:
        tasks: what to learn.
        models: by what.
        scale: the paper's sizes, or smaller ones for a laptop.
        learning_rates: to try; by default the one of each preset.
        seeds: to try.
        out: directory of the runs; by default runs/ and the scale.
        workers: runs at a time; by default one for each GPU, or else for each core.
        ray: use the Ray cluster that RAY_ADDRESS names, or a local one.
    """
    from delayssm_lab.display import Lines
    from delayssm_lab.recipes.delayed import grid
    from delayssm_lab.training import cluster
    from delayssm_lab.training import sweep as local

    root = out or Path("runs") / scale
    runs = grid(tasks, models, scale, learning_rates, seeds)
    try:
        outcomes = cluster.sweep(runs, root, Lines()) if ray else local.sweep(runs, root, workers)
    except Interrupted as interrupted:
        _leave(EXIT_CODE, f"Interrupted: {interrupted}. The same command goes on.")
    failed = [outcome for outcome in outcomes if outcome.error]
    print(
        f"{len(outcomes) - len(failed)} of {len(outcomes)} runs are finished. To look at them: delayssm report {root}"
    )
    if failed:
        _leave(1, "\n".join(f"{outcome.directory}: {outcome.error}" for outcome in failed))


def report(directories: tyro.conf.Positional[tuple[Path, ...]], out: Path | None = None) -> None:
    """Draw what runs have found: one page to look at, and its pictures.

    Args:
        directories: runs, or directories with runs in them.
        out: directory of the page; by default report/ in the first of them.
    """
    from delayssm_lab.report import page

    print(f"Look at {page.write(directories, out or directories[0] / 'report').resolve()}")


def params(scale: Scale = "paper") -> None:
    """Show the sizes of all models.

    Args:
        scale: the paper's sizes, or smaller ones for a laptop.
    """
    from delayssm_lab.recipes.sizes import benchmark_rows, rows

    for title, head, found in (
        ("Delayed memory", ("tasks", "model", "layers", "width", "heads", "state", "parameters"), rows(scale)),
        ("Benchmarks", ("task", "model", "layers", "width", "state", "parameters", "/ DS4D"), benchmark_rows(scale)),
    ):
        table = Table(title=f"{title}, scale '{scale}'")
        for column in head:
            table.add_column(column, justify="left" if column in ("task", "tasks", "model") else "right")
        for row in found:
            table.add_row(*row)
        _console().print(table)


def info() -> None:
    """Show versions, backend and threads."""
    from delayssm_lab.environment import describe

    for name, value in describe().items():
        print(f"{name:10} {value}")


def bench(
    tasks: tuple[AnyTaskName, ...] = ("copy-fixed", "sum-fixed"),
    models: tuple[ModelName, ...] = MODELS,
    scale: Scale = "paper",
    steps: int = 3,
    device: Device | None = None,
) -> None:
    """Measure training steps. Nothing else should run on the machine meanwhile.

    Args:
        tasks: whose sizes to take.
        models: to measure.
        scale: the paper's sizes, or smaller ones for a laptop.
        steps: to measure; the fastest counts.
        device: by default the GPU if there is one.
    """
    from delayssm_lab.environment import best_device, require_device
    from delayssm_lab.measure.throughput import HEAD, measure

    device = device or best_device()
    require_device(device)
    print(f"| {' | '.join(HEAD)} |\n|{' --- |' * len(HEAD)}")
    for row in measure(tasks, models, scale, steps, device):
        print(f"| {' | '.join(row)} |", flush=True)
    if device == "cuda":
        print("\nThis project has not seen a GPU yet. Please open an issue with this table and these lines:\n")
        info()


def demo(out: Path = Path("runs/demo"), steps: int = 400) -> None:
    """Train DS4D and S4D side by side on delayed copying for a few minutes, and draw what came of it.

    Args:
        out: directory of the runs and the report.
        steps: training steps.
    """
    from delayssm_lab import demo as first_look

    try:
        path = first_look.run(out, steps)
    except Interrupted as interrupted:
        _leave(EXIT_CODE, f"Interrupted: {interrupted}. The same command goes on.")
    print(f"Look at {path.resolve()}")


def reproduce(
    names: tyro.conf.Positional[tuple[str, ...]],
    list: bool = False,
    so_far: bool = False,
    add: bool = False,
    work: Path = Path("runs"),
    out: Path = Path("results"),
) -> None:
    """Make the paper's tables and figures again: do what is missing, and write results/NAME.

    Args:
        names: of studies; `--list` shows them.
        list: show all studies, what they are, and how far they are.
        so_far: do nothing that is missing; write results from what is done.
        add: count runs that results already hold, from another machine perhaps, as done.
        work: where runs and measurements are kept, to go on from.
        out: where results are written.
    """
    from delayssm_lab.studies.catalogue import studies

    known = {study.name: study for study in studies()}
    if unknown := sorted(set(names) - set(known)):
        raise ValueError(f"there is no study {', '.join(unknown)}; there are {', '.join(known)}")
    if list or not names:
        table = Table("study", "what it shows", "done here", "results", "took")
        for study in known.values():
            done, total = study.progress(work)
            table.add_row(study.name, study.title, f"{done} of {total}", *study.results(out / study.name))
        _console().print(table)
        return
    for name in names:
        if add:
            known[name].adopt(out / name, work)
        try:
            if not so_far:
                known[name].run(work)
        except (Interrupted, KeyboardInterrupt):
            done, total = known[name].progress(work)
            _leave(EXIT_CODE, f"Interrupted: {done} of {total} are done. The same command goes on; with --so-far, it "
                   "writes what is done.")  # fmt: skip
        known[name].write(work, out / name)
        print(f"Look at {out / name}{known[name].request}")


def _train(directory: Path, run: Run) -> None:
    """Train with a progress display, and say where the results are; of several processes, only the first."""
    from delayssm_lab.display import Board, Silent, duration
    from delayssm_lab.training import trainer as training

    try:
        if not _first_process():
            training.train(directory, Silent())
            return
        print(f"{run.name}: {run.parameters():,} parameters", flush=True)
        with Board() as board:
            summary = training.train(directory, board.add("training"))
    except Interrupted as interrupted:
        _leave(EXIT_CODE, f"Interrupted: {interrupted}. To go on: delayssm resume {directory}")
    name = run.task.metric.value
    tested = f", on test samples {summary[f'test_{name}']:.4f}" if f"test_{name}" in summary else ""
    print(
        f"Best {name} {summary[name]:.4f} at step {summary['best_step']}{tested}, "
        f"after {duration(summary['seconds'])}. Results are in {directory}; "
        f"to look at them: delayssm report {directory}"
    )


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 120)


def _first_process() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _leave(code: int, message: str) -> NoReturn:
    if _first_process():
        print(message, file=sys.stderr, flush=True)
    sys.exit(code)


COMMANDS: dict[str, Callable[..., None]] = {
    "train": train,
    "resume": resume,
    "eval": evaluate,
    "sweep": sweep,
    "report": report,
    "reproduce": reproduce,
    "bench": bench,
    "data": data,
    "listen": listen,
    "params": params,
    "info": info,
    "demo": demo,
}


def main() -> None:
    """Run a subcommand."""
    arguments = sys.argv[1:]
    try:
        if arguments[:1] == ["train"]:  # its options depend on the task and the model
            train(arguments[1:])
        elif arguments[:1] == ["data"]:  # has commands of its own
            data(arguments[1:])
        else:
            tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="delayssm", description=__doc__)
    except (ValueError, OSError, ArithmeticError, ImportError) as error:
        _leave(1, f"delayssm: {error}")
    except KeyboardInterrupt:
        _leave(EXIT_CODE, "Interrupted.")
