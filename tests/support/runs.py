"""Tiny runs for tests of the laboratory, and processes to train them in."""

import os
import subprocess
import sys
from pathlib import Path

from delayssm_lab.models import specs
from delayssm_lab.models.specs import Spec
from delayssm_lab.tasks.delayed import Copy, DelayedMemory
from delayssm_lab.training import trainer as training
from delayssm_lab.training.run import Run, Training

TASK = DelayedMemory(Copy(), (6, 8), vocab_size=12, data_length=4)
DS4D = specs.DS4D(d_model=8, depth=2, d_state=4, dropout=0.1)
LSTM = specs.LSTM(d_model=8, depth=1)

#: Several processes share two cores while testing; threads that wait for each other would cost most of the time.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


def tiny(model: Spec = DS4D, seed: int = 0, **settings: object) -> Run:
    """A run of a second."""
    chosen = {"steps": 12, "batch_size": 6, "evaluate_every": 4, "checkpoint_every": 4, "validation_size": 10}
    return Run(task=TASK, model=model, training=Training(**{**chosen, **settings}), seed=seed)  # type: ignore[arg-type]


def create(directory: Path, run: Run) -> Path:
    """Its directory."""
    training.create(directory, run)
    return directory


def start(*arguments: object, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Start `python ...`."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ONE_THREAD, **(environment or {})},
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code and what was printed."""
    out, errors = process.communicate(timeout=300)
    return process.returncode, out, errors


def run(*arguments: object) -> tuple[int, str, str]:
    """`python ...` to its end."""
    return finish(start(*arguments))
