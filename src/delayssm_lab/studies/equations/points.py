"""What the Mackey-Glass study measures: points that tell everything that decides them."""

from __future__ import annotations

from dataclasses import dataclass

from delayssm_lab.studies.equations.contenders import SeriesSpec
from delayssm_lab.studies.equations.forecast import ForecastProtocol


@dataclass(frozen=True)
class Divergence:
    """The largest Lyapunov exponent of the equation, from several solutions of some length."""

    tau: int
    solutions: int
    length: int


@dataclass(frozen=True)
class Repetition:
    """Repeating the last value."""

    protocol: ForecastProtocol


@dataclass(frozen=True)
class Regression:
    """Linear forecasts with the best of several numbers of taps."""

    protocol: ForecastProtocol
    taps: tuple[int, ...]


@dataclass(frozen=True)
class Trial:
    """A setting of a model and a learning rate, with one seed, compared on the series that choose."""

    protocol: ForecastProtocol
    spec: SeriesSpec
    rate: float


@dataclass(frozen=True)
class Final:
    """A model with the best of its settings and learning rates, tested."""

    protocol: ForecastProtocol
    specs: tuple[SeriesSpec, ...]
    rates: tuple[float, ...]
    seed: int


Point = Divergence | Repetition | Regression | Trial | Final
