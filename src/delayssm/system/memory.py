"""What an SSM remembers between two chunks. There are two memories, and both are exact.

Rings, for streams of any length: the recurrence needs, k tokens later, what a state feeds back,
f_(t+k) = mu [(1 - alpha) h_t + alpha h_(t-1)]. Each channel keeps its own last k of them, f_t in slot t mod k.

History, for streams of at most T tokens: the layer is a convolution, and the past is the inputs. See
`delayssm.system.history`. It is faster, whatever the delays and the number of modes, and takes T/2 numbers for each
channel.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from delayssm.backends import HISTORY_NEAR, HISTORY_PADDED


class Memory(ABC):
    """The memory of a batch of streams."""

    max_length: int | None  # largest number of tokens of a stream; None for any number

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return everything that is remembered, by name. Rows come first; before the first token everything is 0."""

    @abstractmethod
    def map(self, function: Callable[[Tensor], Tensor]) -> Memory:
        """Return a memory with a function applied to each tensor."""

    @abstractmethod
    def to(self, device: torch.device | str) -> Memory:
        """Return the memory on a device."""

    @abstractmethod
    def difference(self, other: Memory) -> str | None:
        """Return why another memory cannot take the place of a part of this one, or None if it can."""

    @abstractmethod
    def describe(self) -> str:
        """Return what it consists of."""


@dataclass(frozen=True)
class Rings(Memory):
    """The last state, and what the past feeds back to the tokens that come. H channels with n stored modes each."""

    h: Tensor  # (B, H, 2, n) float64, real parts before imaginary parts
    feedback: Tensor  # (B, S, 2, n): the slots of one channel after those of another
    k: Tensor  # (H,) int64: the delays that it is for, and numbers of slots; 0 for none
    max_length: int | None = None

    @staticmethod
    def zeros(batch_size: int, k: Tensor, modes: int, dtype: torch.dtype, max_length: int | None) -> Rings:
        """Return the memory of streams before their first token."""
        h = _zeros((batch_size, len(k), 2, modes), torch.float64, k.device)
        feedback = _zeros((batch_size, int(k.sum()), 2, modes), dtype, k.device)
        return Rings(h, feedback, k, max_length)

    @staticmethod
    def bytes_for(k: Tensor, modes: int, dtype: torch.dtype) -> int:
        """Return what one stream would take."""
        return 2 * modes * (len(k) * 8 + int(k.sum()) * dtype.itemsize)

    def tensors(self) -> dict[str, Tensor]:
        return {"h": self.h, "feedback": self.feedback}

    def map(self, function: Callable[[Tensor], Tensor]) -> Rings:
        return replace(self, h=function(self.h), feedback=function(self.feedback))

    def to(self, device: torch.device | str) -> Rings:
        return replace(self.map(lambda t: t.to(device)), k=self.k.to(device))

    def difference(self, other: Memory) -> str | None:
        if other.max_length != self.max_length:
            return f"these streams have max_length={other.max_length}, not {self.max_length}"
        assert isinstance(other, Rings)
        if not torch.equal(self.k, other.k):
            return "these streams were made for other delays: some have moved to another step since"
        return None

    def describe(self) -> str:
        state, slots = (t.nbytes // len(t) for t in self.tensors().values())
        delayed = self.k[self.k > 0]
        if not len(delayed):
            return f"the last state, {state:,} bytes a stream"
        return (
            f"the last state, {state:,} bytes a stream, and rings of {int(delayed.min()):,} to {int(delayed.max()):,} "
            f"slots, {slots:,} bytes a stream"
        )


@dataclass(frozen=True)
class History(Memory):
    """Past inputs, and what is known of the outputs that come."""

    values: Tensor  # (B, S, W): H channels, and zeros up to a multiple of HISTORY_PADDED
    max_length: int
    parameters: str  # digest of the parameters that it is for

    @staticmethod
    def zeros(batch_size: int, max_length: int, like: Tensor, channels: int, parameters: str) -> History:
        """Return the memory of streams before their first token."""
        width = -(-channels // HISTORY_PADDED) * HISTORY_PADDED
        return History(_zeros((batch_size, slots(max_length), width), like.dtype, like.device), max_length, parameters)

    @staticmethod
    def bytes_for(max_length: int, channels: int, dtype: torch.dtype) -> int:
        """Return what one stream would take."""
        return slots(max_length) * channels * dtype.itemsize

    @property
    def slots(self) -> int:
        """Number of slots S."""
        return self.values.shape[1]

    def tensors(self) -> dict[str, Tensor]:
        return {"values": self.values}

    def map(self, function: Callable[[Tensor], Tensor]) -> History:
        return replace(self, values=function(self.values))

    def to(self, device: torch.device | str) -> History:
        return self.map(lambda t: t.to(device))

    def difference(self, other: Memory) -> str | None:
        if other.max_length != self.max_length:
            return f"these streams have max_length={other.max_length}, not {self.max_length}"
        assert isinstance(other, History)
        if other.parameters != self.parameters:
            return "these streams were made for other values of the parameters"
        return None

    def describe(self) -> str:
        return f"a history of {self.slots:,} tokens, {self.values.nbytes // len(self.values):,} bytes a stream"


def slots(max_length: int) -> int:
    """Return the number of slots of a history: half of the next power of two, and at least one block."""
    return max(HISTORY_NEAR, 1 << max(0, (max_length - 1).bit_length() - 1))


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return zeros, or raise an error that says what to do if there is no room for them."""
    try:
        return torch.zeros(shape, dtype=dtype, device=device)
    except RuntimeError as error:
        raise RuntimeError(
            f"there is no room for the memory of {shape[0]} streams, {math.prod(shape) * dtype.itemsize:,} bytes; use "
            "fewer streams, a smaller max_delay, or init_state with a max_length"
        ) from error
