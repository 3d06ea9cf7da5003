"""Blocks one after another."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from delayssm.config import Config, Device
from delayssm.layers import decoding
from delayssm.layers.checks import Lengths, Positions, check_lengths, check_module, check_state
from delayssm.layers.decoding import Decoder
from delayssm.layers.streaming import Streaming
from delayssm.storage.pretrained import Pretrained
from delayssm.system.state import State, States


@dataclass(frozen=True)
class StackConfig(Config):
    """Configuration of `Stack`.

    Args:
        blocks: Blocks in order.
    """

    blocks: tuple[Config, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.blocks:
            raise ValueError("a stack needs at least one block")

    def build(self, device: Device = None, dtype: torch.dtype | None = None) -> "Stack":
        return Stack(block.build(device, dtype) for block in self.blocks)  # type: ignore[misc]


class Stack(Streaming[States], Pretrained):
    """Blocks one after another.

    >>> model = Stack(Block(DS4D(8, 16, max_delay=100)) for _ in range(2))
    >>> model(torch.randn(2, 300, 8)).shape
    torch.Size([2, 300, 8])

    Args:
        blocks: Blocks of one width, such as `Block`, in order.
    """

    def __init__(self, blocks: Iterable[Streaming[State]]) -> None:
        super().__init__()
        if not isinstance(blocks, Iterable):
            raise TypeError(f"a stack takes a list of blocks, not one {type(blocks).__name__}")
        blocks = list(blocks)
        for block in blocks:
            check_module("each block", block, Streaming)
        if not blocks:
            raise ValueError("a stack needs at least one block")
        self.blocks = nn.ModuleList(blocks)
        widths = [block.d_model for block in self._blocks()]
        if len(set(widths)) > 1:
            raise ValueError(f"the blocks of a stack must share one width, not {widths}")
        self.d_model = widths[0]

    @property
    def dtype(self) -> torch.dtype:
        return self._blocks()[0].dtype

    @property
    def config(self) -> StackConfig:
        return StackConfig(tuple(block.config for block in self._blocks()))

    def forward(
        self, x: Float[Tensor, "B L H"], lengths: Lengths = None, at: Positions = None
    ) -> Float[Tensor, "B T H"]:
        """Return the outputs for a whole sequence."""
        spans = check_lengths(lengths, x)
        *before, last = self._blocks()
        for block in before:
            x = block(x, spans)
        y: Tensor = last(x, spans, at)
        return y

    def stream(
        self, x: Float[Tensor, "B L H"], state: States, lengths: Lengths = None
    ) -> tuple[Float[Tensor, "B L H"], States]:
        """Return the outputs for a chunk, and the state after it."""
        check_state(state, States)
        if len(state.parts) != len(self.blocks):
            raise ValueError(f"this state is of {len(state.parts)} blocks, but the stack has {len(self.blocks)}")
        spans = check_lengths(lengths, x)
        after = []
        for block, part in zip(self._blocks(), state.parts, strict=True):
            x, part = block.stream(x, part, spans)
            after.append(part)
        return x, States(tuple(after), state.origin)

    def decoder(self, state: States) -> Decoder[States]:
        """Return this stack bound to streams and to the parameters as they are now: the fastest way to go on."""
        return decoding.bind(self, state)

    def _first_state(self, batch_size: int, max_length: int | None) -> States:
        return States(tuple(block.init_state(batch_size, max_length) for block in self._blocks()))

    def _blocks(self) -> list[Streaming[State]]:
        return list(self.blocks)  # type: ignore[arg-type]
