"""A first look: DS4D and S4D side by side on delayed copying, for the first minutes of the run in `presets.mini`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from delayssm_lab.recipes.delayed import grid
from delayssm_lab.report import page
from delayssm_lab.training.sweep import sweep


def run(out: Path, steps: int) -> Path:
    """Train both, and give the path of the report. In 400 steps DS4D has all but learned it; S4D needs many more."""
    runs = [
        replace(run, training=replace(run.training, steps=steps, evaluate_every=25, validation_size=64))
        for run in grid(["copy-fixed"], ["ds4d", "s4d"], "mini")
    ]
    failed = [outcome for outcome in sweep(runs, out, workers=2) if outcome.error]
    if failed:
        raise RuntimeError("; ".join(map(str, failed)))
    return page.write([out], out / "report")
