"""Language: the next byte of film reviews, from the bytes before it.

A token is a byte of the UTF-8 text as it was published, with its HTML line breaks. The reviews of a split are one text,
each after a byte 0, which no review has. Windows of `context` bytes follow each other in that text, wherever reviews
begin and end. A window and its targets, with a context of eight:

    bytes      0 G o o d . 0 B
    targets    G o o d . 0 B a
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor, nn

from delayssm_lab.data.errors import DataError
from delayssm_lab.data.prepared.location import data_root
from delayssm_lab.models.specs import Spec
from delayssm_lab.tasks.labelled import in_epochs, permutation, prepared, split_shares
from delayssm_lab.tasks.task import Metric, Score, Split, Task

#: The byte before each review.
START = 0
#: Sizes are below this number.
LARGEST = 2**31

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class TextBatch:
    """Windows of a text, each with the byte after it. Every byte but the first of a row is a target."""

    tokens: Int[Tensor, "B L+1"]

    @property
    def inputs(self) -> Int[Tensor, "B L"]:
        """Bytes that a model sees."""
        return self.tokens[:, :-1]

    @property
    def targets(self) -> Int[Tensor, "B L"]:
        """Byte that follows each of them."""
        return self.tokens[:, 1:]

    def to(self, device: object) -> TextBatch:
        """Return the batch on another device."""
        return TextBatch(self.tokens.to(device))  # type: ignore[call-overload]

    def score(self, model: nn.Module) -> Score:
        """Return the cross-entropy, in nats for the loss and in bits for the points."""
        loss = F.cross_entropy(model(self.inputs).float().flatten(0, 1), self.targets.flatten(), reduction="sum")
        return Score(loss, loss.detach() / math.log(2), self.targets.numel())

    @torch.no_grad()
    def bits(self, model: nn.Module) -> Tensor:
        """Return -log2 of the probability that a model gives to each target, (B, L)."""
        logits = model(self.inputs).float().transpose(1, 2)
        return F.cross_entropy(logits, self.targets, reduction="none") / math.log(2)


@dataclass(frozen=True)
class FilmReviews(Task):
    """Film reviews: the next byte of a text.

    A fixed tenth of the published training reviews is held out for validation, and the published test reviews are the
    test set, so that no window has parts of reviews of two splits.

    Args:
        context: Number of bytes in a window.
        train_bytes: Largest number of bytes of training text.
    """

    label: ClassVar[str] = "Film reviews"
    metric: ClassVar[Metric] = Metric.BITS
    data: ClassVar[str] = "imdb"
    vocab_size: ClassVar[int] = 256
    context: int = 1024
    train_bytes: int = 10_000_000

    def __post_init__(self) -> None:
        for name, size in (("context", self.context), ("train_bytes", self.train_bytes)):
            if not 1 <= size < LARGEST:
                raise ValueError(f"{name} must be at least 1 and below 2**31, not {size}")
        if self.train_bytes <= self.context:
            raise ValueError(f"train_bytes must be larger than the context of {self.context}, not {self.train_bytes}")

    @property
    def max_length(self) -> int:
        """Number of bytes that a model sees."""
        return self.context

    def build(self, spec: Spec) -> nn.Module:
        """Return a model for this task, freshly initialised."""
        return spec.build(self.vocab_size, self.context)

    def text(self, split: Split) -> Bytes:
        """Return the text of a split: its reviews in a fixed order, each after a byte 0."""
        return _text(split, self.train_bytes if split is Split.TRAIN else None, data_root())

    def size(self, split: Split) -> int:
        """Return the number of windows in a split."""
        windows = (len(self.text(split)) - 1) // self.context
        if not windows:
            raise ValueError(
                f"the {split.name.lower()} reviews are too few for a window of {self.context} bytes; "
                "prepare more of them, or lower context"
            )
        return windows

    def batch(self, seed: int, split: Split, indices: Sequence[int]) -> TextBatch:
        """Return the windows with these numbers. Training windows repeat after each epoch in another order."""
        numbers = np.asarray(indices, np.int64)
        if split is Split.TRAIN:
            numbers = in_epochs(numbers, self.size(split), seed)
        windows = np.lib.stride_tricks.sliding_window_view(self.text(split), self.context + 1)[:: self.context]
        return TextBatch(torch.from_numpy(windows[numbers].astype(np.int64)))

    def chance_level(self) -> float:
        """Return the entropy of single bytes of the test text."""
        counts = np.bincount(self.text(Split.TEST), minlength=self.vocab_size)
        shares = counts[counts > 0] / counts.sum()
        return float(-(shares * np.log2(shares)).sum())

    def data_digest(self) -> str:
        """Return the sha256 of the prepared data."""
        return prepared(self.data, data_root()).digest


# The location of the data is an argument of the cached function, because the environment can change it.
@lru_cache(maxsize=8)
def _text(split: Split, limit: int | None, root: Path) -> Bytes:
    data, name = prepared(FilmReviews.data, root), "test_bytes" if split is Split.TEST else "train_bytes"
    if name not in data:
        raise DataError(
            f"{data.directory} was prepared by an earlier version, without the bytes of the reviews. "
            f"Run: delayssm data prepare {FilmReviews.data} --download, or --root DIR if the published files are in DIR"
        )
    flat, offsets = data[name], data[f"{name}_offsets"]
    count = len(offsets) - 1
    rows = permutation(count, 0, 0) if split is Split.TEST else split_shares(count, 0.9, 0.1)[split]
    start, pieces, length = np.array([START], np.uint8), [], 0
    for row in rows:
        review = flat[offsets[row] : offsets[row + 1]]
        pieces += [start, review]
        length += 1 + len(review)
        if limit is not None and length >= limit:
            break
    return np.concatenate(pieces or [start])[:limit]
