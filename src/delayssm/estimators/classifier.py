"""A classifier of series."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data
from torch import Tensor

from delayssm.estimators.base import SequenceEstimator
from delayssm.estimators.following import Followed
from delayssm.estimators.series import Array, Scaling, pad, read_sequences
from delayssm.layers.inputs import Values
from delayssm.models.pooled import PooledModel

#: A scaled sequence, (times, channels), and the number of its class.
Sample = tuple[Tensor, int]


@dataclass(kw_only=True, eq=False, repr=False)
class DelayClassifier(ClassifierMixin, SequenceEstimator):  # type: ignore[misc]
    """Classifier of sequences of any lengths, which can also answer before a sequence has ended.

    >>> sequences = [np.sin(np.arange(40 + i) * (0.2 if i % 2 else 0.6)) for i in range(20)]
    >>> labels = ["slow" if i % 2 else "fast" for i in range(20)]
    >>> classifier = DelayClassifier(d_model=8, depth=1, max_epochs=2).fit(sequences, labels)
    >>> classifier.predict(sequences).shape
    (20,)

    A `PooledModel` takes the mean over time of what its blocks return, so the answer after any prefix of a sequence is
    defined, and costs nothing more.

    An array is (samples, times), or (samples, times, channels). A list of arrays, each (times,) or (times, channels),
    holds sequences of any lengths.

    Args:
        shortest_prefix: Training sequences are cut at random to between this share of their length and all of it. Early
            answers become better with a smaller number, and 1 does not cut.
    """

    max_epochs: int = 100
    patience: int | None = 20
    shortest_prefix: float = 1.0

    def fit(self, X: Any, y: Any) -> Self:
        """Train on sequences X with the labels y, one for each."""
        training = self._training()
        if not 0 < self.shortest_prefix <= 1:
            raise ValueError(f"shortest_prefix must lie in (0, 1], not {self.shortest_prefix}")
        y = validate_data(self, X="no_validation", y=y)
        sequences = read_sequences(X)
        check_consistent_length(sequences, y)
        check_classification_targets(y)
        self._forget()
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"a classifier needs at least 2 classes, but y has 1 class: {self.classes_.tolist()[0]!r}")
        self.n_features_in_ = sequences[0].shape[1]
        self._scaling = Scaling.of(sequences)
        samples = list(zip(self._scaled(sequences), labels.tolist(), strict=True))
        with self._seeded():
            trained, held_out = self._split(samples)
            inputs, stack = Values(self.n_features_in_, self.d_model), self._stack(max(map(len, sequences)))
            model = PooledModel(inputs, stack, len(self.classes_)).to(self.device)
            self.history_ = training.train(model, self._loss, trained, held_out)
        self.model_, self._followed = model, None
        return self

    def predict(self, X: Any = None) -> NDArray[Any]:
        """Return the most likely class of each sequence; X is as for `predict_proba`."""
        probabilities = self.predict_proba(X)
        classes: NDArray[Any] = self.classes_[probabilities.argmax(1)]
        return classes

    @torch.no_grad()
    def predict_proba(self, X: Any = None) -> Array:
        """Return the probability of each class, (samples, classes).

        Args:
            X: Sequences; None: those that are followed since `begin`, as far as they have come.
        """
        if X is None:
            return _probabilities(self._require_followed().answers)
        sequences = self._read(X)
        batches = (pad(sequences[i : i + self.batch_size]) for i in range(0, len(sequences), self.batch_size))
        return _probabilities(torch.cat([self.model_(x, lengths) for x, lengths in batches]))

    @torch.no_grad()
    def predict_proba_prefixes(self, X: Any) -> list[Array]:
        """Return the probabilities after each time of each sequence, (times, classes), as if it ended there."""
        found = []
        for x in self._read(X):
            answers, _ = self.model_.stream(x[None], self.model_.init_state(1, max_length=len(x)))
            found.append(_probabilities(answers[0]))
        return found

    def begin(self, X: Any) -> Self:
        """Begin to follow sequences that begin with X; `update` appends to them, and `predict_proba()` answers."""
        sequences = self._read(X)
        self._followed = Followed(self.model_, sequences)
        return self

    def update(self, X: Any) -> Self:
        """Append values to the sequences that are followed, in a time that does not depend on their lengths."""
        followed = self._require_followed()
        sequences = self._read(X)
        followed.check_count(len(sequences))
        followed.advance(sequences)
        return self

    def _read(self, X: Any) -> list[Tensor]:
        check_is_fitted(self)
        sequences = read_sequences(X)
        self._check_channels(sequences[0].shape[1])
        return self._scaled(sequences)

    def _scaled(self, sequences: Sequence[Array]) -> list[Tensor]:
        return self._tensors([self._scaling.apply(values) for values in sequences])

    def _split(self, samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
        """Return samples to be trained on, and others, chosen at random, to be held out; each class keeps a sample."""
        wanted = math.ceil(self.validation_fraction * len(samples))
        left = np.bincount([label for _, label in samples])
        held_out: set[int] = set()
        for i in torch.randperm(len(samples)).tolist():
            label = samples[i][1]
            if len(held_out) < wanted and left[label] > 1:
                left[label] -= 1
                held_out.add(i)
        if wanted and not held_out:
            raise ValueError(
                "no sample can be held out, because each class has one only; use more samples, or validation_fraction=0"
            )
        trained = [sample for i, sample in enumerate(samples) if i not in held_out]
        return trained, [samples[i] for i in sorted(held_out)]

    def _loss(self, model: PooledModel, batch: Sequence[Sample]) -> tuple[Tensor, Tensor]:
        sequences = [x for x, _ in batch]
        if model.training and self.shortest_prefix < 1:
            shares = self.shortest_prefix + (1 - self.shortest_prefix) * torch.rand(len(sequences))
            sequences = [x[: math.ceil(len(x) * share)] for x, share in zip(sequences, shares.tolist(), strict=True)]
        x, lengths = pad(sequences)
        labels = torch.tensor([label for _, label in batch], device=x.device)
        return F.cross_entropy(model(x, lengths), labels, reduction="sum"), torch.tensor(len(batch))

    def _facts(self) -> dict[str, Any]:
        return {**super()._facts(), "classes_": self.classes_.tolist()}

    def _set_facts(self, facts: Mapping[str, Any]) -> None:
        super()._set_facts(facts)
        self.classes_ = np.array(facts["classes_"])


def _probabilities(logits: Tensor) -> Array:
    """Return the probabilities of classes, (..., classes), in double precision, so that they add up to 1."""
    return logits.double().softmax(-1).cpu().numpy()
