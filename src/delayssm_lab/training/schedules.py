"""Learning-rate schedules."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Constant:
    """Constant learning rate after a linear warm-up.

    Args:
        warmup: Number of warm-up steps.
    """

    warmup: int = 0

    def __post_init__(self) -> None:
        _check_warmup(self.warmup)

    def factor(self, step: int, steps: int) -> float:
        """Return the factor of the learning rate at a step, counted from 0, of `steps`."""
        return _warmup_factor(step, self.warmup)


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """Cosine decay after a linear warm-up.

    Args:
        warmup: Number of warm-up steps.
        final: Factor of the learning rate at the end of the run.
    """

    warmup: int = 0
    final: float = 0.0

    def __post_init__(self) -> None:
        _check_warmup(self.warmup)
        if not (self.final >= 0 and math.isfinite(self.final)):
            raise ValueError(f"final must be a number of at least 0, not {self.final}")

    def factor(self, step: int, steps: int) -> float:
        """Return the factor of the learning rate at a step, counted from 0, of `steps`."""
        if step < self.warmup:
            return _warmup_factor(step, self.warmup)
        progress = (step - self.warmup) / max(1, steps - self.warmup)
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * progress))


@dataclass(frozen=True, kw_only=True)
class MultiStep:
    """Step decay after a linear warm-up.

    Args:
        at: Fractions of the run at which the learning rate is multiplied with `decay`, such as (0.5, 0.75).
        decay: Factor of each decay.
        warmup: Number of warm-up steps.
    """

    at: tuple[float, ...]
    decay: float = 0.1
    warmup: int = 0

    def __post_init__(self) -> None:
        if invalid := [fraction for fraction in self.at if not 0 < fraction < 1]:
            raise ValueError(f"at must be fractions of the run between 0 and 1, not {invalid}")
        _check_warmup(self.warmup)
        if not (self.decay > 0 and math.isfinite(self.decay)):
            raise ValueError(f"decay must be a positive number, not {self.decay}")

    def factor(self, step: int, steps: int) -> float:
        """Return the factor of the learning rate at a step, counted from 0, of `steps`."""
        return _warmup_factor(step, self.warmup) * self.decay ** sum(step >= fraction * steps for fraction in self.at)


def _warmup_factor(step: int, warmup: int) -> float:
    return min(1.0, (step + 1) / (warmup + 1))


def _check_warmup(warmup: int) -> None:
    if warmup < 0:
        raise ValueError(f"warmup must be at least 0, not {warmup}")


Schedule = Constant | Cosine | MultiStep
CONSTANT = Constant()
