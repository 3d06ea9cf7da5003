"""Train DS4D and S4D on delayed copying for a few minutes and compare them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from delayssm_lab.cli.common import check_at_least, leave


def command(out: Path = Path("runs/demo"), steps: int = 400) -> None:
    """Train DS4D and S4D on delayed copying for a few minutes and compare them.

    After 400 steps DS4D has nearly learned the task, while S4D needs many more. The result is an HTML report.

    Args:
        out: Directory of the runs and the report.
        steps: Number of training steps.
    """
    from delayssm_lab.recipes.delayed import grid
    from delayssm_lab.report import page
    from delayssm_lab.training.sweep import sweep

    check_at_least(1, steps=steps)
    runs = [
        replace(run, training=replace(run.training, steps=steps, batch_size=16, evaluate_every=25, validation_size=64))
        for run in grid(["copy-fixed"], ["ds4d", "s4d"], "paper", [4e-3])
    ]
    failed = [outcome for outcome in sweep(runs, out, workers=2) if outcome.error]
    if failed:
        leave(1, "\n".join(map(str, failed)))
    print(f"Wrote {page.write([out], out / 'report').resolve()}")
