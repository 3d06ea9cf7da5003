"""What streams remember between chunks."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self

import torch
from torch import Tensor

from delayssm.storage import tensors as tensor_file
from delayssm.system.memory import Memory

Rows = Sequence[int] | Tensor
#: Format of files with saved streams. The number goes up when their content changes its meaning.
FORMAT = "delayssm state 4"
#: Largest number of tokens of a stream, with room for every sum of two positions in 64 bits.
LONGEST = 1 << 61


class Identity(Protocol):
    """A module, as its states know it."""

    def fingerprint(self) -> dict[str, str]:
        """Return the configuration of the module, and a digest of its parameters as they are now."""


class Claim:
    """What a pickled state knows of its module. It fits every module of the same configuration and parameters."""

    def __init__(self, fingerprint: dict[str, str]) -> None:
        self._fingerprint = fingerprint

    def fingerprint(self) -> dict[str, str]:
        """Return the configuration of the module, and a digest of its parameters as they were."""
        return self._fingerprint


def same_module(a: Identity | None, b: Identity | None) -> bool:
    """Return whether two identities are of one module; a pickled one is that of any module like its own."""
    if a is b:
        return True
    pickled = isinstance(a, Claim) or isinstance(b, Claim)
    return pickled and a is not None and b is not None and a.fingerprint() == b.fingerprint()


class Usage:
    """How often some tensors were advanced in place. All states that share the tensors share this record.

    `advances` counts the chunks. No stream has seen more than `longest` tokens: a bound that is known without waiting
    for a device.
    """

    def __init__(self, longest: int = 0) -> None:
        self.advances, self.longest = 0, longest

    def advance(self, tokens: int) -> None:
        """Record a chunk of so many tokens."""
        if torch.compiler.is_dynamo_compiling():  # inductor generates no valid code for counts that no shape depends on
            torch._dynamo.graph_break()
        self.advances += 1
        self.longest += tokens


class Streams(ABC):
    """A batch of streams: one row each, all independent of one another and of any age.

    Without gradients a chunk is processed in place: the state that was passed in is then spent, its memory belongs to
    the state that was returned, and using it again is an error. To branch, `clone` it first.
    """

    origin: Identity | None  # the module whose init_state made it
    position: Tensor  # (B,) int64: tokens seen

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return everything that is remembered, by name. Rows come first; before the first token everything is 0."""

    @abstractmethod
    def memories(self) -> list[Memory]:
        """Return the memory of each SSM."""

    @abstractmethod
    def usages(self) -> list[Usage]:
        """Return the record of in-place advances of each SSM."""

    @abstractmethod
    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Return independent streams with a function applied to each tensor."""

    @abstractmethod
    def detach(self) -> Self:
        """Return the same memory without its gradient history, as truncated backpropagation needs it."""

    @abstractmethod
    def to(self, device: torch.device | str) -> Self:
        """Return the streams on a device."""

    @abstractmethod
    def require_unspent(self) -> None:
        """Raise if this memory already belongs to a later state."""

    @property
    @abstractmethod
    def max_length(self) -> int | None:
        """Largest number of tokens of a stream; None for any number."""

    @abstractmethod
    def describe(self) -> str:
        """Return a description: which memory the streams have, and what it costs."""

    def _positions(self) -> list[Tensor]:
        return [t for name, t in self.tensors().items() if name.split(".")[-1] == "position"]

    @property
    def batch_size(self) -> int:
        """Number of streams."""
        return self.position.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes that the streams occupy."""
        return sum(t.nbytes for t in self.tensors().values())

    def clone(self) -> Self:
        """Return an independent copy."""
        return self.map(torch.clone)

    def select(self, rows: Rows) -> Self:
        """Return a copy of some streams, in the given order."""
        index = self._index(rows)
        return self.map(lambda t: t[index])

    @torch.no_grad()
    def reset(self, rows: Rows) -> None:
        """Start some streams afresh, in place."""
        self._require_no_graph("reset")
        for t in self.tensors().values():
            t[self._index(rows)] = 0
        self.count_tokens()

    @torch.no_grad()
    def put(self, rows: Rows, streams: Self) -> None:
        """Replace some streams by others of the same module, in place."""
        self._require_no_graph("put")
        streams.require_unspent()
        index = self._index(rows)
        if not same_module(streams.origin, self.origin):
            raise ValueError("these streams belong to another module")
        if len(index) != streams.batch_size:
            raise ValueError(f"there are {streams.batch_size} streams for {len(index)} rows")
        for mine, theirs in zip(self.memories(), streams.memories(), strict=True):
            if difference := mine.difference(theirs):
                raise ValueError(difference)
        for t, new in zip(self.tensors().values(), streams.tensors().values(), strict=True):
            t[index] = new
        self.count_tokens()

    def count_tokens(self) -> None:
        """Find out how long the streams are, after something other than a chunk has changed that."""
        ages = [(int(position.min()), int(position.max())) for position in self._positions()]
        if len(set(ages)) > 1:
            raise ValueError("the parts of this state have seen different numbers of tokens")
        (shortest, longest), bound = ages[0], LONGEST if self.max_length is None else self.max_length
        if shortest < 0 or longest > bound:
            raise ValueError(f"a stream has seen {shortest if shortest < 0 else longest} tokens, not 0 to {bound}")
        for usage in self.usages():
            usage.longest = longest

    def save(self, path: Path | str) -> None:
        """Write the streams to a safetensors file, atomically; the module reads it with `load_state`."""
        self.require_unspent()
        if self.origin is None:
            raise ValueError("only a state made by a module's init_state can be saved")
        about = {"max_length": str(self.max_length), **self.origin.fingerprint()}
        tensor_file.write(Path(path), FORMAT, self.tensors(), about)

    def _index(self, rows: Rows) -> Tensor:
        index = rows if isinstance(rows, Tensor) else torch.tensor(rows, device="cpu")
        whole = index.numel() == 0 or not (index.dtype.is_floating_point or index.dtype == torch.bool)
        if index.ndim != 1 or not whole or bool(((index < 0) | (index >= self.batch_size)).any()):
            raise ValueError(f"rows must be a list of numbers from 0 to {self.batch_size - 1}, not {rows}")
        return index.to(self.position.device, torch.int64)

    def _require_no_graph(self, name: str) -> None:
        self.require_unspent()
        if any(t.requires_grad for t in self.tensors().values()):
            raise RuntimeError(f"{name} changes the state in place, which would break its gradients; detach() it first")


@dataclass
class State(Streams):
    """The streams of one SSM."""

    memory: Memory
    position: Tensor  # (B,) int64: tokens seen
    ssm: Identity  # the module whose memory it is
    origin: Identity | None = None
    usage: Usage = field(default_factory=Usage)
    advances: int = 0  # of the memory, when this state was made

    @property
    def max_length(self) -> int | None:
        return self.memory.max_length

    def tensors(self) -> dict[str, Tensor]:
        return {**self.memory.tensors(), "position": self.position}

    def memories(self) -> list[Memory]:
        return [self.memory]

    def usages(self) -> list[Usage]:
        return [self.usage]

    def map(self, function: Callable[[Tensor], Tensor]) -> State:
        self.require_unspent()
        usage = Usage(self.usage.longest)

        def apply(t: Tensor) -> Tensor:
            return function(t).contiguous()  # backends advance memory in place, by its address

        with torch.inference_mode(False):  # tensors made in inference mode could not be advanced outside of it
            return State(self.memory.map(apply), apply(self.position), self.ssm, self.origin, usage)

    def detach(self) -> State:
        return dataclasses.replace(self.map(Tensor.detach), usage=self.usage, advances=self.advances)

    def to(self, device: torch.device | str) -> State:
        self.require_unspent()
        if torch.empty(0, device=device).device == self.position.device:
            return self  # it is there already
        with torch.inference_mode(False):  # as in `map`
            memory, position = self.memory.to(device), self.position.to(device)
        return State(memory, position, self.ssm, self.origin, Usage(self.usage.longest))

    def describe(self) -> str:
        bound = "any number of" if self.max_length is None else f"at most {self.max_length:,}"
        return f"streams: {self.batch_size} of {bound} tokens, {self.nbytes:,} bytes: {self.memory.describe()}"

    def advanced(self, tokens: int, lengths: Tensor, memory: Memory) -> State:
        """Return the state after `lengths` more tokens per row, at most `tokens`."""
        in_place = memory is self.memory
        usage = self.usage if in_place else Usage(self.usage.longest)
        usage.advance(tokens)
        position = self.position.add_(lengths) if in_place else self.position + lengths
        return dataclasses.replace(self, memory=memory, position=position, usage=usage, advances=usage.advances)

    def current(self) -> State:
        """Return the same memory as it is now, after it was advanced in place."""
        return dataclasses.replace(self, advances=self.usage.advances)

    def require_unspent(self) -> None:
        if self.advances != self.usage.advances:
            raise RuntimeError(
                "this state is spent: a later chunk was processed in its memory. Go on with the state that call "
                "returned, or clone() the state before the call to branch"
            )

    def require_owner(self, module: Identity, device: torch.device, in_a_graph: bool) -> None:
        """Raise unless a module can go on with this state, for inputs on a device, with gradients or without."""
        if not same_module(self.ssm, module):
            raise ValueError("this state belongs to another module; make one with this module's init_state")
        self.ssm = module  # so that a pickled state is looked at only once
        self.require_unspent()
        if self.position.device != device:
            raise ValueError(f"this state is on {self.position.device}, but x is on {device}; use state.to(x.device)")
        if in_a_graph and self.max_length is not None:
            raise RuntimeError(
                "a state with max_length has no gradients; wrap the call in torch.no_grad(), or use a state without one"
            )

    def require_room(self, tokens: int, lengths: Tensor | None = None) -> None:
        """Raise if `lengths` more tokens per row, at most `tokens`, would make a stream longer than its bound."""
        if self.max_length is None or torch.compiler.is_compiling():
            return
        if self.usage.longest + tokens <= self.max_length:
            return
        end = self.position + (tokens if lengths is None else lengths)
        if int(end.max()) > self.max_length:
            raise ValueError(
                f"stream {int(end.argmax())} would reach {int(end.max())} tokens, but this state was made for at most "
                f"{self.max_length}. Nothing was processed: reset() the stream, or begin again from init_state with a "
                "larger max_length, or with none for a stream without end"
            )


@dataclass
class States(Streams):
    """The memories of several modules that run one after another."""

    parts: tuple[State, ...]
    origin: Identity | None = None

    @property
    def position(self) -> Tensor:  # type: ignore[override]
        return self.parts[0].position

    @property
    def max_length(self) -> int | None:
        return self.parts[0].max_length

    def tensors(self) -> dict[str, Tensor]:
        return {f"{i}.{name}": t for i, part in enumerate(self.parts) for name, t in part.tensors().items()}

    def memories(self) -> list[Memory]:
        return [part.memory for part in self.parts]

    def usages(self) -> list[Usage]:
        return [part.usage for part in self.parts]

    def map(self, function: Callable[[Tensor], Tensor]) -> States:
        return self._each(lambda part: part.map(function))

    def detach(self) -> States:
        return self._each(State.detach)

    def to(self, device: torch.device | str) -> States:
        return self._each(lambda part: part.to(device))

    def describe(self) -> str:
        return "\n".join(f"block {i}, {part.describe()}" for i, part in enumerate(self.parts))

    def require_unspent(self) -> None:
        for part in self.parts:
            part.require_unspent()

    def current(self) -> States:
        """Return the same memory as it is now, after it was advanced in place."""
        return States(tuple(part.current() for part in self.parts), self.origin)

    def _each(self, function: Callable[[State], State]) -> States:
        return States(tuple(function(part) for part in self.parts), self.origin)
