"""The contract that every module here keeps: one pass, any chunking and token by token give the same result."""

import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from delayssm.storage import files
from delayssm.storage import tensors as tensor_file
from delayssm.system.state import FORMAT, Streams

S = TypeVar("S", bound=Streams)
Lengths = Int[Tensor, " B"] | Sequence[int] | None
Positions = Int[Tensor, "B T"] | None


class Identity:
    """A module as its states know it. Every copy of a module has another one."""

    def __init__(self, module: nn.Module) -> None:
        self._module = weakref.ref(module)

    def fingerprint(self) -> dict[str, str]:
        """What kind of module it is, and a digest of its parameters as they are now."""
        module = self._module()
        if module is None:
            raise RuntimeError("the module that made this state is gone; keep it until the state is saved")
        return {"model": repr(module), "parameters": files.digest(module.state_dict())}


class Streaming(nn.Module, ABC, Generic[S]):
    """A causal map of sequences that can be stopped and continued anywhere.

    Where rows are padded, `lengths` gives their number of valid tokens: what stands behind it changes nothing,
    comes out as zeros, and does not advance the state. Where only some outputs are wanted, `at` gives their
    positions in each row; the others are computed only as far as these need them.
    """

    d_model: int

    def __init__(self) -> None:
        super().__init__()
        self._owner = Identity(self)

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "B L H"], lengths: Lengths = None, at: Positions = None
    ) -> Float[Tensor, "B T H"]:
        """A whole sequence at once; its outputs everywhere, or at the positions `at`."""

    @abstractmethod
    def stream(self, x: Float[Tensor, "B L H"], state: S, lengths: Lengths = None) -> tuple[Float[Tensor, "B L H"], S]:
        """A chunk of any length, also 0 or 1: its output and the state after it.

        Gradients flow through outputs and states. Without gradients (under `torch.no_grad`) the state is
        advanced in place, and the one passed in is spent.
        """

    @torch.no_grad()
    def step(self, x: Float[Tensor, "B H"], state: S) -> tuple[Float[Tensor, "B H"], S]:
        """One token, without gradients: its output and the state after it."""
        check_step(x, self.d_model)
        y, state = self.stream(x.unsqueeze(1), state)
        return y.squeeze(1), state

    def init_state(self, batch_size: int, max_length: int | None = None) -> S:
        """The state of `batch_size` streams before their first token, for the delays as they are now.

        If no stream will have more than `max_length` tokens, say so: a long delay then costs a fraction of the memory.
        Such a state is for inference only.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        if max_length is not None and max_length < 1:
            raise ValueError(f"max_length must be at least 1, or None for streams without end, not {max_length}")
        state = self._first_state(batch_size, max_length)
        state.model = self._owner
        return state

    def load_state(self, path: Path | str) -> S:
        """The streams that `state.save` wrote, to be continued bit for bit by the module that they belong to."""
        path = Path(path)
        saved, about = tensor_file.read(path, FORMAT)
        mine = self._owner.fingerprint()
        if about["model"] != mine["model"]:
            raise ValueError(f"{path} has streams of another model,\n{about['model']}\nwhile this is\n{mine['model']}")
        if about["parameters"] != mine["parameters"]:
            raise ValueError(
                f"{path} was saved with other values of the parameters: load the checkpoint that belongs to it first, "
                "or begin again from init_state"
            )
        max_length = None if about["max_length"] == "None" else int(about["max_length"])
        batch_size = next(len(t) for name, t in saved.items() if name.endswith("position"))
        state = self.init_state(batch_size, max_length)
        tensor_file.fill(state.tensors(), saved, path)
        state.count_tokens()
        return state

    @abstractmethod
    def _first_state(self, batch_size: int, max_length: int | None) -> S: ...

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_owner"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._owner = Identity(self)


def check_sequence(x: Tensor, width: int, dtype: torch.dtype) -> None:
    """x is (batch, length, width) in a dtype that a module computing in `dtype` can take without loss."""
    if x.ndim != 3:
        raise ValueError(f"expected x of shape (batch, length, {width}), not {tuple(x.shape)}")
    if x.shape[-1] != width:
        raise ValueError(f"x has width {x.shape[-1]}, but this module has d_model = {width}")
    reduced = x.dtype in (torch.float16, torch.bfloat16) and dtype == torch.float32
    if x.dtype != dtype and not reduced:
        raise TypeError(f"x is {x.dtype}, but this module computes in {dtype}; use x.to({dtype}) or module.to(x.dtype)")


def check_step(x: Tensor, width: int) -> None:
    """x is one token per row."""
    if x.ndim != 2:
        raise ValueError(f"step takes one token per row, shape (batch, {width}), not {tuple(x.shape)}")


def check_rows(x: Tensor, batch_size: int) -> None:
    """x has a row for each stream."""
    if len(x) != batch_size:
        raise ValueError(f"this state holds {batch_size} streams, but x has {len(x)} rows")


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


def check_positions(at: Positions, x: Tensor) -> None:
    """`at` has a row of positions for each row of x."""
    if at is None:
        return
    if at.ndim != 2 or len(at) != len(x) or at.dtype != torch.int64:
        raise ValueError(
            f"positions must be whole numbers (torch.int64), a row for each of the {len(x)} rows of x, "
            f"not {at.dtype} of shape {tuple(at.shape)}"
        )
    visible = at.device.type == "cpu" and not torch.compiler.is_compiling()
    if visible and at.numel() and not 0 <= int(at.min()) <= int(at.max()) < x.shape[1]:
        raise ValueError(f"positions must lie between 0 and {x.shape[1] - 1}, not {int(at.min())} and {int(at.max())}")
