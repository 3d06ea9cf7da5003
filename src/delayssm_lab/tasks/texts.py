"""Long Range Arena's tasks on tokens. A batch is padded to its longest sequence; pooling ignores the padding."""

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
from delayssm_lab.tasks.labelled import ClassificationBatch, Indices, LabelledTask, pad_rows, split_shares
from delayssm_lab.tasks.task import Score, Split, score_classes

#: Last token of every sequence.
END = 2


class TokenTask(LabelledTask):
    """Classification of sequences of tokens, with the published splits."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of tokens in the vocabulary of a model."""

    def inputs(self, width: int) -> Tokens:
        return Tokens(self.vocab_size, width)

    def prefix(self, split: Split) -> str:
        """Return the prefix of the names of a split's arrays."""
        return split.name.lower()

    def split(self, split: Split) -> Indices:
        data = self.prepared()
        characters = len(data.about.get("characters", ()))
        if characters > self.vocab_size:
            raise ValueError(
                f"the texts prepared here have {characters} tokens, but vocab_size is {self.vocab_size}; "
                f"set vocab_size to {characters}"
            )
        return np.arange(len(data[f"{self.prefix(split)}_y"]))

    def targets(self, split: Split) -> NDArray[np.uint8]:
        return self.prepared()[f"{self.prefix(split)}_y"][self.split(split)]

    def take(self, split: Split, rows: Indices) -> ClassificationBatch:
        return ClassificationBatch(*self._tokens(split, rows, "tokens"), self._classes(split, rows))

    def _tokens(self, split: Split, rows: Indices, name: str) -> tuple[Tensor, Tensor]:
        data, name = self.prepared(), f"{self.prefix(split)}_{name}"
        return pad_rows(data[name], data[f"{name}_offsets"], rows, self.max_length, END)

    def _classes(self, split: Split, rows: Indices) -> Int[Tensor, " B"]:
        return torch.from_numpy(self.prepared()[f"{self.prefix(split)}_y"][rows]).long()


@dataclass(frozen=True)
class ListOps(TokenTask):
    """ListOps: the value, 0 to 9, of a nested expression of minima, maxima, medians and sums.

    Args:
        max_length: Largest number of tokens. Longer expressions are cut.
    """

    label: ClassVar[str] = "ListOps"
    data: ClassVar[str] = "listops"
    outputs: ClassVar[int] = 10
    vocab_size: ClassVar[int] = 18
    max_length: int = 2048


@dataclass(frozen=True)
class Text(TokenTask):
    """Text: whether a film review is positive, from its characters.

    Long Range Arena validates on the test set. Here a fixed tenth of the training reviews is held out for validation.
    The test set is used once, with the weights that validated best.

    Args:
        max_length: Largest number of characters. Longer reviews are cut.
        vocab_size: Number of tokens, at least as many as the prepared reviews have.
    """

    label: ClassVar[str] = "Text"
    data: ClassVar[str] = "imdb"
    outputs: ClassVar[int] = 2
    max_length: int = 4096
    vocab_size: int = 134

    def prefix(self, split: Split) -> str:
        return "test" if split is Split.TEST else "train"

    def split(self, split: Split) -> Indices:
        rows = super().split(split)
        return rows if split is Split.TEST else split_shares(len(rows), 0.9, 0.1)[split]


@dataclass(frozen=True)
class PairBatch:
    """Pairs of documents, and the class of each pair."""

    first: Int[Tensor, "B L"]
    first_lengths: Int[Tensor, " B"]
    second: Int[Tensor, "B M"]
    second_lengths: Int[Tensor, " B"]
    targets: Int[Tensor, " B"]

    def to(self, device: object) -> PairBatch:
        """Return the batch on another device."""
        tensors = (self.first, self.first_lengths, self.second, self.second_lengths, self.targets)
        return PairBatch(*(t.to(device) for t in tensors))  # type: ignore[call-overload]

    def score(self, model: nn.Module) -> Score:
        """Return the cross-entropy and the number of correct answers."""
        return score_classes(model(self.first, self.second, self.first_lengths, self.second_lengths), self.targets)


@dataclass(frozen=True)
class Retrieval(TokenTask):
    """Retrieval: whether one of two papers cites the other, from their characters.

    Args:
        max_length: Largest number of characters of a paper. Longer papers are cut.
        vocab_size: Number of tokens, at least as many as the prepared papers have.
    """

    label: ClassVar[str] = "Retrieval"
    data: ClassVar[str] = "aan"
    outputs: ClassVar[int] = 2
    max_length: int = 4000
    vocab_size: int = 98

    def build(self, spec: Spec) -> PairModel:
        return PairModel(self.pooled(spec, None), self.outputs)

    def take(self, split: Split, rows: Indices) -> PairBatch:  # type: ignore[override]
        first, second = (self._tokens(split, rows, f"{name}_tokens") for name in "ab")
        return PairBatch(*first, *second, self._classes(split, rows))
