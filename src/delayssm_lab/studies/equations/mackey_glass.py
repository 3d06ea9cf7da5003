"""The Mackey-Glass equation: DS4D, S4D and LSTM with the same chance, beside linear forecasts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from delayssm_lab.data.generate.mackey_glass import lyapunov_exponents
from delayssm_lab.report.drawing import png
from delayssm_lab.studies.equations import report
from delayssm_lab.studies.equations.contenders import (
    DelaySpec,
    DiagonalSpec,
    RecurrentSpec,
    SeriesSpec,
    delays,
    parameters,
)
from delayssm_lab.studies.equations.forecast import (
    Array,
    ForecastProtocol,
    best_autoregression,
    repetition,
    train,
    valid_steps,
)
from delayssm_lab.studies.equations.points import Divergence, Final, Point, Regression, Repetition, Trial
from delayssm_lab.study import File, Kept, Places, Readings

#: Learning rates that are tried for each setting of each model.
RATES = (5e-3, 1e-2, 2e-2, 4e-2)
#: Settings that are tried for each model, as many for each, all with about 17,500 parameters.
DS4D = DelaySpec(), DelaySpec(max_delay=32), DelaySpec(max_delay=32, branch_fraction=0.02)
S4D = DiagonalSpec(), DiagonalSpec(28, 32), DiagonalSpec(dt_min=5e-2, dt_max=1.0)
LSTM = RecurrentSpec(46, 1), RecurrentSpec(32, 2), RecurrentSpec(23, 4)
#: An error of this share of the standard deviation ends a forecast that runs freely.
TOLERANCE = 0.4


@dataclass(frozen=True)
class MackeyGlass(Kept[Point]):
    """Errors of forecasts, how long forecasts that run freely stay valid, and which lags they depend on."""

    name = "mackey-glass"
    title = "Mackey-Glass: DS4D, S4D and LSTM with the same chance, linear forecasts, and forecasts that run freely"

    taus: tuple[int, ...] = (17, 30)
    ahead: int = 15
    series: int = 128
    length: int = 5000
    epochs: int = 500
    trial_length: int = 1000
    trial_epochs: int = 250
    seeds: int = 5
    one_step_seeds: int = 3
    taps: tuple[int, ...] = (16, 64, 256, 512, 1024)
    solutions: int = 32
    solution_length: int = 20_000
    models: tuple[tuple[SeriesSpec, ...], ...] = (DS4D, S4D, LSTM)
    rates: tuple[float, ...] = RATES
    past: int = 1000
    steps: int = 1500
    lags: int = 100

    def points(self) -> list[Point]:
        protocols = [ForecastProtocol(tau, self.ahead, self.series, self.length, self.epochs) for tau in self.taus]
        longest = max(spec.max_delay for specs in self.models for spec in specs if isinstance(spec, DelaySpec))
        points: list[Point] = [Divergence(tau, self.solutions, self.solution_length) for tau in self.taus]
        for protocol in protocols:
            points += [Repetition(protocol), Regression(protocol, (longest,)), Regression(protocol, self.taps)]
            points.append(Regression(replace(protocol, ahead=1), (longest,)))
        for protocol in protocols:
            for specs in self.models:
                points += self._trials(protocol, specs)
                points += [Final(protocol, specs, self.rates, seed) for seed in range(self.seeds)]
        for protocol in protocols:
            one = replace(protocol, ahead=1)
            points += [Final(one, specs, self.rates, i) for specs in self.models for i in range(self.one_step_seeds)]
        return points

    def measure(self, point: Point, places: Places) -> Readings:
        match point:
            case Divergence():
                exponents = lyapunov_exponents(point.solutions, point.length, tau=point.tau)
                return {"exponent": float(exponents.mean()), "error": float(exponents.std() / len(exponents) ** 0.5)}
            case Repetition():
                return repetition(point.protocol)
            case Regression():
                return self._regression(point)
            case Trial():
                return self._trial(point)
            case Final():
                return self._final(point, *self._chosen(point, places))

    def show(self, results: Mapping[Point, Readings]) -> Iterable[File]:
        yield "table.md", report.errors(results).encode()
        yield "free.md", report.free_running(results).encode()
        yield "exponents.md", report.exponents(results).encode()
        if any(isinstance(point, Trial) for point in results):
            yield "trials.md", report.trials(results).encode()
        if any(isinstance(point, Final) for point in results):
            yield "mackey-glass.png", png(report.picture(results, self.taus))

    def _trials(self, protocol: ForecastProtocol, specs: tuple[SeriesSpec, ...]) -> list[Trial]:
        """Return what is tried: all settings with all rates on the beginnings of the series, 15 steps ahead."""
        short = replace(protocol, ahead=self.ahead, length=self.trial_length, epochs=self.trial_epochs)
        return [Trial(short, spec, rate) for spec in specs for rate in self.rates]

    def _chosen(self, point: Final, places: Places) -> tuple[SeriesSpec, float]:
        """Return the setting and the rate with the smallest validation error of all trials of a model."""
        trials, known = self._trials(point.protocol, point.specs), self._known(places)
        if missing := [trial for trial in trials if trial not in known]:
            raise ValueError(f"{len(missing)} trials are still to be measured before {point}")
        best = min(trials, key=lambda trial: known[trial].values["validation"])
        return best.spec, best.rate

    def _regression(self, point: Regression) -> Readings:
        protocol, data = point.protocol, point.protocol.split()
        model, readings = best_autoregression(protocol, data, point.taps)
        forecasts = model.forecast(data.tested[:, : -protocol.ahead])
        return {**readings, **self._tested(protocol, data.tested, forecasts), **self._runs(data.tested, model.run)}

    def _trial(self, point: Trial) -> Readings:
        data = point.protocol.split()
        trained = train(point.spec, point.rate, point.protocol, data, seed=0)
        forecasts = trained.forecast(data.chosen[:, : -point.protocol.ahead])
        return {
            "parameters": parameters(trained.model),
            "validation": point.protocol.error(data.chosen, forecasts),
            "best epoch": trained.best_epoch,
        }

    def _final(self, point: Final, spec: SeriesSpec, rate: float) -> Readings:
        protocol, data = point.protocol, point.protocol.split()
        trained = train(spec, rate, protocol, data, point.seed)
        chosen, tested = (trained.forecast(part[:, : -protocol.ahead]) for part in (data.chosen, data.tested))
        slopes = trained.influence(data.tested[:, : self.past], self.lags)
        found = [float(delay) for layer in delays(trained.model) for delay in layer]
        return {
            "parameters": parameters(trained.model),
            "setting": point.specs.index(spec),
            "rate": rate,
            "best epoch": trained.best_epoch,
            "validation": protocol.error(data.chosen, chosen),
            **self._tested(protocol, data.tested, tested),
            **self._runs(data.tested, lambda past, steps: trained.run(past, steps, protocol.ahead)),
            **{f"influence {lag}": float(slope) for lag, slope in enumerate(slopes)},
            **{f"delay {i}": delay for i, delay in enumerate(found)},
        }

    def _tested(self, protocol: ForecastProtocol, tested: Array, forecasts: Array) -> Readings:
        """Return the test error, and that from the time on at which the past is known."""
        start = min(100, protocol.length // 2)
        later = protocol.error(tested, forecasts, start)
        return {"test": protocol.error(tested, forecasts), "later test": later}

    def _runs(self, tested: Array, run: Callable[[Array, int], Array]) -> Readings:
        """Return how long forecasts that run freely stay valid, and how their error grows."""
        steps = min(self.steps, tested.shape[1] - self.past)
        true, deviation = tested[:, self.past : self.past + steps], float(tested.std())
        with np.errstate(over="ignore", invalid="ignore"):  # a forecast may leave all bounds
            forecasts = run(tested[:, : self.past], steps)
            wrong = np.minimum(np.nan_to_num(np.abs(forecasts - true), nan=np.inf), 1e3 * deviation)
        valid = valid_steps(true, true + wrong, TOLERANCE * deviation)
        quarter, median, three_quarters = np.quantile(valid, (0.25, 0.5, 0.75))
        readings = {"valid": float(median), "valid, first quartile": float(quarter)}
        readings["valid, third quartile"] = float(three_quarters)
        for step in range(0, steps, max(1, steps // 60)):
            readings[f"error after {step + 1}"] = float(np.median(wrong[:, step]) / deviation)
        return readings
