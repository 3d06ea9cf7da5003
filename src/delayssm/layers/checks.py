"""Checks of what users pass in, with errors that say what to do."""

import operator
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from delayssm.system import plain
from delayssm.system.spans import Spans

#: Valid tokens of each row, which stand at its beginning; or the valid range of each row; None: no padding.
Lengths = Int[Tensor, " B"] | Sequence[int] | Spans | None
#: Positions of each row whose outputs are wanted; None: all.
Positions = Int[Tensor, "B T"] | None


def visible(t: Tensor) -> bool:
    """Return whether values can be looked at for a check.

    They cannot while a function is compiled or transformed. On other devices the host would have to wait for them.
    """
    return t.device.type == "cpu" and not torch.compiler.is_compiling() and not plain.wanted()


def check_whole(name: str, value: Any, least: int = 0) -> int:
    """Return a whole number that an argument must be, as a Python integer."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return number


def check_module(name: str, module: Any, kind: type) -> None:
    """Raise unless an argument is a module of some kind."""
    if not isinstance(module, kind):
        raise TypeError(f"{name} must be a module of type {kind.__name__}, not {type(module).__name__}")


def check_sequence(x: Tensor, width: int, dtype: torch.dtype, name: str = "d_model") -> None:
    """Raise unless x is (batch, length, width), and in the dtype of the parameters, or in any under autocast."""
    if not isinstance(x, Tensor):
        raise TypeError(f"expected a tensor of shape (batch, length, {width}), not {type(x).__name__}")
    if x.ndim != 3:
        raise ValueError(f"expected x of shape (batch, length, {width}), not {tuple(x.shape)}")
    if x.shape[-1] != width:
        raise ValueError(f"x has width {x.shape[-1]}, but this module has {name} = {width}")
    mixed = x.dtype in (torch.float32, torch.float16, torch.bfloat16) and torch.is_autocast_enabled(x.device.type)
    if x.dtype != dtype and not mixed:
        raise TypeError(
            f"x is {x.dtype}, but the parameters of this module are {dtype}; use x.to({dtype}), module.to(x.dtype), or "
            "torch.autocast"
        )


def check_streams() -> None:
    """Raise where states would have to be transformed."""
    if plain.wanted():
        raise RuntimeError(
            "a stream cannot be transformed by torch.func or forward-mode differentiation; use forward, on whole "
            "sequences"
        )


def check_step(x: Tensor, width: int) -> None:
    """Raise unless x is one token per row."""
    if x.ndim != 2:
        raise ValueError(f"step takes one token per row, shape (batch, {width}), not {tuple(x.shape)}")


def check_state(state: Any, kind: type) -> None:
    """Raise unless a state is of the kind that a module's `init_state` returns."""
    if not isinstance(state, kind):
        raise TypeError(
            f"expected a state of type {kind.__name__}, not {type(state).__name__}; begin with this module's "
            "init_state(batch_size), and go on with the state that each call returns"
        )


def check_rows(x: Tensor, batch_size: int) -> None:
    """Raise unless x has a row for each stream."""
    if x.shape[0] != batch_size:
        raise ValueError(f"this state holds {batch_size} streams, but x has {len(x)} rows")


def check_lengths(lengths: Lengths, x: Tensor) -> Spans | None:
    """Return the valid range of each row of x, after making sure that it fits.

    The first module that is entered does this; those inside it are given spans, which pass through as they are.
    """
    if lengths is None:
        return None
    if x.ndim < 2:
        raise ValueError(f"lengths are for the rows of x, which must be (batch, length, ...), not {tuple(x.shape)}")
    shape = (x.shape[0], x.shape[1])
    if isinstance(lengths, Spans):
        if lengths.fits == shape:
            return lengths
        start, stop = lengths.start, lengths.stop
    else:
        start, stop = None, lengths if isinstance(lengths, Tensor) else _tensor(lengths)
    for bound in (stop,) if start is None else (stop, start):
        if bound.shape != x.shape[:1] or bound.dtype.is_floating_point or bound.dtype == torch.bool:
            raise ValueError(
                f"lengths must be one whole number per row, shape ({len(x)},), "
                f"not {bound.dtype} of shape {tuple(bound.shape)}"
            )
    if visible(stop) and bool(((stop < 0) | (stop > x.shape[1])).any()):
        raise ValueError(f"lengths must lie between 0 and {x.shape[1]}, the length of x, not {stop.tolist()}")
    if start is not None and visible(start) and bool(((start < 0) | (start > stop)).any()):
        raise ValueError(f"spans need 0 <= start <= stop, not start {start.tolist()} and stop {stop.tolist()}")
    start = None if start is None else start.to(x.device, torch.int64).contiguous()
    return Spans(stop.to(x.device, torch.int64).contiguous(), start, shape)


def _tensor(lengths: Any) -> Tensor:
    try:
        return torch.tensor(lengths, dtype=None if len(lengths) else torch.int64, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"lengths must be one whole number per row, not {lengths!r}") from None


def check_positions(at: Positions, x: Tensor) -> None:
    """Raise unless `at` has a row of positions for each row of x."""
    if at is None:
        return
    if not isinstance(at, Tensor):
        raise TypeError(f"positions must be a tensor of whole numbers, (batch, positions), not {type(at).__name__}")
    if at.ndim != 2 or at.shape[0] != x.shape[0] or at.dtype != torch.int64:
        raise ValueError(
            f"positions must be whole numbers (torch.int64), a row for each of the {len(x)} rows of x, "
            f"not {at.dtype} of shape {tuple(at.shape)}"
        )
    if visible(at) and at.numel() and not 0 <= int(at.min()) <= int(at.max()) < x.shape[1]:
        raise ValueError(f"positions must lie between 0 and {x.shape[1] - 1}, not {int(at.min())} and {int(at.max())}")


def check_finite(x: Tensor) -> None:
    """Raise if x (batch, length, ...) has values that are not finite, and say where the first of them is.

    A stream keeps what comes before a bad value, but the FFT pass of `forward` spreads one over its whole row and
    channel. Call this on inputs that may have such values, or on the output of a layer to find out where they arose.

    >>> check_finite(torch.tensor([[1.0, 2.0, float("nan")]]))
    Traceback (most recent call last):
    ValueError: 1 of 3 values are not finite; the first of them is in row 0, position 2
    """
    bad = ~torch.isfinite(x)
    if bool(bad.any()):
        place = [int(i) for i in bad.nonzero()[0]]
        names = ("row", "position", "channel", *(f"axis {i}" for i in range(3, x.ndim)))
        where = ", ".join(f"{name} {i}" for name, i in zip(names, place, strict=False))
        raise ValueError(f"{int(bad.sum())} of {x.numel()} values are not finite; the first of them is in {where}")
