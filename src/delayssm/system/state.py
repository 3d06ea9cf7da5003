"""What a stream remembers between chunks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


class Owner:
    """Tells whose a state is. A copy of a module has another one, since copying makes new objects."""


class Memory:
    """Counts how often tensors were advanced in place. All states that look at the same tensors share one."""

    def __init__(self) -> None:
        self.advances = 0


@dataclass
class State:
    """The memory of one SSM for a batch of streams. B rows, H channels, n = N/2 stored modes.

    Without gradients a chunk is processed in place: the state that was passed in is then spent, its memory
    belongs to the state that was returned, and using it again is an error. `clone` first to branch.
    """

    h: Tensor  # (B, H, 2, n) float64: the last state, real parts before imaginary parts
    history: Tensor  # (B, S, 2, n): a ring of k + 1 states per channel; that of time t in slot t mod (k + 1)
    position: Tensor  # (B,) int64: tokens seen
    k: Tensor  # (H,) int64: the delays that the rings are laid out for; 0 for none
    owner: Owner
    memory: Memory = field(default_factory=Memory)
    advances: int = 0  # those of the memory when this state was made

    @staticmethod
    def zeros(owner: Owner, batch_size: int, modes: int, k: Tensor, dtype: torch.dtype) -> State:
        """A stream before its first token."""
        slots = int(torch.where(k > 0, k + 1, 0).sum())
        h = torch.zeros(batch_size, len(k), 2, modes, dtype=torch.float64, device=k.device)
        history = torch.zeros(batch_size, slots, 2, modes, dtype=dtype, device=k.device)
        position = torch.zeros(batch_size, dtype=torch.int64, device=k.device)
        return State(h, history, position, k, owner)

    @property
    def batch_size(self) -> int:
        return len(self.position)

    @property
    def nbytes(self) -> int:
        """Bytes that the streams occupy."""
        return self.h.nbytes + self.history.nbytes + self.position.nbytes

    def clone(self) -> State:
        """An independent copy."""
        return self._with(self.h.clone(), self.history.clone(), self.position.clone())

    def detach(self) -> State:
        """The same memory without its gradient history, as truncated backpropagation needs it."""
        same = self._with(self.h.detach(), self.history.detach(), self.position)
        return dataclasses.replace(same, memory=self.memory, advances=self.advances)

    def select(self, rows: Sequence[int] | Tensor) -> State:
        """A copy of some streams, in the order given."""
        index = torch.as_tensor(rows, device=self.position.device)
        return self._with(self.h[index], self.history[index], self.position[index])

    def to(self, device: torch.device | str) -> State:
        """The state on another device."""
        position = self.position.to(device)
        if position is self.position:
            return self  # it is there already
        moved = self._with(self.h.to(device), self.history.to(device), position)
        return dataclasses.replace(moved, k=self.k.to(device))

    def advanced(self, lengths: Tensor, h: Tensor, history: Tensor) -> State:
        """The state `lengths` tokens later."""
        after = self._with(h, history, self.position + lengths)
        if h is not self.h:
            return after
        self.memory.advances += 1
        return dataclasses.replace(after, memory=self.memory, advances=self.memory.advances)

    def require_unspent(self) -> None:
        """Raise if this memory already belongs to a later state."""
        if self.advances != self.memory.advances:
            raise RuntimeError(
                "this state is spent: a later chunk was processed in its memory. Go on with the state that call "
                "returned, or clone() the state before the call to branch"
            )

    def _with(self, h: Tensor, history: Tensor, position: Tensor) -> State:
        self.require_unspent()
        return State(h, history, position, self.k, self.owner)


@dataclass
class States:
    """The memories of several modules that run one after another."""

    parts: tuple[State, ...]

    @property
    def batch_size(self) -> int:
        return self.parts[0].batch_size

    @property
    def nbytes(self) -> int:
        """Bytes that the streams occupy."""
        return sum(part.nbytes for part in self.parts)

    def clone(self) -> States:
        """An independent copy."""
        return States(tuple(part.clone() for part in self.parts))

    def detach(self) -> States:
        """The same memory without its gradient history, as truncated backpropagation needs it."""
        return States(tuple(part.detach() for part in self.parts))

    def select(self, rows: Sequence[int] | Tensor) -> States:
        """A copy of some streams, in the order given."""
        return States(tuple(part.select(rows) for part in self.parts))

    def to(self, device: torch.device | str) -> States:
        """The state on another device."""
        return States(tuple(part.to(device) for part in self.parts))
