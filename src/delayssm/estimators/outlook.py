"""What a forecaster says at each time, and what it is trained on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from delayssm.estimators import quantiles
from delayssm.estimators.series import pad
from delayssm.layers.checks import check_whole
from delayssm.models.series import SeriesModel

T = TypeVar("T")


class Piece(NamedTuple):
    """A series of which forecasts are made at the times start <= t < stop.

    Args:
        inputs: What the model is told at each time, (times, features).
        values: Scaled values, which it is to forecast, (times, channels).
        start: First time.
        stop: Time after the last one.
    """

    inputs: Tensor
    values: Tensor
    start: int
    stop: int


@dataclass(frozen=True)
class Outlook:
    """What is forecast at each time t: quantiles of the values of each channel at t + step, for several steps.

    Args:
        steps: Steps ahead, in increasing order.
        levels: Levels of the quantiles; none for the mean.
        channels: Number of channels.
    """

    steps: tuple[int, ...]
    levels: tuple[float, ...]
    channels: int

    @property
    def furthest(self) -> int:
        """The largest step."""
        return self.steps[-1]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of quantiles (1 for the mean), steps and channels."""
        return max(1, len(self.levels)), len(self.steps), self.channels

    @property
    def point(self) -> int:
        """Index of the point forecast among the quantiles: the median, or the mean."""
        return self.levels.index(0.5) if self.levels else 0

    def read(self, raw: Float[Tensor, "*B O"]) -> Float[Tensor, "*B Q S C"]:
        """Return the outputs of a model as scaled forecasts."""
        return quantiles.ordered(raw.reshape(*raw.shape[:-1], *self.shape), self.levels)

    def loss(self, model: SeriesModel, pieces: Sequence[Piece]) -> tuple[Tensor, Tensor]:
        """Return the sum of the errors of all forecasts of some pieces, and their number."""
        x, lengths = pad([piece.inputs[: piece.stop] for piece in pieces])
        values, _ = pad([piece.values[: piece.stop + self.furthest] for piece in pieces])
        length = x.shape[1]
        y = torch.stack([values[:, step : step + length] for step in self.steps], dim=2)
        errors = quantiles.error(self.read(model(x, lengths)), y, self.levels)
        t = torch.arange(length, device=x.device)
        start, stop = (
            torch.tensor(ends, device=x.device)[:, None] for ends in zip(*(p[2:] for p in pieces), strict=True)
        )
        counted = (t >= start) & (t < stop)
        return errors.masked_fill(~counted, 0).sum(), counted.sum()


def read_steps(horizon: Any) -> tuple[int, ...]:
    """Return the steps of a horizon, which is their number or a list of them."""
    if np.ndim(horizon):
        steps = tuple(check_whole("a step of horizon", step, 1) for step in horizon)
        if not steps or sorted(set(steps)) != list(steps):
            raise ValueError(f"the steps of horizon must increase, not {list(horizon)}")
        return steps
    return tuple(range(1, check_whole("horizon", horizon, 1) + 1))


def split_ends(pieces: Sequence[Piece], fraction: float, furthest: int) -> tuple[list[Piece], list[Piece]]:
    """Return the beginnings of series, to be trained on, and their ends, to be held out.

    No value that is forecast from a held-out time is seen in training. A series too short for that is trained on as a
    whole.
    """
    trained, held_out = [], []
    for piece in pieces:
        first = piece.stop - math.ceil(fraction * piece.stop)
        stop = first - furthest + 1  # forecasts before it end at `first`
        if fraction and stop >= 1:
            trained.append(piece._replace(stop=stop))
            held_out.append(piece._replace(start=first))
        else:
            trained.append(piece)
    if fraction and not held_out:
        raise ValueError(
            f"all series are too short to hold out their last {100 * fraction:g} % at a horizon of {furthest}; use "
            "longer series, validation_fraction=0, or name series in held_out"
        )
    return trained, held_out


def split_series(series: Sequence[T], held_out: Sequence[int]) -> tuple[list[T], list[T]]:
    """Return the series to be trained on, and those to be held out, which are given by their numbers."""
    chosen = {check_whole("a number in held_out", number) for number in held_out}
    if not chosen or max(chosen) >= len(series) or len(chosen) == len(series):
        raise ValueError(
            f"held_out must name some of the {len(series)} series, by numbers from 0 to {len(series) - 1}, and not all"
        )
    trained = [one for i, one in enumerate(series) if i not in chosen]
    return trained, [series[i] for i in sorted(chosen)]
