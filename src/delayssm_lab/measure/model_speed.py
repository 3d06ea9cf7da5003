"""Training speed of all models at the paper's sizes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from delayssm.allocator import keep_freed_memory
from delayssm_lab.display import Silent
from delayssm_lab.environment import Device, peak_memory
from delayssm_lab.measure.measurement import OnDevice
from delayssm_lab.measure.resources import seconds
from delayssm_lab.recipes.delayed import MODELS, AnyTaskName, ModelName, Scale, preset
from delayssm_lab.report import tables
from delayssm_lab.study import File, Readings
from delayssm_lab.training.trainer import Trainer, make_accelerator


@dataclass(frozen=True)
class PresetSteps:
    """Training steps of a preset run, as `delayssm train` makes them."""

    task: AnyTaskName
    model: ModelName
    scale: Scale
    steps: int
    device: Device = "cpu"

    def measure(self) -> Readings:
        keep_freed_memory()
        run = preset(self.task, self.model, self.scale)
        with tempfile.TemporaryDirectory() as directory:
            trainer = Trainer(run, Path(directory), make_accelerator(run, self.device), Silent())
            times = [seconds(trainer.step, self.device) for _ in range(self.steps + 1)]
        return {"seconds": min(times[1:]), "peak bytes": peak_memory(self.device), "parameters": run.parameters()}


@dataclass(frozen=True)
class ModelSpeed(OnDevice[PresetSteps]):
    """The fastest of several training steps of each model, after a first one."""

    quantity = "model-speed"
    subject = "Training speed of all models at the paper's sizes"

    tasks: tuple[AnyTaskName, ...] = ("copy-fixed", "sum-fixed")
    models: tuple[ModelName, ...] = MODELS
    scale: Scale = "paper"
    steps: int = 3

    def points(self) -> list[PresetSteps]:
        return [
            PresetSteps(task, model, self.scale, self.steps, self.device)
            for task in self.tasks
            for model in self.models
        ]

    def show(self, results: Mapping[PresetSteps, Readings]) -> Iterable[File]:
        head = ["task", "model", "parameters", "rows at once", "s/step", "tokens/s", "speed / DS4D", "peak GB"]
        base = {point.task: values["seconds"] for point, values in results.items() if point.model == "ds4d"}
        rows = []
        for point, values in results.items():
            run = preset(point.task, point.model, point.scale)
            tokens = run.training.batch_size * run.task.max_length
            rows.append([
                point.task,
                run.model_label,
                f"{values['parameters']:,.0f}",
                str(run.training.rows_at_once or run.training.batch_size),
                f"{values['seconds']:.2f}",
                f"{tokens / values['seconds']:,.0f}",
                f"{base[point.task] / values['seconds']:.2f}" if point.task in base else "",
                f"{values['peak bytes'] / 1e9:.1f}",
            ])  # fmt: skip
        yield "table.md", tables.markdown(head, rows).encode()
