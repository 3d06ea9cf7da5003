"""How fast models train, each in a process of its own.

python -m delayssm_lab.measure.throughput TASK MODEL SCALE STEPS DEVICE
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

from delayssm.allocator import keep_freed_memory
from delayssm_lab.display import Silent
from delayssm_lab.environment import Device, peak_memory, wait
from delayssm_lab.measure import fresh
from delayssm_lab.recipes.delayed import ALL_TASKS, AnyTaskName, ModelName, Scale, preset
from delayssm_lab.training.trainer import Trainer, make_accelerator

HEAD = ("task", "model", "parameters", "rows at once", "s/step", "tokens/s", "/ DS4D", "peak GB")


def measure(
    tasks: Sequence[AnyTaskName], models: Sequence[ModelName], scale: Scale, steps: int, device: Device
) -> Iterator[tuple[str, ...]]:
    """Rows of a table under `HEAD`, as they are found. Speed relative to DS4D where that is measured first."""
    for task in tasks:
        reference = None
        for model in models:
            found = fresh.call("delayssm_lab.measure.throughput", task, model, scale, steps, device)
            run = preset(task, model, scale)
            tokens = run.training.batch_size * run.task.max_length / found["seconds"]
            reference = tokens if model == "ds4d" else reference
            yield (
                task,
                run.label,
                f"{run.parameters():,}",
                str(run.training.rows_at_once or run.training.batch_size),
                f"{found['seconds']:.2f}",
                f"{tokens:,.0f}",
                "" if reference is None else f"{tokens / reference:.2f}",
                f"{found['bytes'] / 1e9:.1f}",
            )


def time_steps(task: AnyTaskName, model: ModelName, scale: Scale, steps: int, device: Device) -> dict[str, float]:
    """The fastest of several training steps after a first one, as a run makes them, and the peak of memory."""
    keep_freed_memory()
    run = preset(task, model, scale)
    times = []
    with tempfile.TemporaryDirectory() as nowhere:
        trainer = Trainer(run, Path(nowhere), make_accelerator(run, device), Silent())
        for _ in range(steps + 1):
            began = time.perf_counter()
            trainer.step()
            wait(device)
            times.append(time.perf_counter() - began)
    return {"seconds": min(times[1:]), "bytes": peak_memory(device)}


if __name__ == "__main__":
    task, model, scale, steps, device = sys.argv[1:]
    assert task in ALL_TASKS
    assert model in get_args(ModelName)
    assert scale in get_args(Scale)
    assert device in get_args(Device)
    print(json.dumps(time_steps(task, model, scale, int(steps), device)))  # type: ignore[arg-type]  # noqa: T201
