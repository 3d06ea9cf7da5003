"""One forward and backward pass of every run of the paper on the general benchmarks, one sample at a time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from delayssm.allocator import keep_freed_memory
from delayssm_lab.environment import peak_memory
from delayssm_lab.measure.measurement import Isolated
from delayssm_lab.models.noise import noise
from delayssm_lab.recipes.general import BENCHMARKS, BenchmarkName, paper
from delayssm_lab.report import tables
from delayssm_lab.study import File, Readings

Model = Literal["ds4d", "s4d"]


@dataclass(frozen=True)
class Pass:
    """The faster of two passes of one model at full size."""

    benchmark: BenchmarkName
    model: Model

    def measure(self) -> Readings:
        keep_freed_memory()
        torch.manual_seed(0)
        run = paper(self.benchmark, self.model)
        model = run.build()
        inputs = noise(model, run.task.max_length)
        times = []
        for _ in range(2):
            model.zero_grad()
            start = time.perf_counter()
            outputs = model(*inputs)
            middle = time.perf_counter()
            outputs.square().sum().backward()
            times.append((middle - start, time.perf_counter() - middle))
        forward, backward = min(times, key=sum)
        if not all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters()):
            raise FloatingPointError(f"{run.name}: a gradient is missing or not finite")
        parameters = sum(p.numel() for p in model.parameters())
        return {"forward": forward, "backward": backward, "peak bytes": peak_memory(), "parameters": parameters}


@dataclass(frozen=True)
class FullSize(Isolated[Pass]):
    """Seconds and memory of a pass of each model on each benchmark."""

    name = "full-size"
    title = "A pass of every run of the paper on the general benchmarks, batch 1"

    benchmarks: tuple[BenchmarkName, ...] = BENCHMARKS

    def points(self) -> list[Pass]:
        models: tuple[Model, ...] = get_args(Model)
        return [Pass(name, model) for name in self.benchmarks for model in models]

    def show(self, results: Mapping[Pass, Readings]) -> Iterable[File]:
        head = ["task", "model", "length", "layers", "H", "N", "parameters", "forward, s", "backward, s", "peak GB"]
        rows = []
        for point, values in results.items():
            run = paper(point.benchmark, point.model)
            spec = run.model
            sizes = spec.depth, spec.d_model, spec.d_state  # type: ignore[union-attr]
            rows.append([
                run.task.label,
                run.model_label,
                f"{'2 x ' if point.benchmark == 'retrieval' else ''}{run.task.max_length:,}",
                *map(str, sizes),
                f"{values['parameters']:,.0f}",
                f"{values['forward']:.2f}",
                f"{values['backward']:.2f}",
                f"{values['peak bytes'] / 1e9:.2f}",
            ])  # fmt: skip
        yield "table.md", tables.markdown(head, rows).encode()
