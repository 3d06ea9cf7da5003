"""First-layer impulse responses of trained models: figures `delay-s4d-heatmaps` and `official-s4d-heatmaps`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from delayssm.layers.ssm import DelaySSM, DiagonalSSM
from delayssm_lab.report.drawing import panels, png
from delayssm_lab.studies.study import File, Study
from delayssm_lab.studies.trained import finished, one_of_each_task, train
from delayssm_lab.tasks.delayed import DelayedMemory
from delayssm_lab.training.evaluate import load_model
from delayssm_lab.training.run import Run

#: Responses are shown down to this part of the largest of their panel.
FLOOR = 1e-4


@dataclass(frozen=True)
class ImpulseResponses(Study):
    """Channels of DS4D sorted by their delays, those of S4D by the time of their peak."""

    name = "impulse-responses"
    title = "First-layer impulse responses (figures delay-s4d-heatmaps, official-s4d-heatmaps)"

    ds4d: tuple[Run, ...] = one_of_each_task("ds4d")
    s4d: tuple[Run, ...] = one_of_each_task("s4d")

    def progress(self, work: Path) -> tuple[int, int]:
        return len(finished(self.ds4d + self.s4d, work / "mini")), len(self.ds4d + self.s4d)

    def run(self, work: Path) -> None:
        train(self.ds4d + self.s4d, work / "mini")

    def seconds(self, work: Path) -> float:
        return sum(summary["seconds"] for summary in finished(self.ds4d + self.s4d, work / "mini"))

    def files(self, work: Path) -> Iterable[File]:
        for name, planned, order in (("ds4d", self.ds4d, "delay"), ("s4d", self.s4d, "peak")):
            runs = [run for run in planned if finished([run], work / "mini")]
            if not runs:
                continue
            found = [_responses(work / "mini" / run.name) for run in runs]
            yield f"{name}.png", _figure(runs, found, order)
            orders = {run.name: sorted(times.tolist()) for run, (_, times) in zip(runs, found, strict=True)}
            yield f"{name}.json", json.dumps({f"{order}s in steps": orders}, indent=1).encode()


@torch.no_grad()
def _responses(directory: Path) -> tuple[np.ndarray, np.ndarray]:
    """|K| (H, L) of the first layer, channels sorted by their times; and those times (H,)."""
    model, run = load_model(directory)
    ssm = next(module for module in model.modules() if isinstance(module, DiagonalSSM))
    K = ssm.kernel(run.task.max_length).abs().double()
    times = ssm.delays().double() if isinstance(ssm, DelaySSM) else K.argmax(1).double()
    order = times.argsort(stable=True)
    return K[order].numpy(), times[order].numpy()


def _figure(runs: Sequence[Run], found: Sequence[tuple[np.ndarray, np.ndarray]], order: str) -> bytes:
    figure, axes = panels(len(runs), width=4.4, height=3.4)
    for axis, run, (K, times) in zip(axes, runs, found, strict=True):
        shown = np.log10(np.maximum(K / K.max(), FLOOR))
        image = axis.imshow(shown, aspect="auto", cmap="magma", vmin=np.log10(FLOOR), vmax=0, interpolation="nearest")
        assert isinstance(run.task, DelayedMemory)
        axis.axvline(sum(run.task.lags) / 2, color="white", linestyle="--", linewidth=1.2)
        rows = np.linspace(0, len(times) - 1, min(6, len(times))).round().astype(int)
        axis.set_yticks(rows, [f"{times[row]:.0f}" for row in rows])
        axis.set_title(run.task.label)
        axis.set_xlabel("time since the impulse, in steps")
        axis.set_ylabel(f"channels by {order}")
    figure.colorbar(image, ax=axes, label="log10 |response|, 0 at the largest of each panel", shrink=0.7)
    return png(figure)
