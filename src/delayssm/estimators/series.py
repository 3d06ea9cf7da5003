"""Series as people have them, read into lists of arrays (times, channels), and batches of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_array
from torch import Tensor, nn

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Layout:
    """How a caller has arranged series, so that answers are arranged alike.

    Args:
        several: Whether there are several series, in a list or along a first axis.
        channels: Whether there is an axis of channels.
    """

    several: bool
    channels: bool

    def arrange(self, answers: Array) -> Array:
        """Return answers (series, ..., channels) without the axes that the series do not have."""
        answers = answers if self.channels else answers[..., 0]
        return answers if self.several else answers[0]


def read_series(X: Any, name: str = "X") -> tuple[list[Array], Layout]:
    """Return series as arrays (times, channels).

    An array is one series, (times,) or (times, channels), or several, (series, times, channels). A list of arrays, each
    (times,) or (times, channels), is several series of any lengths.
    """
    if _is_list(X):
        return _read_list(X, name)
    values = _read(X, name)
    if values.ndim == 3:
        return list(values), Layout(several=True, channels=True)
    if values.ndim > 3:
        raise ValueError(f"{name} has {values.ndim} axes; series have shape (times,), (times, channels) or "
                         "(series, times, channels)")  # fmt: skip
    return [values.reshape(len(values), -1)], Layout(several=False, channels=values.ndim == 2)


def read_sequences(X: Any) -> list[Array]:
    """Return one array (times, channels) for each sample.

    X is an array, (samples, times) or (samples, times, channels), or a list of arrays, each (times,) or (times,
    channels), of any lengths.
    """
    if _is_list(X):
        return _read_list(X, "X")[0]
    values: Array = check_array(X, dtype=np.float64, allow_nd=True, input_name="X")
    if values.ndim > 3:
        raise ValueError(
            f"X has {values.ndim} axes; sequences have shape (samples, times) or (samples, times, channels)"
        )
    return [row.reshape(values.shape[1], -1) for row in values]


def _is_list(X: Any) -> bool:
    """Return whether X is a list of sequences, or an array of such objects, rather than numbers."""
    objects = isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1
    return (objects or isinstance(X, list | tuple)) and any(np.ndim(item) for item in X)


def _read_list(X: Sequence[Any], name: str) -> tuple[list[Array], Layout]:
    values = [_read(item, f"{name}[{i}]") for i, item in enumerate(X)]
    axes = {item.ndim for item in values}
    if len(axes) > 1 or not axes <= {1, 2}:
        raise ValueError(f"the series of the list {name} must all have shape (times,) or all (times, channels)")
    series = [item.reshape(len(item), -1) for item in values]
    if len(widths := {item.shape[1] for item in series}) > 1:
        raise ValueError(f"the series of the list {name} must have the same channels, not {sorted(widths)} of them")
    return series, Layout(several=True, channels=axes == {2})


def _read(X: Any, name: str) -> Array:
    """Return finite numbers as an array of at least one axis; one number is a series of one time."""
    X = np.reshape(X, 1) if isinstance(X, int | float | np.generic) else X
    values: Array = check_array(X, dtype=np.float64, ensure_2d=False, allow_nd=True, input_name=name)
    return values


@dataclass(frozen=True)
class Scaling:
    """A linear map of each channel that gives training series mean 0 and standard deviation 1.

    Args:
        mean: Mean of each channel.
        scale: Standard deviation of each channel; 1 for a channel that is constant.
    """

    mean: Array
    scale: Array

    @classmethod
    def of(cls, series: Sequence[Array]) -> Scaling:
        """Return the scaling of training series."""
        values = np.concatenate(series)
        deviation = values.std(0)
        constant = deviation <= 1e-12 * np.abs(values).max(0)
        return cls(values.mean(0), np.where(constant, 1.0, deviation))

    @classmethod
    def of_lists(cls, lists: Mapping[str, list[float]]) -> Scaling:
        """Return the scaling that `to_lists` described."""
        return cls(np.array(lists["mean"]), np.array(lists["scale"]))

    def to_lists(self) -> dict[str, list[float]]:
        """Return the scaling as JSON-able values."""
        return {"mean": self.mean.tolist(), "scale": self.scale.tolist()}

    @property
    def channels(self) -> int:
        """Number of channels."""
        return len(self.mean)

    def apply(self, values: Array) -> Array:
        """Return values (times, channels) in the units of the model."""
        return (values - self.mean) / self.scale

    def undo(self, values: Array) -> Array:
        """Return what the model says, (..., channels), in the units of the series."""
        return values * self.scale + self.mean


def pad(series: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
    """Return series (times, channels) as a batch (series, times, channels), and their lengths unless all are equal."""
    batch = nn.utils.rnn.pad_sequence(list(series), batch_first=True)
    lengths = torch.tensor([len(values) for values in series], device=batch.device)
    return batch, None if bool((lengths == batch.shape[1]).all()) else lengths
