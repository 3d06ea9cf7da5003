"""How models are trained to forecast a delay equation, and what is asked of them afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from delayssm.estimators.training import Training
from delayssm_lab.data.generate.mackey_glass import mackey_glass
from delayssm_lab.studies.equations.contenders import Series, SeriesSpec
from delayssm_lab.studies.equations.linear import Autoregression
from delayssm_lab.study import Readings

Array = NDArray[np.float64]


class SeriesSplit(NamedTuple):
    """Series (series, times) to train on, to choose by, and to test."""

    trained: Array
    chosen: Array
    tested: Array


@dataclass(frozen=True)
class ForecastProtocol:
    """The protocol of the LMU paper: which series there are, what is forecast, and how long models are trained.

    A quarter of the series is trained on, a quarter chooses, and half of them test. An epoch is one step of training
    with all training series.

    Args:
        tau: Delay of the equation.
        ahead: Steps ahead that are forecast.
        series: Number of series.
        length: Times of each at which forecasts are made.
        epochs: Number of epochs.
    """

    tau: int
    ahead: int = 15
    series: int = 128
    length: int = 5000
    epochs: int = 500

    def split(self) -> SeriesSplit:
        """Return the series, each with `ahead` values beyond its length."""
        quarter = self.series // 4
        return SeriesSplit(
            *np.split(mackey_glass(self.series, self.length + self.ahead, tau=self.tau), [quarter, 2 * quarter])
        )

    def error(self, series: Array, forecasts: Array, start: int = 0) -> float:
        """Return the RMSE of forecasts (series, times), from some time on, in per cent of the RMS of what came true."""
        true = series[:, self.ahead :]
        return float(100 * np.sqrt(np.square(forecasts - true)[:, start:].mean() / np.square(true).mean()))


def repetition(protocol: ForecastProtocol) -> Readings:
    """Return the errors of repeating the last value."""
    data = protocol.split()
    validation, test = (protocol.error(part, part[:, : -protocol.ahead]) for part in (data.chosen, data.tested))
    return {"parameters": 0, "validation": validation, "test": test}


def best_autoregression(
    protocol: ForecastProtocol, data: SeriesSplit, taps: Sequence[int]
) -> tuple[Autoregression, Readings]:
    """Return the linear forecast whose number of taps has the smallest validation error, and its readings so far."""
    errors = {}
    for count in taps:
        model = Autoregression.fit(data.trained, count, protocol.ahead)
        errors[count] = protocol.error(data.chosen, model.forecast(data.chosen[:, : -protocol.ahead])), model
    best = min(errors, key=lambda count: errors[count][0])
    validation, model = errors[best]
    return model, {"parameters": best + 1, "taps": best, "validation": validation}


class FittedModel(NamedTuple):
    """A model with the weights of its best epoch."""

    model: Series
    scale: float  #: Standard deviation of the training series, which is 1 for the model.
    best_epoch: int

    @torch.no_grad()
    def forecast(self, series: Array) -> Array:
        """Return what is forecast at each time of series (series, times)."""
        return self._out(self.model(self._in(series)))

    @torch.no_grad()
    def run(self, past: Array, steps: int, ahead: int) -> Array:
        """Return the values of the times after the past, (series, steps), when forecasts are taken for values.

        A model that forecasts `ahead` steps knows the next `ahead` values from the past. From then on each forecast
        is fed back when its time has come, by `step`.
        """
        model: Any = self.model  # each kind of model has states of its own
        answers, state = model.stream(self._in(past), model.init_state(len(past)))
        values = list(answers[:, -ahead:].unbind(1))
        for i in range(steps - ahead):
            answer, state = model.step(values[i], state)
            values.append(answer)
        return self._out(torch.stack(values[:steps], 1))

    def influence(self, series: Array, lags: int) -> Array:
        """Return how much the answer after series depends on their value at each lag: the mean size of its slope."""
        x = self._in(series).requires_grad_()
        (slopes,) = torch.autograd.grad(self.model(x)[:, -1].sum(), x)
        influence: Array = slopes[..., 0].abs().double().mean(0).flip(0)[:lags].numpy()
        return influence

    def _in(self, series: Array) -> Tensor:
        return torch.tensor(series / self.scale, dtype=torch.float32).unsqueeze(-1)

    def _out(self, answers: Tensor) -> Array:
        forecasts: Array = self.scale * answers[..., 0].double().numpy()
        return forecasts


def train(spec: SeriesSpec, rate: float, protocol: ForecastProtocol, split: SeriesSplit, seed: int) -> FittedModel:
    """Train a model as the estimators do, by AdamW and a half cosine, and return it at its best epoch."""
    scale = float(split.trained.std())
    samples, held_out = ([torch.tensor(row / scale).float() for row in part] for part in (split.trained, split.chosen))

    def loss(model: Series, series: list[Tensor]) -> tuple[Tensor, Tensor]:
        x = torch.stack(series)
        errors = model(x[:, : -protocol.ahead, None])[..., 0] - x[:, protocol.ahead :]
        return errors.square().sum(), torch.tensor(errors.numel())

    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model = spec.build()
        training = Training(rate, 0.01, len(samples), protocol.epochs, None, verbose=False)
        history = training.train(model, loss, samples, held_out)
    best = min(history, key=lambda losses: losses["held out"])
    return FittedModel(model, scale, int(best["epoch"]))


def valid_steps(true: Array, forecasts: Array, tolerance: float) -> Array:
    """Return for each series after how many steps a forecast is first wrong by more than the tolerance."""
    wrong = np.abs(forecasts - true) > tolerance
    steps: Array = np.where(wrong.any(1), wrong.argmax(1), true.shape[1]).astype(np.float64)
    return steps
