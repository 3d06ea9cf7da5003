"""Blocks one after another."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from delayssm.layers import decoding
from delayssm.layers.streaming import Lengths, Positions, Streaming, check_rows, check_sequence, check_step
from delayssm.system.state import State, States


class Stack(Streaming[States]):
    """Blocks one after another."""

    def __init__(self, blocks: Iterable[Streaming[State]]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        if not self.blocks:
            raise ValueError("a stack needs at least one block")
        widths = [block.d_model for block in self._blocks()]
        if len(set(widths)) > 1:
            raise ValueError(f"the blocks of a stack must share one width, not {widths}")
        self.d_model = widths[0]

    def forward(
        self, x: Float[Tensor, "B L H"], lengths: Lengths = None, at: Positions = None
    ) -> Float[Tensor, "B T H"]:
        """The whole sequence by FFT."""
        *before, last = self._blocks()
        for block in before:
            x = block(x, lengths)
        y: Tensor = last(x, lengths, at)
        return y

    def stream(
        self, x: Float[Tensor, "B L H"], state: States, lengths: Lengths = None
    ) -> tuple[Float[Tensor, "B L H"], States]:
        """A chunk by recurrence."""
        if len(state.parts) != len(self.blocks):
            raise ValueError(f"this state is of {len(state.parts)} blocks, but the stack has {len(self.blocks)}")
        after = []
        for block, part in zip(self._blocks(), state.parts, strict=True):
            x, part = block.stream(x, part, lengths)
            after.append(part)
        return x, States(tuple(after), state.model)

    @torch.no_grad()
    def step(
        self, x: Float[Tensor, "B H"], state: States, out: Float[Tensor, "B H"] | None = None
    ) -> tuple[Float[Tensor, "B H"], States]:
        """One token, without gradients: its output, written to `out` if given, and the state after it.

        Stacks of this package's blocks in float32 on a CPU take a single compiled call.
        """
        check_step(x, self.d_model)
        program = decoding.program(self.blocks, state)
        if program is None:
            y, state = super().step(x, state)
            return (y if out is None else out.copy_(y)), state
        check_sequence(x.unsqueeze(1), self.d_model, torch.float32)
        check_rows(x, state.batch_size)
        return decoding.step(program, x, state, out)

    def decoder(self, state: States) -> decoding.Decoder:
        """A stack bound to streams, to go on token by token without looking at the parameters each time."""
        program = decoding.program(self.blocks, state)
        return decoding.Decoder(self.step, state) if program is None else decoding.CompiledDecoder(program, state)

    def _first_state(self, batch_size: int, max_length: int | None) -> States:
        return States(tuple(block.init_state(batch_size, max_length) for block in self._blocks()))

    def _blocks(self) -> list[Streaming[State]]:
        return list(self.blocks)  # type: ignore[arg-type]
