"""Train and compare sequence models on delayed memory, general benchmarks and language.

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted (progress is saved).
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delayssm_lab.tasks.task import Task

#: Each command is the module of its name in this package, which is imported only when the command runs.
COMMANDS = {
    "train": "Train one model on one task.",
    "resume": "Continue an interrupted run, or give a run more steps.",
    "eval": "Evaluate the best weights of a run.",
    "sweep": "Train every combination of tasks, models, learning rates and seeds.",
    "report": "Write an HTML report with tables and figures of runs.",
    "reproduce": "Reproduce the studies behind the tables and figures in results/.",
    "data": "List, check, prepare and generate data sets.",
    "export": "Write a trained model as ONNX, to run it without torch.",
    "listen": "Classify a recording chunk by chunk and plot the running prediction.",
    "write": "Continue a text with a trained language model.",
    "params": "Print the size and the parameter count of every model.",
    "info": "Print versions, backend, threads and GPU.",
    "demo": "Use two trained models, then train DS4D and S4D on delayed copying for a few minutes and compare them.",
}


def main(*tasks: type[Task]) -> None:
    """Run the command line.

    A script with a task of its own passes it here, and is then run in place of the command `delayssm`.

    Args:
        tasks: Tasks that the command line knows beside those of this package.
    """
    try:
        _run(tasks)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)


def _run(tasks: Sequence[type[Task]]) -> None:
    # Imported here, so that main deals with Ctrl-C from the beginning.
    from delayssm_lab.training.interrupt import EXIT_CODE, Interrupted, leave_imports_at_once

    leave_imports_at_once()

    from delayssm_lab.cli.common import check_paths, dispatch, leave, lose_output, program

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for names of files that are no text
    try:
        try:
            _know(tasks)
            if sys.argv[1:] == ["--version"]:
                print(f"delayssm {_version()}")
            elif tasks and sys.argv[1:2] == ["worker"]:
                from delayssm_lab.training import worker

                sys.exit(worker.main(sys.argv[2:]))
            else:
                check_paths(sys.argv[1:])
                dispatch(program(), __name__, COMMANDS, __doc__, sys.argv[1:])
        finally:
            sys.stdout.flush()  # here, because an error at the exit of the interpreter cannot be caught
    except BrokenPipeError:
        lose_output()
    except Interrupted as interrupted:
        leave(EXIT_CODE, f"Interrupted: {interrupted}. Repeat the command to continue.")
    except ModuleNotFoundError as error:
        leave(1, f"delayssm: {missing(error)}")
    except OSError as error:
        leave(1, f"delayssm: {error if error.filename or not error.strerror else error.strerror}")
    except (ValueError, ArithmeticError, ImportError) as error:
        leave(1, f"delayssm: {error}")
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate" not in str(error):
            raise  # an error of this code, not of its user
        leave(1, f"delayssm: there is not enough memory; try smaller sizes ({next(iter(str(error).splitlines()), '')})")


def _know(tasks: Sequence[type[Task]]) -> None:
    """Make tasks of a script known, and have the processes of a sweep run that script, too."""
    if tasks:
        from delayssm_lab.cli.common import is_run_by
        from delayssm_lab.tasks import kinds
        from delayssm_lab.training import sweep

        for task in tasks:
            kinds.add(task)
        is_run_by(sys.argv[0])
        sweep.worker_command[:] = [str(Path(sys.argv[0]).resolve()), "worker"]


def _version() -> str:
    from importlib.metadata import version

    return version("delayssm")


def missing(error: ModuleNotFoundError) -> str:
    """Describe a missing package by the extra that installs it."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "delayssm", "delayssm_lab"):
        return str(error)
    extra = {"transformers": "baselines", "ray": "ray"}.get(package, "lab")
    return f"{package} is not installed; install the {extra} extra: pip install '.[{extra}]' in a clone"
