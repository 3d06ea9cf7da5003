"""Training steps of DS4D on single sequences of up to 131,072 tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from delayssm_lab.measure.measurement import OnDevice
from delayssm_lab.measure.stacks import NARROW, StackSize
from delayssm_lab.measure.training_step import TrainingStep
from delayssm_lab.report import tables
from delayssm_lab.study import File, Readings


@dataclass(frozen=True)
class LongSequences(OnDevice[TrainingStep]):
    """Four blocks of DS4D, H 64, N 64, batch 1."""

    quantity = "long-sequences"
    subject = "Training on long sequences"

    lengths: tuple[int, ...] = (4096, 65_536, 131_072)
    stack: StackSize = NARROW

    def points(self) -> list[TrainingStep]:
        return [TrainingStep(self.stack, "library", 1, length, device=self.device) for length in self.lengths]

    def show(self, results: Mapping[TrainingStep, Readings]) -> Iterable[File]:
        per_token = {point: values["seconds"] / point.length for point, values in results.items()}
        shortest = next(iter(per_token.values()))
        head = ["length", "s/step", "microseconds/token", "/ first row", "peak GB"]
        rows = [
            [
                f"{point.length:,}",
                f"{values['seconds']:.2f}",
                f"{per_token[point] * 1e6:.1f}",
                f"{per_token[point] / shortest:.2f}",
                f"{values['peak bytes'] / 1e9:.1f}",
            ]
            for point, values in results.items()
        ]
        yield "table.md", tables.markdown(head, rows).encode()
