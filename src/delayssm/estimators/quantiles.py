"""Several quantiles of each forecast, which never cross."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def check_levels(quantiles: Sequence[float] | None) -> tuple[float, ...]:
    """Return the levels that are trained for; None, the mean, is one without a level."""
    if quantiles is None:
        return ()
    levels = tuple(float(level) for level in quantiles)
    if not levels or not all(0 < level < 1 for level in levels) or sorted(set(levels)) != list(levels):
        raise ValueError(f"quantiles must be increasing numbers between 0 and 1, not {quantiles}")
    if 0.5 not in levels:
        raise ValueError(f"quantiles must contain 0.5, because predict returns the median, not {quantiles}")
    return levels


def ordered(raw: Float[Tensor, "*B Q S C"], levels: Sequence[float]) -> Float[Tensor, "*B Q S C"]:
    """Return quantiles in increasing order: the median, and sums of positive numbers above and below it."""
    if not levels:
        return raw
    middle = levels.index(0.5)
    below, median, above = torch.split(raw, [middle, 1, len(levels) - middle - 1], dim=-3)
    above = median + F.softplus(above).cumsum(-3)
    below = median - F.softplus(below).flip(-3).cumsum(-3).flip(-3)
    return torch.cat([below, median, above], -3)


def error(
    answers: Float[Tensor, "*B Q S C"], y: Float[Tensor, "*B S C"], levels: Sequence[float]
) -> Float[Tensor, " *B"]:
    """Return the mean error of forecasts: the pinball loss of quantiles, or else the squared error.

    The pinball loss of quantile q at level p is  max(p (y - q), (p - 1) (y - q)).  Its mean is smallest where y is
    below q with probability p.
    """
    difference = y.unsqueeze(-3) - answers
    if not levels:
        return difference.square().mean((-3, -2, -1))
    level = difference.new_tensor(levels)[:, None, None]
    return torch.maximum(level * difference, (level - 1) * difference).mean((-3, -2, -1))


def bounds(levels: Sequence[float], coverage: float) -> tuple[int, int]:
    """Return the numbers of the quantiles between which a share `coverage` of all values is expected."""
    found = []
    for wanted in ((1 - coverage) / 2, (1 + coverage) / 2):
        near = [i for i, level in enumerate(levels) if math.isclose(level, wanted, abs_tol=1e-9)]
        if not near:
            raise ValueError(
                f"an interval of coverage {coverage} needs the quantile {wanted:g}, but the forecaster was trained for "
                f"{list(levels) or 'the mean alone'}; name it in quantiles before fit"
            )
        found += near
    return found[0], found[1]
