"""Continue an interrupted run."""

from __future__ import annotations

from pathlib import Path

import tyro


def command(directory: tyro.conf.Positional[Path]) -> None:
    """Continue an interrupted run.

    The run continues from its last checkpoint, and ends with the same weights as without the interruption.

    Args:
        directory: Directory of the run.
    """
    from delayssm_lab.cli.train import finish
    from delayssm_lab.training.run import load

    run, _ = load(directory)
    finish(directory, run)
