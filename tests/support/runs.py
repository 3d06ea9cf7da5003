"""Tiny runs for tests of the laboratory, and processes that train them."""

import os
import subprocess
import sys
import time
from pathlib import Path

import torch

from delayssm.layers.block import BlockConfig
from delayssm.layers.layer import DS4DConfig
from delayssm_lab.display import Silent
from delayssm_lab.models.specs import LSTMSpec, Spec, StateSpaceSpec
from delayssm_lab.tasks.delayed import Copy, DelayedMemory
from delayssm_lab.training import checkpoint, logbook
from delayssm_lab.training import directory as directories
from delayssm_lab.training import trainer as training
from delayssm_lab.training.logbook import Metrics, Summary
from delayssm_lab.training.run import Run, Training, load

TASK = DelayedMemory(Copy(), (6, 8), vocab_size=12, data_length=4)
DS4D = StateSpaceSpec(depth=2, block=BlockConfig(layer=DS4DConfig(8, 4, TASK.max_length, dropout=0.1)))
LSTM = LSTMSpec(d_model=8, depth=1)

#: Environment of processes under test. They share few cores, and threads would mostly wait for each other.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
_ROOT = Path(__file__).parents[2]
#: Environment of scripts under test that import this package.
IMPORTABLE = {"PYTHONPATH": os.pathsep.join([str(_ROOT), str(_ROOT / "src")])}


def tiny(model: Spec = DS4D, seed: int = 0, **settings: object) -> Run:
    """Return a run that takes about a second."""
    defaults = {"steps": 12, "batch_size": 6, "evaluate_every": 4, "checkpoint_every": 4, "validation_size": 10}
    return Run(task=TASK, model=model, training=Training(**{**defaults, **settings}), seed=seed)  # type: ignore[arg-type]


def create(directory: Path, run: Run) -> Path:
    """Create the directory of a run and return it."""
    directories.create(directory, run)
    return directory


def read_metrics(directory: Path) -> list[Metrics]:
    """Return the evaluations of the run in a directory."""
    return logbook.read_metrics(directory, load(directory)[0])


def read_summary(directory: Path) -> Summary | None:
    """Return the summary of the run in a directory; None if it is not finished."""
    return logbook.read_summary(directory, load(directory)[0])


def start(*arguments: object, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Start `python` with arguments."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ONE_THREAD, **(environment or {})},
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for a process and return its exit code, output and error output."""
    out, errors = process.communicate(timeout=300)
    return process.returncode, out, errors


def run(*arguments: object) -> tuple[int, str, str]:
    """Run `python` with arguments and return its exit code, output and error output."""
    return finish(start(*arguments))


def weights(directory: Path) -> dict[str, torch.Tensor]:
    """Return the best weights of a run."""
    return checkpoint.read_best(checkpoint.best(directory), load(directory)[0])


def state(directory: Path) -> dict[str, torch.Tensor]:
    """Return the last training state of a run."""
    return checkpoint.read(checkpoint.last(directory))[0]


def metrics_without_times(directory: Path) -> list[dict[str, float]]:
    """Return the evaluations of a run without their times."""
    times = "seconds", "cpu_seconds"
    return [{k: v for k, v in entry.items() if k not in times} for entry in read_metrics(directory)]


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    """Wait until a process has written a file."""
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, finish(process)
        assert time.monotonic() < deadline
        time.sleep(0.01)


def train_to(directory: Path, *steps: int) -> None:
    """Train a run with checkpoints at these steps, up to the last of them."""
    run = load(directory)[0]
    trainer = training.Trainer(run, directory, training.make_accelerator(run), Silent())
    while trainer.progress.step < steps[-1]:
        trainer.step()
        if trainer.progress.step in steps:
            trainer.save()
