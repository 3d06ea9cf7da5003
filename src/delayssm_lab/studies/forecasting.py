"""Forecasts of the Mackey-Glass equation: the protocol of the LMU paper, through `fit` and `predict`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from delayssm_lab.report import tables
from delayssm_lab.studies.equations.forecast import ForecastProtocol, SeriesSplit, best_autoregression, repetition
from delayssm_lab.studies.equations.report import PUBLISHED, PUBLISHED_TAU, mean_and_range
from delayssm_lab.study import File, Kept, Places, Readings

Method = Literal["DelayForecaster", "autoregression", "last value"]

CARD = """---
library_name: delayssm
tags:
- time-series-forecasting
- state-space-model
- delayssm
---

# Mackey-Glass forecaster

A `DelayForecaster` with {parameters:,.0f} parameters that predicts the Mackey-Glass equation (tau = 17) 15 steps ahead,
in the protocol of the LMU paper: 32 series to train on, 32 to choose the best epoch, and 64 to test. Its test error
(RMSE over the RMS of the target) is {test:.2f} %.

Made by `delayssm reproduce forecasting`, which leaves it in `runs/mackey-glass/seed-{seed}`.

```python
from delayssm.estimators import DelayForecaster

forecaster = DelayForecaster.load("path/to/this/directory")
```

Series are tanh(x - 1), less the mean of that, at unit time steps.
"""


@dataclass(frozen=True)
class Contender:
    """A way to forecast, with the sizes of the task."""

    method: Method
    series: int
    length: int
    epochs: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Forecasting(Kept[Contender]):
    """Errors 15 steps ahead at every time of test series: RMSE in per cent of the RMS of the target.

    A quarter of the series is trained on, a quarter chooses (the best epoch, the number of taps), and half of them
    test.
    """

    name = "forecasting"
    title = "Mackey-Glass, 15 steps ahead: DelayForecaster, autoregression, repeating the last value"

    series: int = 128
    length: int = 5000
    ahead: int = 15
    epochs: int = 500
    seeds: int = 3
    taps: tuple[int, ...] = (16, 64, 256, 512, 1024)

    def points(self) -> list[Contender]:
        simple: tuple[Method, ...] = ("last value", "autoregression")
        trained = [
            Contender("DelayForecaster", self.series, self.length, self.epochs, seed) for seed in range(self.seeds)
        ]
        return [*(Contender(method, self.series, self.length) for method in simple), *trained]

    def measure(self, point: Contender, places: Places) -> Readings:
        if point.method == "last value":
            return repetition(self.protocol)
        data = self.protocol.split()
        if point.method == "autoregression":
            model, readings = best_autoregression(self.protocol, data, self.taps)
            return {**readings, "test": self.protocol.error(data.tested, model.forecast(data.tested[:, : -self.ahead]))}
        return self._forecaster(data, point.seed, places)

    @property
    def protocol(self) -> ForecastProtocol:
        """Series, what is forecast, and how its error is measured."""
        return ForecastProtocol(PUBLISHED_TAU, self.ahead, self.series, self.length, self.epochs)

    def show(self, results: Mapping[Contender, Readings]) -> Iterable[File]:
        rows = [[f"{name}, as published", "about 18,000", "–", f"{test:.2f}"] for name, test in PUBLISHED.items()]
        for method in dict.fromkeys(point.method for point in results):
            found = [values for point, values in results.items() if point.method == method]
            taps = f", {found[0]['taps']:.0f} taps" if "taps" in found[0] else ""
            seeds = f", {len(found)} seeds" if len(found) > 1 else ""
            errors = [mean_and_range([values[split] for values in found]) for split in ("validation", "test")]
            rows.append([f"{method}{taps}{seeds}", f"{found[0]['parameters']:,.0f}", *errors])
        rows.sort(key=lambda row: -float(row[-1].split()[0]))
        head = ["model", "parameters", "validation error, %", "test error, %"]
        yield "table.md", tables.markdown(head, rows).encode()

    def _forecaster(self, data: SeriesSplit, seed: int, places: Places) -> Readings:
        """Train a forecaster, keep it, and test it."""
        from delayssm.estimators import DelayForecaster

        forecaster = DelayForecaster(
            [self.ahead], max_epochs=self.epochs, patience=None, random_state=seed, verbose=True
        )
        seen = [*data.trained, *data.chosen]
        forecaster.fit(seen, held_out=range(len(data.trained), len(seen)))
        validation, test = (
            self.protocol.error(part, np.array(forecaster.historical_forecasts(list(part)))[:, : -self.ahead, 0])
            for part in (data.chosen, data.tested)
        )
        best = min(forecaster.history_, key=lambda losses: losses["held out"])
        parameters = sum(p.numel() for p in forecaster.model_.parameters())
        readings = {"parameters": parameters, "validation": validation, "test": test, "best epoch": best["epoch"]}
        forecaster.save(places.work / "mackey-glass" / f"seed-{seed}", card=CARD.format(seed=seed, **readings))
        return readings
