"""Train and compare sequence models on delayed memory and on general benchmarks.

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted (progress is saved).
"""

from __future__ import annotations

import sys

from delayssm_lab.cli.common import dispatch, leave
from delayssm_lab.training.interrupt import EXIT_CODE, Interrupted

#: Each command is the module of its name in this package, which is imported only when the command runs.
COMMANDS = {
    "train": "Train one model on one task.",
    "resume": "Continue an interrupted run.",
    "eval": "Evaluate the best weights of a run.",
    "sweep": "Train every combination of tasks, models, learning rates and seeds.",
    "report": "Write an HTML report with tables and figures of runs.",
    "reproduce": "Reproduce the studies behind the tables and figures in results/.",
    "data": "List, check, prepare and generate data sets.",
    "listen": "Classify a recording chunk by chunk and plot the running prediction.",
    "params": "Print the size and the parameter count of every model.",
    "info": "Print versions, backend, threads and GPU.",
    "demo": "Train DS4D and S4D on delayed copying for a few minutes and compare them.",
}


def main() -> None:
    """Run the command line."""
    try:
        dispatch("delayssm", __name__, COMMANDS, __doc__, sys.argv[1:])
    except Interrupted as interrupted:
        leave(EXIT_CODE, f"Interrupted: {interrupted}. Repeat the command to continue.")
    except KeyboardInterrupt:
        leave(EXIT_CODE, "Interrupted.")
    except ModuleNotFoundError as error:
        leave(1, f"delayssm: {_missing(error)}")
    except (ValueError, OSError, ArithmeticError, ImportError) as error:
        leave(1, f"delayssm: {error}")


def _missing(error: ModuleNotFoundError) -> str:
    """Describe a missing package by the extra that installs it."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "delayssm", "delayssm_lab"):
        return str(error)
    extra = {"transformers": "baselines", "ray": "ray"}.get(package, "lab")
    return f"{package} is not installed; install the {extra} extra: pip install 'delayssm[{extra}]'"
