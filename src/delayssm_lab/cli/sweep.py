"""Train every combination of tasks, models, learning rates and seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from delayssm_lab.cli.common import check_at_least, leave, program, quoted, task_choice
from delayssm_lab.recipes.delayed import TASKS, ModelName, Scale

if TYPE_CHECKING:
    from delayssm_lab.recipes.delayed import AnyTaskName
else:
    AnyTaskName = task_choice()


def command(
    tasks: tuple[AnyTaskName, ...] = TASKS,
    models: tuple[ModelName, ...] = ("ds4d", "s4d"),
    scale: Scale = "small",
    learning_rates: tuple[float, ...] = (),
    seeds: tuple[int, ...] = (0,),
    out: Path | None = None,
    workers: int | None = None,
    ray: bool = False,
    cpus_per_run: int | None = None,
    gpus_per_run: float | None = None,
) -> None:
    """Train every combination of tasks, models, learning rates and seeds.

    Runs that are already finished are skipped, and interrupted ones continue from their last checkpoint.

    Args:
        tasks: Tasks to learn.
        models: Models to train.
        scale: Sizes of the paper, or smaller ones that train on a laptop.
        learning_rates: Learning rates to try. By default that of each preset.
        seeds: Seeds to try.
        out: Directory of the runs. By default runs/SCALE.
        workers: Number of runs to train at once. By default the number of GPUs, or of cores without a GPU.
        ray: Distribute the runs with Ray, on the cluster at RAY_ADDRESS or else on this machine.
        cpus_per_run: Number of cores for each run with Ray. By default 1.
        gpus_per_run: Number of GPUs for each run with Ray, or a share of one. By default 1 if the cluster has any.
    """
    from delayssm_lab.display import Lines
    from delayssm_lab.recipes.delayed import grid
    from delayssm_lab.training import cluster
    from delayssm_lab.training import sweep as local

    check_at_least(1, workers=workers, cpus_per_run=cpus_per_run)
    check_at_least(0, gpus_per_run=gpus_per_run)
    if ray and workers is not None:
        leave(2, "delayssm: --workers is for sweeps without --ray; give --cpus-per-run or --gpus-per-run instead")
    if not ray and (cpus_per_run, gpus_per_run) != (None, None):
        leave(2, "delayssm: --cpus-per-run and --gpus-per-run are for sweeps with --ray; give --workers instead")
    for name, values in (("tasks", tasks), ("models", models), ("seeds", seeds)):
        if not values:
            leave(2, f"delayssm: --{name} needs at least one value; leave the option out for its default")
    root = out or Path("runs") / scale
    try:
        runs = grid(tasks, models, scale, learning_rates, seeds)
    except ValueError as error:  # a model that cannot learn the task, or a rate or seed that cannot be
        leave(2, f"delayssm: {error}")
    if ray:
        outcomes = cluster.sweep(runs, root, Lines(), cpus_per_run or 1, gpus_per_run)
    else:
        outcomes = local.sweep(runs, root, workers)
    failed = [outcome for outcome in outcomes if outcome.error]
    done = f"{len(outcomes) - len(failed)} of {len(outcomes)}"
    print(f"{done} runs are finished. To plot them: {program()} report {quoted(root)}")
    if failed:
        leave(1, "\n".join(f"{outcome.directory}: {outcome.error}" for outcome in failed))
