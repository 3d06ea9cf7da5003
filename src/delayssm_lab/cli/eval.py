"""Evaluate the best weights of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import tyro

from delayssm_lab.cli.common import check_at_least, check_between


def command(directory: tyro.conf.Positional[Path], samples: int | None = None, seed: int | None = None) -> None:
    """Evaluate the best weights of a run.

    Prints the metric on test samples and its chance level. Tasks that generate their samples, such as delayed memory
    and recall, have no test samples; for them it prints the metric on validation samples, for delayed memory at each
    lag. These are the samples that selected the weights, unless another seed is given.

    Args:
        directory: Directory of the run.
        samples: Largest number of samples to evaluate on. By default that of the run: its test_size or validation_size.
        seed: Seed of generated samples. By default that of the run.
    """
    from delayssm_lab.data import limits
    from delayssm_lab.tasks.delayed import DelayedMemory
    from delayssm_lab.tasks.task import Split
    from delayssm_lab.training.evaluate import accuracy_by_lag, available, best_model, measure
    from delayssm_lab.training.run import load

    if samples is not None:
        check_between(1, limits.GENERATED, samples=samples)
    check_at_least(0, seed=seed)
    run, _ = load(directory)
    model = best_model(directory, run)
    chosen = run if seed is None else replace(run, seed=seed)  # raises an error if there is no such seed
    split = Split.TEST if run.task.size(Split.TEST) else Split.VALIDATION
    limit = run.training.test_size if split is Split.TEST else run.training.validation_size
    count = available(run.task, split, samples or limit)
    kind = f"{count:,} {split.name.lower()} samples"
    if not isinstance(run.task, DelayedMemory):
        value, chance = measure(model, run.task, split, count, chosen.seed), run.task.chance_level()
        print(f"{run.task.metric.label} {value:.4f} on {kind}; chance level {chance:.4f}")
        return
    by_lag = accuracy_by_lag(model, run.task, count, chosen.seed)
    for lag, accuracy in by_lag.items():
        print(f"lag {lag}: {accuracy.mean:.4f} ({accuracy.samples:,} samples)")
    mean = sum(accuracy.mean * accuracy.samples for accuracy in by_lag.values()) / count
    print(f"accuracy {mean:.4f} on {kind}")
