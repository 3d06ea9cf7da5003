"""A forecaster of series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from delayssm.estimators import quantiles
from delayssm.estimators.base import SequenceEstimator
from delayssm.estimators.covariates import Inputs, read_covariates
from delayssm.estimators.following import Followed
from delayssm.estimators.outlook import Outlook, Piece, read_steps, split_ends, split_series
from delayssm.estimators.series import Array, Layout, Scaling, pad, read_series
from delayssm.layers.inputs import Values
from delayssm.models.series import SeriesModel


@dataclass(kw_only=True, eq=False, repr=False)
class DelayForecaster(SequenceEstimator):
    """Forecaster of series with any number of channels.

    >>> series = np.sin(np.arange(200) / 8)
    >>> forecaster = DelayForecaster(horizon=24, d_model=8, depth=1, max_epochs=2).fit(series)
    >>> forecaster.predict(series).shape  # the 24 values after its end
    (24,)

    At each time a `SeriesModel` answers for all steps of the horizon at once. All times of all series are therefore
    trained in one parallel pass, no forecast is built on earlier forecasts and their errors, and each step can have
    quantiles of its own.

    An array is one series, (times,) or (times, channels), or several, (series, times, channels). A list of arrays is
    several series of any lengths. Forecasts have the same axes, with the steps of the horizon in place of the times.

    Covariates have the layout of the series. `past_covariates` are known up to the present only, and are as long as
    their series. `future_covariates`, such as the hour of the day, are known for all steps of the horizon, and extend
    that far beyond the end of their series.

    Args:
        horizon: Number of steps to forecast, 1 to `horizon`; or the steps themselves, such as [1, 7, 28].
        quantiles: Levels to forecast, such as (0.1, 0.5, 0.9), trained by the pinball loss; `predict` then returns the
            median. None: the mean, trained by the squared error.
    """

    horizon: int | Sequence[int] = field(default=1, kw_only=False)
    quantiles: Sequence[float] | None = None

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        past_covariates: Any = None,
        future_covariates: Any = None,
        held_out: Sequence[int] | None = None,
    ) -> Self:
        """Train on series.

        Args:
            X: One or several series.
            y: Ignored; scikit-learn passes it.
            past_covariates: Covariates known up to the present.
            future_covariates: Covariates known beforehand. In training they need not extend beyond their series.
            held_out: Numbers of the series that are not trained on, but choose the best epoch. None: the last
                `validation_fraction` of every series does that.
        """
        steps, levels, training = read_steps(self.horizon), quantiles.check_levels(self.quantiles), self._training()
        series, _ = read_series(X)
        past = read_covariates(past_covariates, "past_covariates", series, None)
        future = read_covariates(future_covariates, "future_covariates", series, None)
        if (shortest := min(map(len, series))) <= steps[-1]:
            raise ValueError(
                f"a series of {shortest} sample{'s' * (shortest > 1)} is too short: a forecast {steps[-1]} steps ahead "
                f"is learned from at least {steps[-1] + 1}"
            )
        self._forget()
        self.n_features_in_ = series[0].shape[1]
        self._outlook = Outlook(steps, levels, self.n_features_in_)
        seen = range(len(series)) if held_out is None else split_series(range(len(series)), held_out)[0]
        self._inputs = Inputs(steps, *(Scaling.of([part[i] for i in seen]) for part in (series, past, future)))
        self._scaling = self._inputs.values
        pieces = self._pieces(series, past, future)
        if held_out is None:
            trained, tested = split_ends(pieces, self.validation_fraction, steps[-1])
        else:
            trained, tested = split_series(pieces, held_out)
        with self._seeded():
            inputs = Values(pieces[0].inputs.shape[1], self.d_model)
            outputs = int(np.prod(self._outlook.shape))
            model = SeriesModel(inputs, self._stack(max(map(len, series))), outputs).to(self.device)
            self.history_ = training.train(model, self._outlook.loss, trained, tested)
        self.model_, self._followed = model, None
        return self

    def predict(self, X: Any = None, *, past_covariates: Any = None, future_covariates: Any = None) -> Array:
        """Return forecasts after the ends of series: the mean, or the median if there are quantiles.

        Args:
            X: Series; None: those that are followed since `begin`.
            past_covariates: Covariates known up to the present.
            future_covariates: Covariates known beforehand.
        """
        layout, forecasts = self._at_the_end(X, past_covariates, future_covariates)
        return layout.arrange(forecasts[:, self._outlook.point])

    def predict_quantiles(self, X: Any = None, *, past_covariates: Any = None, future_covariates: Any = None) -> Array:
        """Return all quantiles of the forecasts, along a first axis; `X` and covariates as for `predict`."""
        layout, forecasts = self._at_the_end(X, past_covariates, future_covariates)
        return np.stack([layout.arrange(level) for level in forecasts.swapaxes(0, 1)])

    def predict_interval(
        self, X: Any = None, coverage: float = 0.8, *, past_covariates: Any = None, future_covariates: Any = None
    ) -> tuple[Array, Array]:
        """Return the lower and upper bounds between which a share `coverage` of the values is expected.

        Both bounds must be among the quantiles: 0.8 needs 0.1 and 0.9. `X` and covariates are as for `predict`.
        """
        check_is_fitted(self)
        low, high = quantiles.bounds(self._outlook.levels, coverage)
        levels = self.predict_quantiles(X, past_covariates=past_covariates, future_covariates=future_covariates)
        return levels[low], levels[high]

    def historical_forecasts(
        self, X: Any, *, past_covariates: Any = None, future_covariates: Any = None
    ) -> list[Array] | Array:
        """Return the forecasts that `predict` would have made at each time, (times, steps, channels) for each series.

        Row t is made from the values up to time t, and forecasts those of the times t + step.
        """
        series, layout = self._read(X)
        rows = self._rows(self._told(series, past_covariates, future_covariates))
        arranged = [row if layout.channels else row[..., 0] for row in rows]
        return arranged if layout.several else arranged[0]

    def score(self, X: Any, y: Any = None, *, past_covariates: Any = None, future_covariates: Any = None) -> float:
        """Return R² of the forecasts made at all times of series, as far as the series tell what came true.

        It is the mean over steps and channels. 1 is perfect, and 0 is as good as knowing the mean. `y` is ignored.
        """
        series, _ = self._read(X)
        made = self._rows(self._told(series, past_covariates, future_covariates))
        steps, predicted, true = self._outlook.steps, [], []
        for forecasts, values in zip(made, series, strict=True):
            known = max(0, len(values) - steps[-1])
            predicted.append(forecasts[:known])
            true.append(np.stack([values[step : step + known] for step in steps], axis=1))
        if sum(map(len, true)) < 2:
            raise ValueError(f"a score at a horizon of {steps[-1]} needs series of at least {steps[-1] + 2} samples")
        outputs = len(steps) * self.n_features_in_
        return float(
            r2_score(np.concatenate(true).reshape(-1, outputs), np.concatenate(predicted).reshape(-1, outputs))
        )

    def begin(self, X: Any, *, past_covariates: Any = None, future_covariates: Any = None) -> Self:
        """Begin to follow series with the values X so far; `update` appends to them, and `predict()` forecasts."""
        series, layout = self._read(X)
        past, future = self._inputs.read(series, past_covariates, future_covariates, self._outlook.furthest)
        self._followed = Followed(self.model_, self._tensors(self._inputs.join(series, past, future)))
        self._layout = layout
        self._known = [one[len(values) :] for one, values in zip(future, series, strict=True)]
        return self

    def update(self, X: Any, *, past_covariates: Any = None, future_covariates: Any = None) -> Self:
        """Append new values to the series that are followed, in a time that does not depend on their lengths.

        Args:
            X: New values in the layout of `begin`, at least one for each series.
            past_covariates: Covariates of the same times.
            future_covariates: Covariates of as many times, which go on from the last that were known.
        """
        followed = self._require_followed()
        series, layout = self._read(X)
        if layout != self._layout:
            raise ValueError("new values must have the axes of the series that were passed to begin")
        followed.check_count(len(series))
        past, future = self._inputs.read(series, past_covariates, future_covariates, ahead=0)
        future = [np.concatenate(parts) for parts in zip(self._known, future, strict=True)]
        followed.advance(self._tensors(self._inputs.join(series, past, future)))
        self._known = [one[len(values) :] for one, values in zip(future, series, strict=True)]
        return self

    def _read(self, X: Any) -> tuple[list[Array], Layout]:
        check_is_fitted(self)
        series, layout = read_series(X)
        self._check_channels(series[0].shape[1])
        return series, layout

    def _told(self, series: list[Array], past_covariates: Any, future_covariates: Any) -> list[Tensor]:
        """Return what the model is told at each time of whole series."""
        covariates = self._inputs.read(series, past_covariates, future_covariates, self._outlook.furthest)
        return self._tensors(self._inputs.join(series, *covariates))

    def _pieces(self, series: list[Array], past: list[Array], future: list[Array]) -> list[Piece]:
        """Return what is trained on: all times of which the furthest step is known."""
        trained = [values[: -self._outlook.furthest] for values in series]
        inputs = self._tensors(self._inputs.join(trained, past, future))
        values = self._tensors([self._scaling.apply(one) for one in series])
        return [Piece(x, y, 0, len(x)) for x, y in zip(inputs, values, strict=True)]

    @torch.no_grad()
    def _at_the_end(self, X: Any, past_covariates: Any, future_covariates: Any) -> tuple[Layout, Array]:
        """Return the forecasts after the ends of series, (series, quantiles, steps, channels), and their layout."""
        if X is None:
            followed = self._require_followed()
            return self._layout, self._in_units(followed.answers)
        series, layout = self._read(X)
        inputs, answers = self._told(series, past_covariates, future_covariates), []
        for i in range(0, len(inputs), self.batch_size):
            x, lengths = pad(inputs[i : i + self.batch_size])
            last = torch.tensor([[len(values) - 1] for values in inputs[i : i + self.batch_size]], device=x.device)
            answers.append(self.model_(x, lengths, last)[:, 0])
        return layout, self._in_units(torch.cat(answers))

    @torch.no_grad()
    def _rows(self, inputs: list[Tensor]) -> list[Array]:
        """Return the point forecasts at each time of series, (times, steps, channels) for each."""
        each = (self._in_units(self.model_(x[None])[0]) for x in inputs)
        return [forecasts[:, self._outlook.point] for forecasts in each]

    def _in_units(self, raw: Tensor) -> Array:
        """Return the outputs of the model as forecasts (..., quantiles, steps, channels) in the units of the series."""
        scaled = self._outlook.read(raw).cpu().numpy().astype(np.float64)
        return self._scaling.undo(scaled)

    def _facts(self) -> dict[str, Any]:
        covariates = {"past": self._inputs.past.to_lists(), "future": self._inputs.future.to_lists()}
        return {**super()._facts(), **covariates}

    def _set_facts(self, facts: Mapping[str, Any]) -> None:
        super()._set_facts(facts)
        steps = read_steps(self.horizon)
        past, future = (Scaling.of_lists(facts[name]) for name in ("past", "future"))
        self._inputs = Inputs(steps, self._scaling, past, future)
        self._outlook = Outlook(steps, quantiles.check_levels(self.quantiles), self.n_features_in_)
