"""How the learning rate changes over a run."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Constant:
    """The learning rate rises linearly over `warmup` steps and then stays."""

    warmup: int = 0

    def factor(self, step: int, steps: int) -> float:
        """What the learning rate is multiplied with at a step (from 0) of `steps`."""
        return _warm(step, self.warmup)


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """After the warm-up, half a cosine down to `final` times the learning rate."""

    warmup: int = 0
    final: float = 0.0

    def factor(self, step: int, steps: int) -> float:
        """What the learning rate is multiplied with at a step (from 0) of `steps`."""
        if step < self.warmup:
            return _warm(step, self.warmup)
        done = (step - self.warmup) / max(1, steps - self.warmup)
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * done))


@dataclass(frozen=True, kw_only=True)
class MultiStep:
    """After the warm-up, multiplied with `decay` at each of these parts of the run, such as (0.5, 0.75)."""

    at: tuple[float, ...]
    decay: float = 0.1
    warmup: int = 0

    def __post_init__(self) -> None:
        if wrong := [part for part in self.at if not 0 < part < 1]:
            raise ValueError(f"parts of a run lie between 0 and 1, not at {wrong}")

    def factor(self, step: int, steps: int) -> float:
        """What the learning rate is multiplied with at a step (from 0) of `steps`."""
        return _warm(step, self.warmup) * self.decay ** sum(step >= part * steps for part in self.at)


Schedule = Constant | Cosine | MultiStep
CONSTANT = Constant()


def _warm(step: int, warmup: int) -> float:
    return min(1.0, (step + 1) / (warmup + 1))
