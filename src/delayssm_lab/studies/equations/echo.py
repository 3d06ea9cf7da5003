"""Cancelling an echo: systems with delays against the filters that are usually taken."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import nn

from delayssm.layers.delay_ssm import DelaySSM
from delayssm.layers.diagonal_ssm import DiagonalSSM
from delayssm.layers.optim import param_groups
from delayssm.suggestion import delay_evidence, place_delays
from delayssm_lab.data.generate.echoes import Array, EchoPath, Recording, convolved, record
from delayssm_lab.report import tables
from delayssm_lab.report.drawing import panels, png
from delayssm_lab.studies.equations.contenders import parameters
from delayssm_lab.studies.equations.nlms import adapt
from delayssm_lab.study import File, Kept, Places, Readings

Method = Literal["DelaySSM, suggested delays", "DelaySSM, delays on a grid", "DiagonalSSM", "NLMS", "short NLMS"]
METHODS: tuple[Method, ...] = (
    "NLMS", "short NLMS", "DelaySSM, suggested delays", "DelaySSM, delays on a grid", "DiagonalSSM",
)  # fmt: skip
#: Number of the first path. Path 0 is the one that the settings below were chosen with.
FIRST = 1
#: Distance in samples within which a learned delay counts as that of an echo.
CLOSE = 4
#: Ranges of the systems' step sizes at the start, all of which are tried for each system. They hardly change in
#: training. With the first one, modes remember one to some twenty samples, which is enough if delays reach the echoes.
#: With the last one, they remember up to two thousand samples, so that a system without delays reaches all echoes.
STEP_SIZES = (0.1, 2.0), (1e-2, 1.0), (1e-3, 0.1)


@dataclass(frozen=True)
class Cancelling:
    """One method on one path.

    Args:
        method: What cancels the echo.
        near: Level of the near end relative to the echo, in decibels.
        path: Seed of the path, of its signals, and of the initial parameters.
        taps: Longest delay, and number of taps of the filter.
        echoes: Number of echoes.
        signals: Number of signals to train on, and to test; a quarter as many choose.
        length: Length of each.
        epochs: Passes over the training signals.
        channels: Channels of the systems.
        states: State size of each channel.
        rates: Learning rates of the systems, or step sizes of the filters.
        step_sizes: Ranges of the systems' step sizes at the start; none for filters. Of all pairs of a rate and a
            range, the best one on the choosing signals is taken.
    """

    method: Method
    near: float
    path: int
    taps: int
    echoes: int
    signals: int
    length: int
    epochs: int
    channels: int
    states: int
    rates: tuple[float, ...]
    step_sizes: tuple[tuple[float, float], ...]


class _Found(NamedTuple):
    """An impulse response that was found, and how.

    Args:
        error: Power of what is left of the choosing recordings, by which the response is chosen.
        response: The impulse response, (length,).
        epoch: Number of passes over the training signals.
        rate: Learning rate of a system, or step size of a filter.
        step_sizes: Range of a system's step sizes at the start.
        delays: Delays of a system that has some.
    """

    error: float
    response: Array
    epoch: int
    rate: float
    step_sizes: tuple[float, float] | None = None
    delays: tuple[float, ...] = ()


@dataclass(frozen=True)
class EchoPaths(Kept[Cancelling]):
    """Echo return loss enhancement, and whether the learned delays are those of the echoes."""

    name = "echo-path"
    title = "Cancelling an echo: systems with delays against normalised LMS filters"

    nears: tuple[float, ...] = (-30.0, -10.0, 0.0)
    paths: int = 5
    taps: int = 1024
    echoes: int = 4
    signals: int = 8
    length: int = 4096
    filter_passes: int = 40
    epochs: int = 500
    channels: int = 16
    states: int = 4
    rates: tuple[float, ...] = (1e-2, 3e-2, 1e-1, 3e-1)
    step_sizes: tuple[tuple[float, float], ...] = STEP_SIZES
    filter_rates: tuple[float, ...] = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)

    def points(self) -> list[Cancelling]:
        sizes = self.taps, self.echoes, self.signals, self.length
        systems = self.channels, self.states
        points = []
        for path, near, method in product(range(FIRST, FIRST + self.paths), self.nears, METHODS):
            if "NLMS" in method:
                point = Cancelling(method, near, path, *sizes, self.filter_passes, *systems, self.filter_rates, ())
            else:
                point = Cancelling(method, near, path, *sizes, self.epochs, *systems, self.rates, self.step_sizes)
            points.append(point)
        return points

    def measure(self, point: Cancelling, places: Places) -> Readings:
        path = EchoPath.draw(point.echoes, point.taps, point.path)
        random = np.random.default_rng(point.path)
        trained, chosen, tested = (
            record(path, point.near, count, point.length, random)
            for count in (point.signals, max(1, point.signals // 4), point.signals)
        )
        number, found = _filtered(point, trained, chosen) if "NLMS" in point.method else _fitted(point, trained, chosen)
        true = path.response(point.length)
        left = tested.echo - convolved(tested.played, found.response)
        readings: Readings = {
            "parameters": number,
            "rate": found.rate,
            "best epoch": found.epoch,
            "enhancement": _decibels(tested.echo, left),
            "distance": -_decibels(true, true - found.response),
        }
        if found.step_sizes:
            readings |= {"smallest step size": found.step_sizes[0], "largest step size": found.step_sizes[1]}
        if found.delays:
            distances = [min(abs(delay - echo) for delay in found.delays) for echo in path.delays]
            readings["found"] = float(np.mean([distance <= CLOSE for distance in distances]))
            readings |= {f"delay {i}": delay for i, delay in enumerate(found.delays)}
        if point.path == FIRST and point.near == self.nears[0]:
            readings |= {
                f"response {t}": round(float(value), 5) for t, value in enumerate(found.response[: point.taps])
            }
        return readings

    def show(self, results: Mapping[Cancelling, Readings]) -> Iterable[File]:
        nears = list(dict.fromkeys(point.near for point in results))
        rows = []
        for method in METHODS:
            mine = {point: values for point, values in results.items() if point.method == method}
            if not mine:
                continue
            quiet = [values for point, values in mine.items() if point.near == self.nears[0]]
            cells = [_spread([v["enhancement"] for p, v in mine.items() if p.near == near]) for near in nears]
            distance = _spread([values["distance"] for values in quiet])
            found = [values["found"] for values in quiet if "found" in values]
            share = f"{100 * np.mean(found):.0f} %" if found else "–"
            number = next(iter(mine.values()))["parameters"]
            rows.append([method, f"{number:,.0f}", *cells, distance, share])
        head = ["method", "parameters", *(f"near end {near:+g} dB: ERLE, dB" for near in nears)]
        head += ["distance of responses, dB", f"echoes with a delay within {CLOSE} samples"]
        yield "table.md", tables.markdown(head, rows).encode()
        pictured = {point.method: v for point, v in results.items() if "response 0" in v}
        if pictured:
            yield "echo-path.png", self._picture(pictured)

    def _picture(self, results: Mapping[Method, Readings]) -> bytes:
        """Return the true response of the first path and those that were found, with the learned delays."""
        figure, axes = panels(1 + len(results), width=8, height=1.5, columns=1)
        true = EchoPath.draw(self.echoes, self.taps, FIRST)
        _draw(axes[0], true.response(self.taps), list(map(float, true.delays)), "the echo path")
        for axis, (method, readings) in zip(axes[1:], results.items(), strict=True):
            response = np.array([v for key, v in readings.items() if key.startswith("response ")])
            delays = [v for key, v in readings.items() if key.startswith("delay ")]
            _draw(axis, response, delays, f"{method}: ERLE {readings['enhancement']:.1f} dB")
            axis.sharey(axes[0])
        axes[-1].set_xlabel("lag (samples); marks below are delays")
        return png(figure)


def _filtered(point: Cancelling, trained: Recording, chosen: Recording) -> tuple[int, _Found]:
    """Return the best filter of all step sizes and passes, and its number of weights."""
    taps = point.taps
    if point.method == "short NLMS":
        taps = min(taps, parameters(DelaySSM(point.channels, point.states, point.taps)))
    candidates = []
    for rate in point.rates:
        weights = np.zeros(taps)
        for epoch in range(1, point.epochs + 1):
            weights = adapt(weights, trained.played, trained.heard, rate)
            response = np.pad(weights, (0, point.length - taps))
            candidates.append(_Found(_left(chosen, response), response, epoch, rate))
    return taps, min(candidates, key=lambda found: found.error)


def _fitted(point: Cancelling, trained: Recording, chosen: Recording) -> tuple[int, _Found]:
    """Return the best system of all ranges of step sizes, learning rates and epochs, and its number of parameters."""
    played, heard = (torch.from_numpy(part).float() for part in (trained.played, trained.heard))
    impulse = torch.zeros(1, point.length)
    impulse[0, 0] = 1
    candidates = []
    for step_sizes, rate in product(point.step_sizes, point.rates):
        system = _system(point, trained, *step_sizes)
        optimiser = torch.optim.AdamW(param_groups(system, rate))
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, point.epochs)
        for epoch in range(1, point.epochs + 1):
            loss = (_answer(system, played) - heard).square().mean()
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            schedule.step()
            if epoch % 10 == 0 or epoch == point.epochs:
                with torch.no_grad():
                    response = _answer(system, impulse)[0].double().numpy()
                delays = tuple(system.delays().tolist()) if isinstance(system, DelaySSM) else ()
                candidates.append(_Found(_left(chosen, response), response, epoch, rate, step_sizes, delays))
    return parameters(system), min(candidates, key=lambda found: found.error)


def _system(point: Cancelling, trained: Recording, dt_min: float, dt_max: float) -> nn.Module:
    """Return the untrained system of a point: channels side by side, whose outputs are averaged."""
    with torch.random.fork_rng([]):
        torch.manual_seed(point.path)
        if point.method == "DiagonalSSM":
            return DiagonalSSM(point.channels, point.states, dt_min=dt_min, dt_max=dt_max)
        lags: tuple[int, ...] = ()
        if point.method == "DelaySSM, suggested delays":
            lags = delay_evidence(trained.played, trained.heard, point.taps).lags[: point.channels // 2]
        return DelaySSM(
            point.channels,
            point.states,
            point.taps,
            dt_min=dt_min,
            dt_max=dt_max,
            branch_fraction=0.5,
            phase=0.0,
            delays=place_delays(lags, point.taps, point.channels),
        )


def _answer(system: nn.Module, played: torch.Tensor) -> torch.Tensor:
    channels: int = system.d_model  # type: ignore[assignment]
    answer: torch.Tensor = system(played.unsqueeze(-1).expand(-1, -1, channels).contiguous()).mean(-1)
    return answer


def _left(chosen: Recording, response: Array) -> float:
    """Return the power of what is left of recordings when the echo that a response predicts is subtracted."""
    return float(np.square(chosen.heard - convolved(chosen.played, response)).mean())


def _decibels(whole: Array, rest: Array) -> float:
    """Return how much larger the power of one signal is than that of another."""
    return float(10 * np.log10(np.square(whole).mean() / max(np.square(rest).mean(), 1e-30)))


def _draw(axis: Axes, response: Array, delays: list[float], title: str) -> None:
    axis.plot(response, linewidth=0.8)
    axis.plot(delays, [0.05] * len(delays), "|", color="C3", markersize=8, transform=axis.get_xaxis_transform())
    axis.set_title(title, fontsize=9, loc="left")


def _spread(values: list[float]) -> str:
    """Return mean and standard deviation over paths."""
    return f"{statistics.fmean(values):.1f}" + (f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else "")
