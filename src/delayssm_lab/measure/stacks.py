"""The stacks of DS4D and S4D blocks whose speed is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from delayssm.layers.block import Block
from delayssm.layers.layer import DS4D, S4D
from delayssm.layers.stack import Stack


@dataclass(frozen=True)
class StackSize:
    """A stack of pre-norm blocks."""

    family: Literal["DS4D", "S4D"] = "DS4D"
    d_model: int = 256
    d_state: int = 64
    depth: int = 4

    @property
    def label(self) -> str:
        """Family and width, for tables."""
        return f"{self.family}, H {self.d_model}"

    def build(self, max_delay: int) -> Stack:
        """Return the stack with seed 0, with delays on a grid up to `max_delay`."""
        torch.manual_seed(0)
        layers = [
            DS4D(self.d_model, self.d_state, max_delay) if self.family == "DS4D" else S4D(self.d_model, self.d_state)
            for _ in range(self.depth)
        ]
        return Stack(map(Block, layers))


BASELINE = StackSize("S4D")
SAME_WIDTH = StackSize("DS4D")
#: DS4D with about as many parameters as `BASELINE`; the width is the paper's.
SAME_PARAMETERS = StackSize("DS4D", d_model=241)
NARROW = StackSize("DS4D", d_model=64)
