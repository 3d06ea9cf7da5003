"""What is known beside the series that are forecast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from delayssm.estimators.series import Array, read_series


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
            beyond = f", {ahead} times beyond its end," if ahead else ""
            raise ValueError(
                f"{name} of series {i} must reach{beyond or ' its end:'} {len(one) + ahead} times, not {len(values)}"
            )
    return covariates


def join(values: Array, past: Array, future: Array, lead: int) -> Array:
    """Return what the model is told at each time t of a series: values_t, past_t, and future_(t + lead).

    A model with memory has heard future_(t + 1) to future_(t + lead - 1) at earlier times.
    """
    length = len(values)
    return np.concatenate([values, past[:length], future[lead : lead + length]], axis=1)
