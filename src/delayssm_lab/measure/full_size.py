"""One forward and backward pass of every run of the paper on the general benchmarks, one sample at a time.

python -m delayssm_lab.measure.full_size BENCHMARK MODEL
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import torch
from torch import Tensor, nn

from delayssm.allocator import keep_freed_memory
from delayssm.layers.inputs import Tokens
from delayssm.models.pooled import PairModel, PooledModel
from delayssm_lab.environment import peak_memory
from delayssm_lab.measure import fresh
from delayssm_lab.recipes.general import BENCHMARKS, BenchmarkName, paper
from delayssm_lab.report import tables
from delayssm_lab.studies.study import File, Found, Measured
from delayssm_lab.training.run import Run

Model = Literal["ds4d", "s4d"]


@dataclass(frozen=True)
class Pass:
    """One model at full size."""

    benchmark: BenchmarkName
    model: Model


@dataclass(frozen=True)
class FullSize(Measured[Pass]):
    """Seconds and memory of a pass, each in a process of its own."""

    name = "full-size"
    title = "A pass of every run of the paper on the general benchmarks, batch 1"

    benchmarks: tuple[BenchmarkName, ...] = BENCHMARKS

    def points(self) -> list[Pass]:
        return [Pass(name, model) for name in self.benchmarks for model in cast(tuple[Model, ...], ("ds4d", "s4d"))]

    def measure(self, point: Pass, work: Path) -> Found:
        return fresh.call("delayssm_lab.measure.full_size", point.benchmark, point.model)

    def show(self, found: Mapping[Pass, Found]) -> Iterable[File]:
        head = ["task", "model", "length", "layers", "H", "N", "parameters", "forward, s", "backward, s", "peak GB"]
        rows = []
        for point, values in found.items():
            run = paper(point.benchmark, point.model)
            spec, documents = run.model, 2 if point.benchmark == "retrieval" else 1
            sizes = spec.depth, spec.d_model, spec.d_state  # type: ignore[union-attr]
            rows.append(
                [
                    run.task.label,
                    run.model_label,
                    f"{'2 x ' if documents == 2 else ''}{run.task.max_length:,}",
                    *map(str, sizes),
                    f"{values['parameters']:,.0f}",
                    f"{values['forward']:.2f}",
                    f"{values['backward']:.2f}",
                    f"{values['bytes'] / 1e9:.2f}",
                ]
            )
        yield "table.md", tables.markdown(head, rows).encode()


def measure(run: Run) -> Found:
    """The faster of two passes, and the peak of memory of this process."""
    keep_freed_memory()
    torch.manual_seed(0)
    model = run.build()
    inputs = _inputs(model, run.task.max_length)
    times = []
    for _ in range(2):
        model.zero_grad()
        began = time.perf_counter()
        answer = model(*inputs)
        between = time.perf_counter()
        answer.square().sum().backward()
        times.append((between - began, time.perf_counter() - between))
    forward, backward = min(times, key=sum)
    if not all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters()):
        raise FloatingPointError(f"{run.name}: a gradient is missing or not finite")
    parameters = sum(p.numel() for p in model.parameters())
    return {"forward": forward, "backward": backward, "bytes": peak_memory(), "parameters": parameters}


def _inputs(model: nn.Module, length: int) -> list[Tensor]:
    """One sample of the longest kind, of noise: what is in it changes neither time nor memory."""
    if isinstance(model, PairModel):
        return [*_inputs(model.encoder, length), *_inputs(model.encoder, length)]
    assert isinstance(model, PooledModel)
    if isinstance(model.inputs, Tokens):
        return [torch.randint(0, model.inputs.num_embeddings, (1, length))]
    return [torch.randn(1, length, model.inputs.in_features)]


if __name__ == "__main__":
    chosen, by = sys.argv[1:]
    print(json.dumps(measure(paper(cast(BenchmarkName, chosen), cast(Model, by)))))  # noqa: T201
