"""Evaluate the best weights of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import tyro

from delayssm_lab.cli.common import check_at_least, check_between


def command(directory: tyro.conf.Positional[Path], samples: int = 1024, seed: int | None = None) -> None:
    """Evaluate the best weights of a run.

    Prints the metric on test samples and its chance level. Delayed memory and recall have no test samples; for them it
    prints the accuracy on validation samples, for delayed memory at each lag. These are the samples that selected the
    weights, unless another seed is given.

    Args:
        directory: Directory of the run.
        samples: Largest number of samples to evaluate on.
        seed: Seed of the samples of delayed memory and recall. By default that of the run.
    """
    from delayssm_lab.data import limits
    from delayssm_lab.tasks.delayed import DelayedMemory
    from delayssm_lab.tasks.recall import RecallTask
    from delayssm_lab.tasks.task import Split
    from delayssm_lab.training.evaluate import accuracy_by_lag, best_model, measure
    from delayssm_lab.training.run import load

    check_between(1, limits.GENERATED, samples=samples)
    check_at_least(0, seed=seed)
    run, _ = load(directory)
    model = best_model(directory, run)
    chosen = run if seed is None else replace(run, seed=seed)  # raises an error if there is no such seed
    if not isinstance(run.task, DelayedMemory):
        split = Split.VALIDATION if isinstance(run.task, RecallTask) else Split.TEST
        value = measure(model, run.task, split, samples, chosen.seed if isinstance(run.task, RecallTask) else run.seed)
        kind, chance = split.name.lower(), run.task.chance_level()
        print(f"{run.task.metric.label} {value:.4f} on {kind} samples; chance level {chance:.4f}")
        return
    by_lag = accuracy_by_lag(model, run.task, samples, chosen.seed)
    for lag, accuracy in by_lag.items():
        print(f"lag {lag}: {accuracy.mean:.4f} ({accuracy.samples} samples)")
    total = sum(accuracy.mean * accuracy.samples for accuracy in by_lag.values())
    print(f"accuracy {total / samples:.4f}")
