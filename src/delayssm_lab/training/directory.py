"""Directories of runs: how they are created, locked, cleaned, and extended by more steps."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from filelock import FileLock, Timeout

from delayssm.config import differences
from delayssm.storage import files, model_files
from delayssm_lab.tasks import kinds
from delayssm_lab.tasks.recall import RecallTask
from delayssm_lab.tasks.task import Split
from delayssm_lab.training import checkpoint, fingerprint, logbook, memory
from delayssm_lab.training.run import Run, load, save, to_json
from delayssm_lab.training.schedules import Constant


class Busy(OSError):
    """Raised when another process is training the same run."""


def create(directory: Path, run: Run) -> None:
    """Create the directory of a run, once it is certain that the run can begin. If it exists, it must hold that run."""
    if directory.exists() and not directory.is_dir():
        raise NotADirectoryError(f"{directory} is a file, not the directory of a run; choose another with --out")
    if not (directory / "config.json").exists():
        check(run)
        check_data(run)
        save(directory, run, {})
    elif (other := load(directory)[0]) != run:
        extension = f"; to give it more steps: delayssm resume {shlex.quote(str(directory))} --steps STEPS"
        raise FileExistsError(
            f"{directory} holds another run ({differences(to_json(other), to_json(run))}); choose another directory "
            f"with --out or delete that one{extension if run.takes_the_same_steps_as(other) else ''}"
        )


def check(run: Run) -> None:
    """Raise ValueError if a run cannot be trained to its end, or its model cannot be built. Nothing is computed."""
    if isinstance(run.task, RecallTask):
        _ = run.steps  # raises an error if epochs are given
        if run.training.validation_size is None:
            raise ValueError(f"{run.task.label} has unlimited samples; set validation_size")
    check_model(run)
    if type(run.task) in kinds.own().values():
        _check_first_sample(run)
    memory.check_step(run, run.parameters())


def check_model(run: Run) -> None:
    """Raise ValueError if the model of a run cannot be built here."""
    try:
        parameters = run.parameters()
    except ImportError:
        raise
    except Exception as error:  # whatever torch and transformers raise for sizes that do not fit
        raise ValueError(f"the model of this run cannot be built: {error or type(error).__name__}") from error
    memory.check_model(parameters)


def _check_first_sample(run: Run) -> None:
    """Raise ValueError if the task of a script cannot make its first sample, or the model cannot answer it."""
    try:
        run.task.batch(run.seed, Split.VALIDATION, [0]).score(run.initial_model().eval())
    except Exception as error:
        raise ValueError(
            f"the first validation sample of {run.task.label} cannot be made and answered: "
            f"{type(error).__name__}: {error}"
        ) from error


def check_loaded(directory: Path, run: Run, check: Callable[[Run], None]) -> None:
    """Raise a ValueError that names config.json, which may have been edited, if a check of its run fails."""
    try:
        check(run)
    except ValueError as error:
        raise ValueError(f"{directory / 'config.json'} describes a run that is impossible here: {error}") from error


def check_data(run: Run) -> None:
    """Raise an error if the data of a run is not prepared or too small."""
    for split in Split:
        run.task.size(split)
    if run.steps < 1:
        raise ValueError(f"{run.training.epochs} epochs are less than one step; raise epochs")


def check_origin(directory: Path, run: Run, environment: dict[str, str]) -> None:
    """Raise ValueError if a run cannot go on here as it began, because the code or the data is not the same."""
    fingerprint.refuse_other_code(directory, run)
    began, here = environment.get("data"), run.task.data_digest()
    if began not in (None, here):
        raise ValueError(
            f"{directory} was begun with other data for {run.task.label} (its sha256 was {began}, and is {here} here); "
            "prepare the same data again, or delete the run to train it on this data"
        )


@contextmanager
def locked(directory: Path, timeout: float = 0) -> Iterator[None]:
    """Keep other processes from training a run, or raise `Busy` if one still does after `timeout` seconds."""
    lock = FileLock(directory / ".lock", timeout=timeout)
    try:
        lock.acquire()
    except Timeout:
        raise Busy(f"another process is training the run in {directory}; wait for it or stop it") from None
    except OSError as error:
        raise OSError(error.errno, f"could not lock {directory / '.lock'}: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()


def tidy(directory: Path) -> None:
    """Remove files that killed processes have begun to write, and write what they could not. The run must be locked."""
    best = checkpoint.best(directory).parent
    for folder in (directory, best, checkpoint.last(directory).parent):
        files.remove_leftovers(folder)
    model_files.restore_config(best)


def extend(directory: Path, steps: int) -> None:
    """Give a run more steps. When it is resumed, it ends as a run that had as many from the beginning.

    A run whose learning rate depends on the number of steps cannot be extended, as its first steps would be others.
    """
    load(directory)  # raises an error if it is no run
    with locked(directory, timeout=10):  # the processes of `torchrun` come here one after the other
        run, environment = load(directory)
        longer = replace(run, training=replace(run.training, steps=steps, epochs=None))
        if longer == run:
            return
        if steps < run.steps:
            raise ValueError(f"{directory} is a run of {run.steps} steps, which can only be raised, not to {steps}")
        if not isinstance(run.training.schedule, Constant):
            raise ValueError(
                f"{directory} has the schedule {type(run.training.schedule).__name__}, by which the learning rate "
                f"depends on the number of steps from the beginning; train a run of {steps} steps in a directory of "
                "its own"
            )
        saved = checkpoint.load_training(directory, run)
        if saved is not None:
            check_origin(directory, run, environment)  # as long as nothing has changed
            metrics = logbook.read_metrics(directory, run)
            logbook.check_evaluations(directory, metrics, saved.progress, longer)
            if logbook.ends_early(run, metrics, saved.progress.best_step):
                raise ValueError(
                    f"{directory} has reached its target or exhausted its patience, so more steps would change "
                    "nothing; train a run without target and patience in a directory of its own"
                )
        # In this order, because a summary beside the new configuration would be one of the longer run.
        logbook.remove_summary(directory)
        save(directory, longer, environment)
