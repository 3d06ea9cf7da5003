"""Known delays: whether they are found in noisy data, and whether training finds them without help."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray

from delayssm.layers.delay_ssm import DelaySSM
from delayssm.layers.optim import param_groups
from delayssm.suggestion import delay_evidence
from delayssm_lab.report import tables
from delayssm_lab.report.drawing import legend, panels, png
from delayssm_lab.study import File, Kept, Places, Readings

#: The lags that are to be found, the first of them also by training alone.
LAGS = (100, 171, 230)
MAX_DELAY = 256


@dataclass(frozen=True)
class Search:
    """A search in data: series of 512 steps, each the sum of its echoes at the three lags and of noise."""

    noise: float  #: standard deviation of the noise, relative to that of an echo
    rows: int  #: number of series
    trials: int


@dataclass(frozen=True)
class Descent:
    """Training of single channels, each to delay its own input by the first lag, from a wrong delay on."""

    offset: float  #: delay at the start, less the right one
    correlation: float  #: correlation of the inputs with themselves one step later
    steps: int
    channels: int


@dataclass(frozen=True)
class Recovery(Kept[Search | Descent]):
    """How often lags are found exactly, and how close training comes to a lag from some distance."""

    name = "recovery"
    title = "Known delays, found in noisy data and by training"

    noises: tuple[float, ...] = (1.0, 4.0, 8.0, 16.0, 32.0)
    rows: tuple[int, ...] = (16, 128)
    trials: int = 20
    offsets: tuple[float, ...] = (-32.0, -16.0, -8.0, -4.0, -2.0, -1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
    correlations: tuple[float, ...] = (0.0, 0.9, 0.99)
    steps: int = 1000
    channels: int = 16

    def points(self) -> list[Search | Descent]:
        searches = [Search(noise, rows, self.trials) for rows, noise in product(self.rows, self.noises)]
        pairs = product(self.correlations, self.offsets)
        return [*searches, *(Descent(offset, rho, self.steps, self.channels) for rho, offset in pairs)]

    def measure(self, point: Search | Descent, places: Places) -> Readings:
        return _search(point) if isinstance(point, Search) else _descend(point)

    def show(self, results: Mapping[Search | Descent, Readings]) -> Iterable[File]:
        searches = {point: values for point, values in results.items() if isinstance(point, Search)}
        rows = [
            [f"{point.rows}", f"{point.noise:g}", f"{100 * values['found']:.0f} %", f"{values['wrong']:.2f}"]
            for point, values in searches.items()
        ]
        head = ["series of 512", "noise / echo", "lags found exactly", "wrong lags per search"]
        yield "table.md", tables.markdown(head, rows).encode()
        yield "descent.png", self._picture({p: v for p, v in results.items() if isinstance(p, Descent)})

    def _picture(self, results: Mapping[Descent, Readings]) -> bytes:
        figure, (axis,) = panels(1, width=6.4, height=3.6)
        for marker, rho in zip("osDv^", self.correlations, strict=False):
            mine = {point.offset: values for point, values in results.items() if point.correlation == rho}
            ends = [mine[offset]["median distance at the end"] for offset in sorted(mine)]
            axis.plot(sorted(mine), ends, marker=marker, label=f"correlation of inputs {rho:g}")
        axis.set(xscale="symlog", yscale="symlog", xlabel="delay at the start, less the right one (steps)")
        axis.set_ylabel("distance after training (steps)")
        legend(figure, [axis])
        return png(figure)


def _delayed(x: NDArray[np.float64], lag: int) -> NDArray[np.float64]:
    return np.concatenate([np.zeros_like(x[:, :lag]), x[:, : x.shape[1] - lag]], axis=1)


def _search(point: Search) -> Readings:
    found = wrong = 0
    for trial in range(point.trials):
        random = np.random.default_rng(trial)
        x, noise = random.normal(size=(2, point.rows, 512))
        y = np.sum([_delayed(x, lag) for lag in LAGS], axis=0) + point.noise * noise
        lags = set(delay_evidence(x, y, MAX_DELAY, seed=trial).lags)
        found, wrong = found + len(lags & set(LAGS)), wrong + len(lags - set(LAGS))
    return {"found": found / (point.trials * len(LAGS)), "wrong": wrong / point.trials}


def _descend(point: Descent) -> Readings:
    """Train channels side by side; they are independent, so that each is one trial."""
    random = np.random.default_rng(0)
    torch.manual_seed(0)
    start = LAGS[0] + point.offset
    layer = DelaySSM(point.channels, 8, MAX_DELAY, delays=start, branch_fraction=0.5, phase=0.0)
    optimiser = torch.optim.AdamW(param_groups(layer, lr=1e-2))
    for _ in range(point.steps):
        x = random.normal(size=(8 * point.channels, 512))
        for t in range(1, x.shape[1]):
            x[:, t] = point.correlation * x[:, t - 1] + (1 - point.correlation**2) ** 0.5 * x[:, t]
        inputs, targets = (
            torch.from_numpy(series).float().view(8, point.channels, -1).mT for series in (x, _delayed(x, LAGS[0]))
        )
        loss = (layer(inputs) - targets).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    distances = (layer.delays().detach().double() - LAGS[0]).abs()
    return {"median distance at the end": float(distances.median()), "largest": float(distances.max())}
