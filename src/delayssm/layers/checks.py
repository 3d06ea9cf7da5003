"""Checks of what users pass in, with errors that say what to do."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from delayssm.system.spans import Spans

#: Valid tokens of each row, which stand at its beginning; or the valid range of each row; None: no padding.
Lengths = Int[Tensor, " B"] | Sequence[int] | Spans | None
#: Positions of each row whose outputs are wanted; None: all.
Positions = Int[Tensor, "B T"] | None


def check_sequence(x: Tensor, width: int, dtype: torch.dtype, name: str = "d_model") -> None:
    """Raise unless x is (batch, length, width), in a dtype that a module computing in `dtype` takes without loss."""
    if x.ndim != 3:
        raise ValueError(f"expected x of shape (batch, length, {width}), not {tuple(x.shape)}")
    if x.shape[-1] != width:
        raise ValueError(f"x has width {x.shape[-1]}, but this module has {name} = {width}")
    reduced = x.dtype in (torch.float16, torch.bfloat16) and dtype == torch.float32
    if x.dtype != dtype and not reduced:
        raise TypeError(f"x is {x.dtype}, but this module computes in {dtype}; use x.to({dtype}) or module.to(x.dtype)")


def check_step(x: Tensor, width: int) -> None:
    """Raise unless x is one token per row."""
    if x.ndim != 2:
        raise ValueError(f"step takes one token per row, shape (batch, {width}), not {tuple(x.shape)}")


def check_rows(x: Tensor, batch_size: int) -> None:
    """Raise unless x has a row for each stream."""
    if len(x) != batch_size:
        raise ValueError(f"this state holds {batch_size} streams, but x has {len(x)} rows")


def check_lengths(lengths: Lengths, x: Tensor) -> Spans | None:
    """Return the valid range of each row of x, after making sure that it fits.

    The first module that is entered does this; those inside it are given spans, which pass through as they are.
    """
    if lengths is None:
        return None
    shape = (len(x), x.shape[1])
    if isinstance(lengths, Spans):
        if lengths.fits == shape:
            return lengths
        start, stop = lengths.start, lengths.stop
    else:
        start, stop = None, torch.as_tensor(lengths)
    for bound in (stop,) if start is None else (stop, start):
        if bound.shape != x.shape[:1] or bound.dtype.is_floating_point or bound.dtype == torch.bool:
            raise ValueError(
                f"lengths must be one whole number per row, shape ({len(x)},), "
                f"not {bound.dtype} of shape {tuple(bound.shape)}"
            )
    # Looking at values elsewhere would make the host wait for the device.
    visible = stop.device.type == "cpu" and not torch.compiler.is_compiling()
    if visible and bool(((stop < 0) | (stop > x.shape[1])).any()):
        raise ValueError(f"lengths must lie between 0 and {x.shape[1]}, the length of x, not {stop.tolist()}")
    if visible and start is not None and bool(((start < 0) | (start > stop)).any()):
        raise ValueError(f"spans need 0 <= start <= stop, not start {start.tolist()} and stop {stop.tolist()}")
    start = None if start is None else start.to(x.device, torch.int64)
    return Spans(stop.to(x.device, torch.int64), start, shape)


def check_positions(at: Positions, x: Tensor) -> None:
    """Raise unless `at` has a row of positions for each row of x."""
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
