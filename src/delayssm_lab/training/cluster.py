"""Sweeps on a cluster, with Ray. All machines must see the directory of the runs under the same path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from delayssm_lab.display import Display, Silent
from delayssm_lab.training.run import Run
from delayssm_lab.training.sweep import Outcome, Worker, prepare, worker_command


def sweep(
    runs: Sequence[Run], root: str | Path, display: Display, cpus_per_run: int = 1, gpus_per_run: float | None = None
) -> list[Outcome]:
    """Train all runs to their end and return their outcomes. Finished runs are not trained again.

    Ray connects to the cluster in the environment variable RAY_ADDRESS. Without it, Ray starts on this machine.

    Args:
        runs: Runs to train.
        root: Directory of their directories.
        display: Where outcomes are shown.
        cpus_per_run: Number of cores for each run.
        gpus_per_run: Number of GPUs for each run, or a share of one. By default one if the cluster has any.
    """
    try:
        import ray
    except ImportError:
        raise ImportError("sweeps on a cluster need the ray extra: pip install '.[ray]' in a clone") from None
    directories, done = prepare(runs, Path(root).resolve())
    started_here = not ray.is_initialized()
    if started_here:
        ray.init(log_to_driver=False, include_dashboard=False)
    try:
        if gpus_per_run is None:
            gpus_per_run = 1 if ray.cluster_resources().get("GPU") else 0
        train = ray.remote(num_cpus=cpus_per_run, num_gpus=gpus_per_run, max_retries=0)(_train)
        pending = {train.remote(d, cpus_per_run, worker_command): d for d in directories if d not in done}
        while pending:
            (ready,), _ = ray.wait(list(pending), num_returns=1)
            directory = pending.pop(ready)
            try:
                done[directory] = ray.get(ready)
            except ray.exceptions.RayError as error:  # for example because the machine is lost
                done[directory] = Outcome(directory, error=str(error).strip().splitlines()[-1])
            display.say(f"{done[directory]} ({len(done)} of {len(runs)})")
    finally:
        if started_here:
            ray.shutdown()
    return [done[directory] for directory in directories]


def _train(directory: Path, threads: int, command: list[str]) -> Outcome:
    worker_command[:] = command
    worker = Worker(directory, threads, {}, Silent())
    while worker.read():
        pass
    return worker.outcome()
