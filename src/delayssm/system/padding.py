"""Rows shorter than their batch."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def padding(lengths: Int[Tensor, " B"], length: int) -> Bool[Tensor, "B {length} 1"]:
    """True where a row of `lengths` valid tokens is padded."""
    return (torch.arange(length, device=lengths.device) >= lengths[:, None]).unsqueeze(-1)


def without_padding(x: Float[Tensor, "B L H"], lengths: Int[Tensor, " B"] | None) -> Float[Tensor, "B L H"]:
    """x with zeros where it is padded, whatever stood there (also NaN)."""
    return x if lengths is None else x.masked_fill(padding(lengths, x.shape[1]), 0)
