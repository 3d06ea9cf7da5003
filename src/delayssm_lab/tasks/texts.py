"""Long Range Arena's tasks on tokens. Sequences are padded to the longest of a batch, and pooled over their lengths."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor, nn

from delayssm.layers.inputs import Tokens
from delayssm.models.pooled import PairModel
from delayssm_lab.models.specs import Spec
from delayssm_lab.tasks.labelled import Classified, Labelled, Numbers, padded, shares
from delayssm_lab.tasks.task import Score, Split, classified

#: Closes every sequence.
END = 2


class Written(Labelled):
    """Sequences of tokens; published splits."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Tokens that a model knows."""

    def inputs(self, width: int) -> Tokens:
        return Tokens(self.vocab_size, width)

    def part(self, split: Split) -> str:
        """What arrays of a split are called."""
        return split.name.lower()

    def split(self, split: Split) -> Numbers:
        data = self.prepared()
        found = len(data.about.get("characters", ()))
        if found > self.vocab_size:
            raise ValueError(
                f"the texts prepared here have {found} tokens, but a model of this task knows {self.vocab_size}; "
                f"set vocab_size to {found}"
            )
        return np.arange(len(data[f"{self.part(split)}_y"]))

    def targets(self, split: Split) -> NDArray[np.uint8]:
        return self.prepared()[f"{self.part(split)}_y"][self.split(split)]

    def take(self, split: Split, rows: Numbers) -> Classified:
        return Classified(*self._tokens(split, rows, "tokens"), self._y(split, rows))

    def _tokens(self, split: Split, rows: Numbers, name: str) -> tuple[Tensor, Tensor]:
        data, name = self.prepared(), f"{self.part(split)}_{name}"
        return padded(data[name], data[f"{name}_offsets"], rows, self.max_length, END)

    def _y(self, split: Split, rows: Numbers) -> Int[Tensor, " B"]:
        return torch.from_numpy(self.prepared()[f"{self.part(split)}_y"][rows]).long()


@dataclass(frozen=True)
class ListOps(Written):
    """The value, 0 to 9, of a nested expression of minima, maxima, medians and sums."""

    label: ClassVar[str] = "ListOps"
    data: ClassVar[str] = "listops"
    outputs: ClassVar[int] = 10
    vocab_size: ClassVar[int] = 18
    max_length: int = 2048


@dataclass(frozen=True)
class Text(Written):
    """Is a review of a film positive? Characters, the first `max_length`.

    Long Range Arena validates on the test set. Here a tenth of the training reviews, always the same, is held out for
    that, and the test set is looked at once, with the weights that validated best.
    """

    label: ClassVar[str] = "Text"
    data: ClassVar[str] = "imdb"
    outputs: ClassVar[int] = 2
    max_length: int = 4096
    vocab_size: int = 134

    def part(self, split: Split) -> str:
        return "test" if split is Split.TEST else "train"

    def split(self, split: Split) -> Numbers:
        rows = super().split(split)
        return rows if split is Split.TEST else shares(len(rows), 0.9, 0.1)[split]


@dataclass(frozen=True)
class Paired:
    """Two documents a sample, and the class of each pair."""

    first: Int[Tensor, "B L"]
    first_lengths: Int[Tensor, " B"]
    second: Int[Tensor, "B M"]
    second_lengths: Int[Tensor, " B"]
    targets: Int[Tensor, " B"]

    def to(self, device: object) -> Paired:
        """The same on another device."""
        tensors = (self.first, self.first_lengths, self.second, self.second_lengths, self.targets)
        return Paired(*(t.to(device) for t in tensors))  # type: ignore[call-overload]

    def score(self, model: nn.Module) -> Score:
        """Cross-entropy, and right answers."""
        return classified(model(self.first, self.second, self.first_lengths, self.second_lengths), self.targets)


@dataclass(frozen=True)
class Retrieval(Written):
    """Does one of two papers cite the other? Characters, the first `max_length` of each."""

    label: ClassVar[str] = "Retrieval"
    data: ClassVar[str] = "aan"
    outputs: ClassVar[int] = 2
    max_length: int = 4000
    vocab_size: int = 98

    def build(self, spec: Spec) -> PairModel:
        return PairModel(self.pooled(spec, None), self.outputs)

    def take(self, split: Split, rows: Numbers) -> Paired:  # type: ignore[override]
        first, second = (self._tokens(split, rows, f"{name}_tokens") for name in "ab")
        return Paired(*first, *second, self._y(split, rows))
