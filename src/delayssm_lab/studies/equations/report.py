"""Tables and the picture of the Mackey-Glass study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from delayssm_lab.report import tables
from delayssm_lab.report.drawing import Style, legend, panels, styles
from delayssm_lab.studies.equations.points import Divergence, Final, Point, Regression, Repetition, Trial
from delayssm_lab.study import Readings

#: Test errors in per cent, from the LMU paper's public notebook (keras-lmu, branch fix-mackey-glass).
PUBLISHED = {"LSTM": 5.872, "LMU": 4.873, "LMU and LSTM layers": 4.473}
#: The delay of the published errors.
PUBLISHED_TAU = 17

#: Results of one row of a table: delay, steps ahead, name, and the readings of all seeds.
Row = tuple[int, int, str, list[Readings]]


def errors(results: Mapping[Point, Readings]) -> str:
    """Return the errors of forecasts, the largest first."""
    found: list[tuple[int, float, list[str]]] = []
    for tau, ahead, name, seeds in _rows(results):
        if ahead > 1:
            later = [values["later test"] for values in seeds if "later test" in values]
            cells = [mean_and_range([values[split] for values in seeds]) for split in ("validation", "test")]
            cells.append(mean_and_range(later) if later else "–")
            test = float(np.mean([values["test"] for values in seeds]))
            found.append((tau, -test, [f"{tau}", name, f"{seeds[0]['parameters']:,.0f}", *cells]))
    if any(tau == PUBLISHED_TAU for tau, *_ in found):
        for name, test in PUBLISHED.items():
            cells = [f"{PUBLISHED_TAU}", f"{name}, as published", "about 18,000", "–", f"{test:.2f}", "–"]
            found.append((PUBLISHED_TAU, -test, cells))
    head = ["tau", "model", "parameters", "validation error, %", "test error, %", "test error from step 100 on, %"]
    return tables.markdown(head, [cells for *_, cells in sorted(found)])


def free_running(results: Mapping[Point, Readings]) -> str:
    """Return how long forecasts that run freely stay valid."""
    lines = []
    for tau, ahead, name, seeds in _rows(results):
        if "valid" not in seeds[0]:
            continue
        steps = [values["valid"] for values in seeds]
        quartiles = [np.mean([values[f"valid, {which} quartile"] for values in seeds]) for which in ("first", "third")]
        exponent = _exponent(results, tau)
        times = "–" if exponent is None else f"{float(np.mean(steps)) * exponent:.1f}"
        cells = [f"{np.mean(steps):.0f}", f"{quartiles[0]:.0f} to {quartiles[1]:.0f}", times]
        lines.append((tau, ahead, [f"{tau}", f"{ahead}", name, mean_and_range([v["test"] for v in seeds]), *cells]))
    head = ["tau", "steps ahead", "model", "test error, %", "valid steps, median", "quartiles", "Lyapunov times"]
    return tables.markdown(head, [cells for *_, cells in sorted(lines, key=lambda line: line[:2])])


def exponents(results: Mapping[Point, Readings]) -> str:
    """Return the largest Lyapunov exponents, with the standard errors of their estimates."""
    rows = [
        [f"{point.tau}", f"{values['exponent']:.5f} ± {values['error']:.5f}", f"{1 / values['exponent']:.0f}"]
        for point, values in results.items()
        if isinstance(point, Divergence)
    ]
    return tables.markdown(["tau", "largest Lyapunov exponent, per step", "Lyapunov time, steps"], rows)


def trials(results: Mapping[Point, Readings]) -> str:
    """Return the validation error of each setting and learning rate."""
    found = {point: values for point, values in results.items() if isinstance(point, Trial)}
    rates = sorted({point.rate for point in found})
    lines: dict[tuple[int, str, str], dict[float, str]] = {}
    for point, values in found.items():
        key = point.protocol.tau, point.spec.family, point.spec.settings
        lines.setdefault(key, {})[point.rate] = f"{values['validation']:.2f}"
    head = ["tau", "model", "setting", *(f"rate {rate:g}" for rate in rates)]
    rows = [[f"{tau}", *names, *(cells.get(rate, "") for rate in rates)] for (tau, *names), cells in lines.items()]
    return tables.markdown(head, rows)


def picture(results: Mapping[Point, Readings], taus: Sequence[int]) -> Figure:
    """Return four panels for each tau: test errors, forecasts that run freely, influence by lag, and delays."""
    figure, axes = panels(4 * len(taus), width=4.4, height=3.0, columns=2)
    for i, tau in enumerate(taus):
        rows = [row for row in _finals(results) if row[0] == tau]
        errors_axis, free_axis, influence_axis, delay_axis = axes[4 * i : 4 * i + 4]
        _draw_errors(errors_axis, [row for row in rows if row[1] > 1], tau)
        _draw_growth(free_axis, rows)
        _draw_influence(influence_axis, [row for row in rows if row[1] == 1], tau)
        _draw_delays(delay_axis, [row for row in rows if row[1] > 1], tau)
    legend(figure, axes)
    return figure


_FAMILIES = "DS4D", "S4D", "LSTM"
_STYLES: dict[str, Style] = styles(_FAMILIES)


def _draw_errors(axis: Axes, rows: Sequence[Row], tau: int) -> None:
    for _, _, name, seeds in rows:
        values = [readings["test"] for readings in seeds]
        axis.plot([_FAMILIES.index(name)] * len(values), values, "o", color=_STYLES[name][0])
    if tau == PUBLISHED_TAU:
        axis.axhline(min(PUBLISHED.values()), color="gray", linewidth=0.8, linestyle="--")
        axis.annotate("best published", (-0.4, min(PUBLISHED.values())), (0, 3), textcoords="offset points", size=8)
    axis.set(xlim=(-0.5, 2.5), ylabel="test error (%)", title=f"tau {tau}: each seed, 15 steps ahead")
    axis.set_xticks(range(len(_FAMILIES)), _FAMILIES)
    axis.set_ylim(bottom=0)


def _draw_growth(axis: Axes, rows: Sequence[Row]) -> None:
    for _, ahead, name, seeds in rows:
        color, style = _STYLES[name]
        growth = np.median([_series(readings, "error after") for readings in seeds], axis=0)
        steps = [int(key.split()[-1]) for key in seeds[0] if key.startswith("error after")]
        label = f"{name}, {ahead} ahead"
        axis.plot(steps, growth, color=color, linestyle=style, linewidth=1 if ahead == 1 else 2, label=label)
    axis.set(xlabel="steps of running freely", ylabel="median error / deviation", title="fed with its own forecasts")
    axis.set_ylim(0, 1.6)


def _draw_influence(axis: Axes, rows: Sequence[Row], tau: int) -> None:
    for _, _, name, seeds in rows:
        color, style = _STYLES[name]
        slopes = np.array([_series(readings, "influence") for readings in seeds])
        shares = (slopes / slopes.sum(1, keepdims=True)).mean(0)
        axis.plot(shares, color=color, linestyle=style, linewidth=1.2)
    axis.axvline(tau, color="gray", linewidth=0.8, linestyle="--")
    axis.set(xlabel="lag (steps)", ylabel="share of the slope", title="influence of lags, 1 step ahead")
    axis.set_yscale("log")  # the last value has most of it


def _draw_delays(axis: Axes, rows: Sequence[Row], tau: int) -> None:
    for _, _, name, seeds in rows:
        if learned := [delay for readings in seeds for delay in _series(readings, "delay")]:
            axis.hist(learned, bins=np.arange(0, max(learned) + 2, 2).tolist(), color=_STYLES[name][0])
    axis.axvline(tau, color="gray", linewidth=0.8, linestyle="--")
    axis.set(xlabel="learned delay (steps)", ylabel="channels, all seeds", title="delays of DS4D, 15 steps ahead")


def _series(readings: Readings, name: str) -> list[float]:
    """Return the readings that are numbered under one name, in order."""
    return [value for key, value in readings.items() if key.startswith(f"{name} ")]


def _rows(results: Mapping[Point, Readings]) -> list[Row]:
    """Return the rows of all tables but that of trials."""
    rows: list[Row] = []
    for point, values in results.items():
        if isinstance(point, Repetition):
            rows.append((point.protocol.tau, point.protocol.ahead, "last value", [values]))
        elif isinstance(point, Regression):
            chosen = f", the best of {len(point.taps)} numbers" if len(point.taps) > 1 else ""
            name = f"autoregression, {values['taps']:.0f} taps{chosen}"
            rows.append((point.protocol.tau, point.protocol.ahead, name, [values]))
    return rows + [(tau, ahead, _seeds(name, seeds), seeds) for tau, ahead, name, seeds in _finals(results)]


def _finals(results: Mapping[Point, Readings]) -> list[Row]:
    """Return the results of the trained models."""
    groups: dict[tuple[int, int, str], list[Readings]] = {}
    for point, values in results.items():
        if isinstance(point, Final):
            key = point.protocol.tau, point.protocol.ahead, point.specs[0].family
            groups.setdefault(key, []).append(values)
    return [(*key, seeds) for key, seeds in groups.items()]


def _exponent(results: Mapping[Point, Readings], tau: int) -> float | None:
    found = [v["exponent"] for point, v in results.items() if isinstance(point, Divergence) and point.tau == tau]
    return found[0] if found else None


def _seeds(name: str, seeds: Sequence[Readings]) -> str:
    return f"{name}, {len(seeds)} seeds" if len(seeds) > 1 else f"{name}, 1 seed"


def mean_and_range(values: Sequence[float]) -> str:
    """Return the mean of values with two decimals and, if there are several, their range."""
    mean = f"{np.mean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.2f} to {max(values):.2f})"
