"""Known delays: whether they are found in noisy data, and whether training finds them without help."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from delayssm.suggestion import delay_evidence
from delayssm_lab.report import tables
from delayssm_lab.report.drawing import legend, panels, png
from delayssm_lab.studies.descent import LENGTH, Descent, delayed, descend
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
class Recovery(Kept[Search | Descent]):
    """How often lags are found exactly, and how close training comes to a lag from some distance."""

    name = "recovery"
    title = "Known delays, found in noisy data and by training"

    noises: tuple[float, ...] = (1.0, 4.0, 8.0, 16.0, 32.0)
    rows: tuple[int, ...] = (16, 128)
    trials: int = 20
    offsets: tuple[float, ...] = (-64.0, -32.0, -16.0, -8.0, 8.0, 16.0, 32.0, 64.0)
    correlations: tuple[float, ...] = (0.0, 0.9)
    widths: tuple[float, ...] = (1.0, 32.0)
    steps: int = 600
    channels: int = 12

    def points(self) -> list[Search | Descent]:
        searches = [Search(noise, rows, self.trials) for rows, noise in product(self.rows, self.noises)]
        settings = product(self.correlations, self.widths, self.offsets)
        descents = [
            Descent(LAGS[0], offset, rho, width, self.steps, self.channels, MAX_DELAY)
            for rho, width, offset in settings
        ]
        return [*searches, *descents]

    def measure(self, point: Search | Descent, places: Places) -> Readings:
        return _search(point) if isinstance(point, Search) else descend(point)

    def show(self, results: Mapping[Search | Descent, Readings]) -> Iterable[File]:
        searches = {point: values for point, values in results.items() if isinstance(point, Search)}
        rows = [
            [f"{point.rows}", f"{point.noise:g}", f"{100 * values['found']:.0f} %", f"{values['wrong']:.2f}"]
            for point, values in searches.items()
        ]
        head = ["series of 512", "noise / echo", "lags found exactly", "wrong lags per search"]
        yield "table.md", tables.markdown(head, rows).encode()
        descents = {point: values for point, values in results.items() if isinstance(point, Descent)}
        yield "descent.md", self._descents(descents).encode()
        yield "descent.png", self._picture(descents)

    def _descents(self, results: Mapping[Descent, Readings]) -> str:
        """Return how many channels end at the lag, and at half of it, whose second echo is the lag."""
        cells = {
            (p.correlation, p.width, p.offset): f"{100 * v['at the lag']:.0f} + {100 * v['at half of the lag']:.0f}"
            for p, v in results.items()
        }
        rows = [
            [f"{rho:g}", f"{width:g}", *(cells.get((rho, width, offset), "") for offset in self.offsets)]
            for rho, width in product(self.correlations, self.widths)
        ]
        head = ["correlation of inputs", "first half-width", *(f"{offset:+g}" for offset in self.offsets)]
        return tables.markdown(head, rows)

    def _picture(self, results: Mapping[Descent, Readings]) -> bytes:
        """Return how many channels end at the lag, by where they start; a panel for each correlation of the inputs."""
        figure, axes = panels(len(self.correlations), width=4.4, height=3.0)
        for axis, rho in zip(axes, self.correlations, strict=True):
            for style, width in zip(("C0o-", "C2D:", "C3s--", "C1v-."), self.widths, strict=False):
                mine = {p.offset: v for p, v in results.items() if (p.correlation, p.width) == (rho, width)}
                shares = [mine[offset]["at the lag"] for offset in sorted(mine)]
                axis.plot(sorted(mine), shares, style, label=f"half-width {width:g} at first")
            axis.set_xscale("symlog", base=2, linthresh=min(map(abs, self.offsets)))
            axis.set_xticks(self.offsets, [f"{offset:+g}" for offset in self.offsets])
            axis.minorticks_off()
            axis.set(ylim=(-0.05, 1.05), xlabel="delay at the start, less the right one (steps)")
            axis.set_title(f"correlation of inputs {rho:g}")
        axes[0].set_ylabel("channels that end at the lag")
        legend(figure, axes)
        return png(figure)


def _search(point: Search) -> Readings:
    found = wrong = 0
    for trial in range(point.trials):
        random = np.random.default_rng(trial)
        x, noise = random.normal(size=(2, point.rows, LENGTH))
        y = np.sum([delayed(x, lag) for lag in LAGS], axis=0) + point.noise * noise
        lags = set(delay_evidence(x, y, MAX_DELAY, seed=trial).lags)
        found, wrong = found + len(lags & set(LAGS)), wrong + len(lags - set(LAGS))
    return {"found": found / (point.trials * len(LAGS)), "wrong": wrong / point.trials}
