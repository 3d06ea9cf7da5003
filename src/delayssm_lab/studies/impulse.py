"""First-layer impulse responses of trained models: figures `delay-s4d-heatmaps` and `official-s4d-heatmaps`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from delayssm.layers.delay_ssm import DelaySSM
from delayssm.layers.diagonal_ssm import DiagonalSSM
from delayssm_lab.report.drawing import panels, png
from delayssm_lab.studies.checkpoints import Checkpoint, OfCheckpoints
from delayssm_lab.study import File, Places
from delayssm_lab.tasks.delayed import DelayedMemory
from delayssm_lab.training.run import Run

#: Smallest response of the colour scale, relative to the largest one of the panel.
FLOOR = 1e-4


class Responses(NamedTuple):
    """Impulse responses of the channels of a layer, sorted by a time of each channel.

    Args:
        K: Absolute values of the responses, (H, L).
        times: Delays, or times of the peaks, in steps, (H,).
    """

    K: NDArray[np.float64]
    times: NDArray[np.float64]


@dataclass(frozen=True)
class ImpulseResponses(OfCheckpoints):
    """Heatmaps of the responses of all channels: of DS4D sorted by delay, of S4D sorted by the time of the peak."""

    name = "impulse-responses"
    title = "First-layer impulse responses (figures delay-s4d-heatmaps, official-s4d-heatmaps)"

    def files(self, places: Places) -> Iterable[File]:
        for family, order in (("DS4D", "delay"), ("S4D", "peak")):
            mine = [checkpoint for checkpoint in self.checkpoints(places) if checkpoint.run.model_label == family]
            for source in dict.fromkeys(checkpoint.source for checkpoint in mine):
                chosen = [checkpoint for checkpoint in mine if checkpoint.source == source]
                responses = [_responses(checkpoint) for checkpoint in chosen]
                name = f"{family.lower()}{'' if source == 'small run' else '-full-size'}"
                yield f"{name}.png", _figure([checkpoint.run for checkpoint in chosen], responses, order)
                times = {
                    checkpoint.run.name: layer.times.tolist()
                    for checkpoint, layer in zip(chosen, responses, strict=True)
                }
                yield f"{name}.json", json.dumps({f"{order}s in steps": times}, indent=1).encode()


@torch.no_grad()
def _responses(checkpoint: Checkpoint) -> Responses:
    """Return the impulse responses of the first layer."""
    ssm = next(module for module in checkpoint.model().modules() if isinstance(module, DiagonalSSM))
    K = ssm.kernel(checkpoint.run.task.max_length).abs().double()
    times = ssm.delays().double() if isinstance(ssm, DelaySSM) else K.argmax(1).double()
    order = times.argsort(stable=True)
    return Responses(K[order].numpy(), times[order].numpy())


def _figure(runs: Sequence[Run], responses: Sequence[Responses], order: str) -> bytes:
    figure, axes = panels(len(runs), width=3.4, height=2.7)
    for axis, run, (K, times) in zip(axes, runs, responses, strict=True):
        decades = np.log10(np.maximum(K / K.max(), FLOOR))
        image = axis.imshow(decades, aspect="auto", cmap="magma", vmin=np.log10(FLOOR), vmax=0, interpolation="nearest")
        assert isinstance(run.task, DelayedMemory)
        axis.axvline(sum(run.task.lags) / 2, color="white", linestyle="--", linewidth=1.2)
        rows = np.linspace(0, len(times) - 1, min(6, len(times))).round().astype(int)
        axis.set_yticks(rows, [f"{times[row]:.0f}" for row in rows])
        axis.set_title(run.task.label)
        axis.set_xlabel("time since the impulse (steps)")
        axis.set_ylabel(f"channels, sorted by {order} (steps)")
    figure.colorbar(image, ax=axes, label="log10 of |response| / largest of the panel")
    return png(figure)
