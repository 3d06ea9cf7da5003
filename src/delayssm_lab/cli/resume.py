"""Continue an interrupted run, or give a run more steps."""

from __future__ import annotations

from pathlib import Path

import tyro

from delayssm_lab.cli.common import check_at_least
from delayssm_lab.training.tracking import Tracker


def command(directory: tyro.conf.Positional[Path], steps: int | None = None, track: Tracker | None = None) -> None:
    """Continue an interrupted run, or give a run more steps.

    The run continues from its last checkpoint, and ends with the same weights as without the interruption. With more
    steps, it ends with the same weights as a run that had as many from the beginning. This needs a constant
    learning rate.

    Args:
        directory: Directory of the run.
        steps: New total number of steps. By default, that of the run.
        track: Experiment tracker to report each evaluation to.
    """
    from delayssm_lab.cli.train import finish
    from delayssm_lab.training.directory import extend
    from delayssm_lab.training.run import load

    if steps is not None:
        check_at_least(1, steps=steps)
        extend(directory, steps)
    run, _ = load(directory)
    finish(directory, run, track)
