"""The same runs on a cluster, through Ray. All machines must see the directory of the runs under the same path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from delayssm.lab import training
from delayssm.lab.display import Display, Silent
from delayssm.lab.run import Run
from delayssm.lab.sweep import Outcome, announce, prepare, run_in_process


def sweep(
    runs: Sequence[Run], root: Path, display: Display, cpus_per_run: int = 1, gpus_per_run: float = 0
) -> list[Outcome]:
    """Finish all runs and say what became of each; those that are finished are not run again.

    Joins the cluster that RAY_ADDRESS names; without it, Ray starts on this machine.
    """
    try:
        import ray
    except ImportError:
        raise ImportError("sweeps on a cluster need the ray extra: pip install 'delayssm[ray]'") from None
    directories = prepare(runs, root.resolve())
    waiting = [d for d in directories if training.read_summary(d) is None]
    mine = not ray.is_initialized()
    if mine:
        ray.init(log_to_driver=False, include_dashboard=False)
    try:
        work = ray.remote(num_cpus=cpus_per_run, num_gpus=gpus_per_run, max_retries=0)(_work)
        pending = {work.remote(directory, cpus_per_run): directory for directory in waiting}
        found: dict[Path, Outcome] = {}
        while pending:
            (done,), _ = ray.wait(list(pending), num_returns=1)
            directory = pending.pop(done)
            try:
                outcome = ray.get(done)
            except ray.exceptions.RayError as error:  # the machine itself is gone
                outcome = Outcome(directory, error=str(error).strip().splitlines()[-1])
            found[directory] = outcome
            announce(outcome, display)
    finally:
        if mine:
            ray.shutdown()
    return [found.get(d) or Outcome(d, training.read_summary(d)) for d in directories]


def _work(directory: Path, threads: int) -> Outcome:
    return run_in_process(directory, threads, {}, Silent())
