"""Rows of a batch that are shorter than it, and positions within rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Spans:
    """The valid range [start, stop) of each row of a padded batch.

    >>> spans = Spans(start=torch.tensor([0, 2]), stop=torch.tensor([3, 5]))
    >>> spans.lengths
    tensor([3, 3])
    >>> y = DS4D(8, 16, max_delay=100)(torch.randn(2, 5, 8), lengths=spans)
    >>> y[0, 3:].any().item(), y[1, :2].any().item()  # padding comes out as zeros
    (False, False)

    Args:
        stop: First position after the valid ones, (B,) int64.
        start: First valid position, (B,) int64; None where all rows begin at 0, which is padding on the right.
    """

    stop: Int[Tensor, " B"]
    start: Int[Tensor, " B"] | None = None
    #: Rows and length of the batch that the ranges are known to fit, so that they are checked only once.
    fits: tuple[int, int] | None = field(default=None, repr=False)

    @property
    def lengths(self) -> Int[Tensor, " B"]:
        """Number of valid positions in each row."""
        return self.stop if self.start is None else self.stop - self.start

    def padding(self, length: int) -> Bool[Tensor, "B {length} 1"]:
        """Return a mask that is True where a batch of this length is padded."""
        return self._outside(torch.arange(length, device=self.stop.device))

    def fill(self, x: Float[Tensor, "B T H"], at: Int[Tensor, "B T"] | None = None) -> Float[Tensor, "B T H"]:
        """Return x with zeros where it is padded, whatever was there, NaN included.

        x is a whole sequence, or what was taken from one at the positions `at`.
        """
        return x.masked_fill(self.padding(x.shape[1]) if at is None else self._outside(at), 0)

    def to_front(self, x: Tensor) -> Tensor:
        """Return x with each row turned so that its valid positions come first."""
        return x if self.start is None else _turn(x, self.start)

    def to_place(self, x: Tensor) -> Tensor:
        """Undo `to_front`."""
        return x if self.start is None else _turn(x, -self.start)

    def _outside(self, position: Tensor) -> Tensor:
        outside = position >= self.stop[:, None]
        if self.start is not None:
            outside = outside | (position < self.start[:, None])
        return outside.unsqueeze(-1)


def without_padding(
    x: Float[Tensor, "B T H"], spans: Spans | None, at: Int[Tensor, "B T"] | None = None
) -> Float[Tensor, "B T H"]:
    """Return x with zeros where it is padded; None: nowhere."""
    return x if spans is None else spans.fill(x, at)


def take(x: Float[Tensor, "B L H"], at: Int[Tensor, "B T"] | None) -> Float[Tensor, "B T H"]:
    """Return x at the positions `at` of each row; None: everywhere."""
    return x if at is None else x.gather(1, at.unsqueeze(-1).expand(-1, -1, x.shape[-1]))


def _turn(x: Tensor, by: Tensor) -> Tensor:
    """Return x (B, L, ...) with x[i, (t + by[i]) % L] at position t of row i."""
    length = x.shape[1]
    index = (torch.arange(length, device=x.device) + by[:, None]) % max(length, 1)
    return x[torch.arange(x.shape[0], device=x.device)[:, None], index]
