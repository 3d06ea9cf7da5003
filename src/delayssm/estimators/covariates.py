"""What is known beside the series that are forecast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from delayssm.estimators.series import Array, Scaling, read_series


def read_covariates(
    given: Any, name: str, series: Sequence[Array], channels: int | None, ahead: int = 0
) -> list[Array]:
    """Return the covariates of each series, (times, channels); without any, they have no channels.

    Args:
        given: What the user has passed, in the layout of the series, or None.
        name: Name of the argument.
        series: Series that they belong to.
        channels: Number of channels that there must be; None: any.
        ahead: Number of times that covariates must extend beyond their series.
    """
    if given is None:
        if channels:
            raise ValueError(f"the forecaster was fitted with {name}, so it needs those of these series")
        return [np.zeros((len(values) + ahead, 0)) for values in series]
    covariates, _ = read_series(given, name)
    if channels is not None and covariates[0].shape[1] != channels:
        fitted = f"{channels} channels" if channels else "none"
        raise ValueError(f"{name} has {covariates[0].shape[1]} channels, but the forecaster was fitted with {fitted}")
    if len(covariates) != len(series):
        raise ValueError(f"{name} is of {len(covariates)} series, but there are {len(series)}")
    for i, (values, one) in enumerate(zip(covariates, series, strict=True)):
        if len(values) < len(one) + ahead:
            end = f"{ahead} times beyond the end of the series" if ahead else "the end of the series"
            raise ValueError(f"{name} of series {i} must reach {end}: {len(one) + ahead} times, not {len(values)}")
    return covariates


@dataclass(frozen=True)
class Inputs:
    """What a model is told at each time t of a series: its values, and the covariates that are known then.

    Args:
        steps: Steps that are forecast.
        values: Scaling of the series.
        past: Scaling of the covariates that are known up to the present.
        future: Scaling of the covariates that are known beforehand.
    """

    steps: tuple[int, ...]
    values: Scaling
    past: Scaling
    future: Scaling

    def read(
        self, series: Sequence[Array], past_covariates: Any, future_covariates: Any, ahead: int
    ) -> tuple[list[Array], list[Array]]:
        """Return the covariates of series; those known beforehand extend `ahead` times beyond the end."""
        past = read_covariates(past_covariates, "past_covariates", series, self.past.channels)
        future = read_covariates(future_covariates, "future_covariates", series, self.future.channels, ahead)
        return past, [one[: len(values) + ahead] for one, values in zip(future, series, strict=True)]

    def join(self, series: Sequence[Array], past: Sequence[Array], future: Sequence[Array]) -> list[Array]:
        """Return values_t, past_t, future_t and future_(t + step) for all steps, scaled: (times, features) for each.

        All begin at the same time, and `future` extends beyond its series by the largest step.
        """
        return [self._join(*parts) for parts in zip(series, past, future, strict=True)]

    def _join(self, values: Array, past: Array, future: Array) -> Array:
        length, known = len(values), self.future.apply(future)
        windows = [known[step : step + length] for step in (0, *self.steps)]
        return np.concatenate([self.values.apply(values), self.past.apply(past[:length]), *windows], axis=1)
