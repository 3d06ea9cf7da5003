"""Rows shorter than their batch, and some positions of each."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def padding(lengths: Int[Tensor, " B"], length: int) -> Bool[Tensor, "B {length} 1"]:
    """True where a row of `lengths` valid tokens is padded."""
    return (torch.arange(length, device=lengths.device) >= lengths[:, None]).unsqueeze(-1)


def without_padding(
    x: Float[Tensor, "B T H"], lengths: Int[Tensor, " B"] | None, at: Int[Tensor, "B T"] | None = None
) -> Float[Tensor, "B T H"]:
    """x with zeros where it is padded, whatever stood there (also NaN).

    x is a whole sequence, or what was taken from one at the positions `at`.
    """
    if lengths is None:
        return x
    padded = padding(lengths, x.shape[1]) if at is None else (at >= lengths[:, None]).unsqueeze(-1)
    return x.masked_fill(padded, 0)


def take(x: Float[Tensor, "B L H"], at: Int[Tensor, "B T"] | None) -> Float[Tensor, "B T H"]:
    """x at the positions `at` of each row; None: everywhere."""
    return x if at is None else x.gather(1, at.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
