"""The same runs on a cluster, through Ray. All machines must see the directory of the runs under the same path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from delayssm_lab.display import Display, Silent
from delayssm_lab.training.run import Run
from delayssm_lab.training.sweep import Outcome, Worker, prepare


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
    directories, done = prepare(runs, root.resolve())
    mine = not ray.is_initialized()
    if mine:
        ray.init(log_to_driver=False, include_dashboard=False)
    try:
        work = ray.remote(num_cpus=cpus_per_run, num_gpus=gpus_per_run, max_retries=0)(_work)
        pending = {work.remote(d, cpus_per_run): d for d in directories if d not in done}
        while pending:
            (ready,), _ = ray.wait(list(pending), num_returns=1)
            directory = pending.pop(ready)
            try:
                done[directory] = ray.get(ready)
            except ray.exceptions.RayError as error:  # the machine itself is gone
                done[directory] = Outcome(directory, error=str(error).strip().splitlines()[-1])
            display.say(f"{done[directory]} ({len(done)} of {len(runs)})")
    finally:
        if mine:
            ray.shutdown()
    return [done[directory] for directory in directories]


def _work(directory: Path, threads: int) -> Outcome:
    worker = Worker(directory, threads, {}, Silent())
    while worker.read():
        pass
    return worker.outcome()
