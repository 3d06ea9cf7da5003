"""The contract that every module here keeps: one pass, any chunking and token by token give the same result."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from delayssm.system.state import State, States

S = TypeVar("S", bound=State | States)
Lengths = Int[Tensor, " B"] | Sequence[int] | None


class Streaming(nn.Module, ABC, Generic[S]):
    """A causal map of sequences that can be stopped and continued anywhere.

    Where rows are padded, `lengths` gives their number of valid tokens: what stands behind it changes nothing,
    comes out as zeros, and does not advance the state.
    """

    d_model: int

    @abstractmethod
    def forward(self, x: Float[Tensor, "B L H"], lengths: Lengths = None) -> Float[Tensor, "B L H"]:
        """A whole sequence at once."""

    @abstractmethod
    def init_state(self, batch_size: int) -> S:
        """The state before the first token."""

    @abstractmethod
    def stream(self, x: Float[Tensor, "B L H"], state: S, lengths: Lengths = None) -> tuple[Float[Tensor, "B L H"], S]:
        """A chunk of any length, also 0 or 1: its output and the state after it.

        Gradients flow through outputs and states. Without gradients (under `torch.no_grad`) the state is
        advanced in place, and the one passed in is spent.
        """

    @torch.no_grad()
    def step(self, x: Float[Tensor, "B H"], state: S) -> tuple[Float[Tensor, "B H"], S]:
        """One token, without gradients: its output and the state after it."""
        if x.ndim != 2:
            raise ValueError(f"step takes one token per row, shape (batch, {self.d_model}), not {tuple(x.shape)}")
        y, state = self.stream(x.unsqueeze(1), state)
        return y.squeeze(1), state


def check_sequence(x: Tensor, width: int, dtype: torch.dtype) -> None:
    """x is (batch, length, width) in a dtype that a module computing in `dtype` can take without loss."""
    if x.ndim != 3:
        raise ValueError(f"expected x of shape (batch, length, {width}), not {tuple(x.shape)}")
    if x.shape[-1] != width:
        raise ValueError(f"x has width {x.shape[-1]}, but this module has d_model = {width}")
    reduced = x.dtype in (torch.float16, torch.bfloat16) and dtype == torch.float32
    if x.dtype != dtype and not reduced:
        raise TypeError(f"x is {x.dtype}, but this module computes in {dtype}; use x.to({dtype}) or module.to(x.dtype)")


def check_lengths(lengths: Lengths, x: Tensor) -> Tensor | None:
    """`lengths` as a tensor beside x, after making sure that it fits."""
    if lengths is None:
        return None
    found = torch.as_tensor(lengths)
    if found.shape != x.shape[:1] or found.dtype.is_floating_point or found.dtype == torch.bool:
        raise ValueError(
            f"lengths must be one whole number per row, shape ({len(x)},), "
            f"not {found.dtype} of shape {tuple(found.shape)}"
        )
    # Looking at values elsewhere would make the host wait for the device, in every layer.
    visible = found.device.type == "cpu" and not torch.compiler.is_compiling()
    if visible and bool(((found < 0) | (found > x.shape[1])).any()):
        raise ValueError(f"lengths must lie between 0 and {x.shape[1]}, the length of x, not {found.tolist()}")
    return found.to(x.device, torch.int64)
