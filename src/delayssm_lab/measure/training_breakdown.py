"""What the time of a training step goes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

from delayssm.allocator import keep_freed_memory
from delayssm_lab.measure.training_step import TrainingStep
from delayssm_lab.report import tables
from delayssm_lab.study import Readings

#: Parts of a step, and what the names of their operators contain. The profiler calls operators of this library by
#: several names.
PARTS = {
    "dense products": ("aten::mm", "aten::addmm"),
    "convolutions": ("delayssm::convolve", "delayssm_convolve"),
    "kernels": ("delayssm::kernel", "delayssm_kernel"),
}
REST = "element-wise and other"


@dataclass(frozen=True)
class Breakdown:
    """The time of each part of a step on the CPU, without that of operators within: the mean of several steps."""

    step: TrainingStep
    steps: int = 5

    def measure(self) -> Readings:
        keep_freed_memory()
        torch.manual_seed(0)
        step = self.step.prepare()(self.step.batch_size)
        for _ in range(2):  # compile, and fetch memory
            step()
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            for _ in range(self.steps):
                step()
        seconds = dict.fromkeys((*PARTS, REST), 0.0)
        for operator in profiler.key_averages():
            seconds[part_of(operator.key)] += operator.self_cpu_time_total / 1e6 / self.steps
        return seconds


def part_of(operator: str) -> str:
    """Return the part of a step that an operator belongs to."""
    return next((part for part, names in PARTS.items() if any(name in operator for name in names)), REST)


def table(results: Mapping[Breakdown, Readings]) -> str:
    """Return a table of milliseconds and shares, one row for each shape."""
    head = ["batch x length", "ms/step", *(f"{part}, ms" for part in (*PARTS, REST)), "GFLOPS of the products"]
    rows = []
    for point, values in results.items():
        step, whole = point.step, sum(values.values())
        # The linear map of a layer, H to 2 H, and its two gradients.
        flops = 12 * step.batch_size * step.length * step.stack.d_model**2 * step.stack.depth
        rows.append([
            f"{step.batch_size} x {step.length:,}",
            f"{whole * 1e3:,.0f}",
            *(f"{values[part] * 1e3:,.0f} ({values[part] / whole:.0%})" for part in (*PARTS, REST)),
            f"{flops / values['dense products'] / 1e9:.0f}",
        ])  # fmt: skip
    return tables.markdown(head, rows)
