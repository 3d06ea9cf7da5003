"""Widths at which different models have equally many parameters."""

from collections.abc import Callable

import torch
from torch import nn


def count_parameters(build: Callable[[], nn.Module]) -> int:
    """Return the number of trainable parameters of a model, without allocating it."""
    with torch.device("meta"):
        model = build()
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def match_width(build: Callable[[int], nn.Module], budget: int, multiple_of: int = 1) -> int:
    """Return the width at which a model has the number of parameters nearest to `budget`.

    >>> match_width(lambda width: torch.nn.LSTM(width, width), budget=100_000)
    111

    Args:
        build: Returns the model of a given width; wider models must have more parameters.
        budget: Number of parameters to come close to.
        multiple_of: Divisor of the width, such as the number of attention heads.
    """
    if multiple_of < 1:
        raise ValueError(f"multiple_of must be at least 1, not {multiple_of}")

    def count(steps: int) -> int:
        return count_parameters(lambda: build(steps * multiple_of))

    if budget < count(1):
        raise ValueError(f"the narrowest model already has {count(1):,} parameters, more than {budget:,}")
    high = 2
    while count(high) <= budget:
        high *= 2
    low = high // 2  # count(low) <= budget < count(high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) <= budget else (low, middle)
    return multiple_of * min(low, high, key=lambda steps: abs(count(steps) - budget))
