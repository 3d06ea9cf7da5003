"""A first look: DS4D and S4D side by side on delayed copying."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from delayssm.lab.presets import grid
from delayssm.lab.report import page
from delayssm.lab.sweep import sweep


def run(out: Path, steps: int | None = None) -> Path:
    """Train both, and give the path of the report."""
    runs = grid(["copy-fixed"], ["ds4d", "s4d"], "mini")
    if steps is not None:
        runs = [replace(run, training=replace(run.training, steps=steps)) for run in runs]
    failed = [outcome for outcome in sweep(runs, out, workers=2) if outcome.error]
    if failed:
        raise RuntimeError("; ".join(f"{outcome.directory}: {outcome.error}" for outcome in failed))
    return page.write([out], out / "report")
