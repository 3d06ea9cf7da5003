"""Transform lengths that are fast, and the lengths of padded rows."""

import functools

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@functools.lru_cache(maxsize=1024)
def fast_length(n: int) -> int:
    """The smallest multiple of 16 that is at least n and has no prime factor above 5.

    Without the factor 16, odd lengths such as 3^7 would qualify, and real transforms of odd length take
    several times longer.
    """
    size = max(16, -(-n // 16) * 16)
    while not _smooth(size):
        size += 16
    return size


def _smooth(n: int) -> bool:
    for prime in (2, 3, 5):
        while n % prime == 0:
            n //= prime
    return n == 1


def padding(lengths: Int[Tensor, " B"], length: int) -> Bool[Tensor, "B {length} 1"]:
    """True where a row of `lengths` valid tokens is padded."""
    return (torch.arange(length, device=lengths.device) >= lengths[:, None]).unsqueeze(-1)


def without_padding(x: Float[Tensor, "B L H"], lengths: Int[Tensor, " B"] | None) -> Float[Tensor, "B L H"]:
    """x with zeros where it is padded, whatever stood there (also NaN)."""
    return x if lengths is None else x.masked_fill(padding(lengths, x.shape[1]), 0)
