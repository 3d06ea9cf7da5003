"""Speed of the generators of data sets on one core, beside the time that the original generators take."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from delayssm_lab.data.generate.listops import ListOpsGenerator
from delayssm_lab.data.generate.pathfinder import pathfinder_generator
from delayssm_lab.measure.measurement import Isolated
from delayssm_lab.measure.resources import fastest
from delayssm_lab.report import tables
from delayssm_lab.study import File, Readings

Dataset = Literal["Pathfinder, 32 x 32", "Path-X, 128 x 128", "ListOps"]
#: Seconds per sample of the original generators on one core, timed on another occasion.
ORIGINAL: dict[Dataset, float] = {
    "Pathfinder, 32 x 32": 0.4,
    "Path-X, 128 x 128": 4.2,
    "ListOps": 8 * 60 / 100_000,
}


@dataclass(frozen=True)
class Generation:
    """Samples of one data set. The process is bound to one core."""

    dataset: Dataset
    samples: int

    def measure(self) -> Readings:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        generate: dict[Dataset, Callable[[], object]] = {
            "Pathfinder, 32 x 32": lambda: pathfinder_generator(32, 14).images(self.samples, 0),
            "Path-X, 128 x 128": lambda: pathfinder_generator(128, 14).images(self.samples, 0),
            "ListOps": lambda: list(islice(ListOpsGenerator().rows(self.samples, 0), self.samples)),
        }
        return {"seconds per sample": fastest(generate[self.dataset], 4) / self.samples}


@dataclass(frozen=True)
class GeneratorSpeed(Isolated[Generation]):
    """Milliseconds per sample of each generator."""

    name = "generator-speed"
    title = "Speed of the generators of data sets, on one core"

    samples: tuple[tuple[Dataset, int], ...] = (
        ("Pathfinder, 32 x 32", 1000),
        ("Path-X, 128 x 128", 100),
        ("ListOps", 10_000),
    )

    def points(self) -> list[Generation]:
        return [Generation(dataset, count) for dataset, count in self.samples]

    def show(self, results: Mapping[Generation, Readings]) -> Iterable[File]:
        rows = []
        for point, values in results.items():
            ours, original = values["seconds per sample"], ORIGINAL[point.dataset]
            rows.append([point.dataset, f"{1e3 * ours:.2f}", f"{1e3 * original:g}", f"{original / ours:,.0f}"])
        head = ["data set", "ms per sample", "original, ms per sample", "times faster"]
        yield "table.md", tables.markdown(head, rows).encode()
