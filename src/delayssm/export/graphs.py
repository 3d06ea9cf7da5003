"""Models as functions of tensors, which is what a graph is.

    program = torch.export.export(Stream(model), (x, state), dynamic_shapes=...)

Whole sequences need nothing of this: `torch.export.export(model, (x,))` takes a model as it is. The other modules here
have what follows from the parameters as constants, because a runtime for graphs should not compute it again.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from delayssm.layers.checks import Lengths, Positions
from delayssm.layers.diagonal_ssm import DiagonalSSM
from delayssm.layers.streaming import Streaming
from delayssm.system.convolution import convolve
from delayssm.system.kernel import kernel
from delayssm.system.memory import Rings
from delayssm.system.parameters import PairedCoefficients
from delayssm.system.recurrence import scan
from delayssm.system.spans import take
from delayssm.system.state import State

#: Tokens seen by each stream. All SSMs of a model have seen the same number.
POSITION = "position"


class Stream(nn.Module):
    """The call `stream` of a model in evaluation mode, with states as dictionaries of tensors.

    Rows of a batch are independent streams of any age. A state has rings, for streams of any length.

    >>> from delayssm import DS4D, Block, Stack
    >>> stream = Stream(Stack([Block(DS4D(8, 16, max_delay=100))]).eval())
    >>> state = stream.init_state(batch_size=2)
    >>> y, state = stream(torch.randn(2, 10, 8), state)
    >>> y.shape
    torch.Size([2, 10, 8])

    Args:
        model: Model, or any other module that can stream.
    """

    def __init__(self, model: Streaming[Any]) -> None:
        super().__init__()
        if model.training:
            raise ValueError("only a model in evaluation mode can be exported; call .eval() first")
        self.model: nn.Module = model
        self._first = model.init_state(1)
        self.eval()

    def init_state(self, batch_size: int) -> dict[str, Tensor]:
        """Return the state of streams before their first token: zeros."""
        return {name: t.new_zeros(batch_size, *t.shape[1:]) for name, t in _named(self._first.tensors()).items()}

    def forward(self, x: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the outputs for a chunk, and the state after it."""
        names = iter(self._first.tensors())

        def given(like: Tensor) -> Tensor:
            name = next(names).rpartition(".")
            name = POSITION if name[2] == POSITION else "".join(name)
            # Memory without slots, of an SSM without delays, is not worth an input.
            return state[name].clone() if name in state else like.new_zeros(x.shape[0], *like.shape[1:])

        with torch.no_grad():
            y, after = self.model.stream(x, self._first.map(given))  # type: ignore[operator]
        return y, _named(after.tensors())


def _named(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors that are not empty, with one position for all SSMs."""
    positions = [t for name, t in tensors.items() if name.rpartition(".")[2] == POSITION]
    others = {name: t for name, t in tensors.items() if name.rpartition(".")[2] != POSITION}
    return {**{name: t for name, t in others.items() if 0 not in t.shape[1:]}, POSITION: positions[0]}


def stream_of_constants(model: Streaming[Any]) -> Stream:
    """Return the streaming call of a model with the discrete systems of its SSMs as constants."""
    stream = Stream(model)
    stream.model = _replaced(model, Recurrence)
    return stream


def sequences_of_constants(model: nn.Module, max_length: int) -> nn.Module:
    """Return a model for sequences of at most `max_length` tokens with the kernels of its SSMs as constants."""
    return _replaced(model, lambda ssm: Convolution(ssm, max_length))


def _replaced(model: nn.Module, counterpart: Callable[[DiagonalSSM], nn.Module]) -> nn.Module:
    """Return a copy of a model with a counterpart in the place of each SSM."""
    if isinstance(model, DiagonalSSM):
        return counterpart(model).eval()
    model = copy.deepcopy(model)
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, DiagonalSSM):
                setattr(parent, name, counterpart(child).eval())
    return model


class Recurrence(nn.Module):
    """An SSM that only streams, with its discrete system as constants."""

    def __init__(self, ssm: DiagonalSSM) -> None:
        super().__init__()
        system = ssm.constants()
        self.names = system._fields
        for name, value in system._asdict().items():
            self.register_buffer(name, value.detach().clone())
        self.register_buffer("D", ssm.D.detach().clone())

    def stream(self, x: Tensor, state: State, lengths: Lengths = None) -> tuple[Tensor, State]:
        """Return the outputs for a chunk without padding, and the state after it."""
        assert lengths is None
        assert isinstance(state.memory, Rings)
        system = PairedCoefficients(*(self.get_buffer(name) for name in self.names))
        counts = torch.full_like(state.position, x.shape[1])
        y, rings = scan(system, x, state.memory, state.position, counts)
        return y + self.get_buffer("D") * x, state.advanced(x.shape[1], counts, rings)


class Convolution(nn.Module):
    """An SSM for whole sequences, with its kernel up to some length as a constant."""

    def __init__(self, ssm: DiagonalSSM, max_length: int) -> None:
        super().__init__()
        self.d_model = ssm.d_model
        with torch.no_grad():
            K = kernel(ssm.constants(), max_length, ssm.config.contour, ssm.D, ssm.signal_dtype)
        self.register_buffer("kernel", K)

    def forward(self, x: Tensor, lengths: Lengths = None, at: Positions = None) -> Tensor:
        """Return the outputs for sequences without padding."""
        assert lengths is None
        return take(convolve(x, self.get_buffer("kernel")[:, : x.shape[1]]), at)
