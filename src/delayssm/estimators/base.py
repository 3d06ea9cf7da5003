"""What the estimators share: hyper-parameters, the stack inside, reproducible training, files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from delayssm.estimators.following import Followed
from delayssm.estimators.series import Array, Scaling
from delayssm.estimators.training import Training
from delayssm.layers.block import Block
from delayssm.layers.checks import check_whole
from delayssm.layers.layer import DS4D
from delayssm.layers.stack import Stack
from delayssm.storage.model_files import CARD
from delayssm.storage.pretrained import Pretrained, read_about

#: Delays lie as close together as the main branches reach, 1 / p steps at the branch fraction p = 0.1.
_REACH = 10


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of the estimators: a stack of `DS4D` blocks, trained by AdamW.

    Args:
        d_model: Number of channels H of each block.
        d_state: State size N of each channel, even.
        depth: Number of blocks.
        max_delay: Longest delay in steps. None: 10 `d_model`, so that delays and the main branches between them leave
            no gaps, but at most the length of the longest training series.
        dropout: Probability that a channel is dropped in training.
        learning_rate: Learning rate at the beginning; it falls to 0 along half a cosine.
        weight_decay: Weight decay of matrices outside of the state-space layers.
        batch_size: Series per step of training.
        max_epochs: Largest number of passes over the training series.
        patience: Number of epochs without a better held-out loss after which training ends; None: never.
        validation_fraction: Share of the training data that is held out to choose the best epoch; 0: none, and the
            last epoch is taken.
        random_state: Seed of everything random, or a `numpy.random.RandomState`; None: another one each time.
        device: Device of the model, such as "cpu" or "cuda".
        verbose: Whether a line is printed after each epoch.
    """

    d_model: int = 32
    d_state: int = 16
    depth: int = 4
    max_delay: int | None = None
    dropout: float = 0.0
    learning_rate: float = 4e-3
    weight_decay: float = 0.01
    batch_size: int = 32
    max_epochs: int = 500
    patience: int | None = 50
    validation_fraction: float = 0.1
    random_state: int | np.random.RandomState | None = None
    device: str = "cpu"
    verbose: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Add the arguments that all estimators share to the documentation of a subclass."""
        super().__init_subclass__(**kwargs)
        shared = (SequenceEstimator.__doc__ or "").partition("Args:\n")[2]
        cls.__doc__ = f"{(cls.__doc__ or '').rstrip()}\n{shared}"

    def save(self, directory: Path | str, *, card: str | None = None) -> None:
        """Write the fitted estimator to a directory, from which `load` reads it. Nothing in it is a pickle.

        Args:
            directory: Directory, which is made if it does not exist.
            card: Text of the model card in Markdown; None: a short one, unless there is a card already.
        """
        check_is_fitted(self)
        parameters = {name: _plain(value) for name, value in self.get_params().items()}
        about = {"estimator": type(self).__name__, "parameters": parameters, "fitted": self._facts()}
        if card is None and not (Path(directory) / CARD).exists():
            card = self._card()
        self.model_.save_pretrained(directory, card=card, about=about)

    @classmethod
    def load(cls, source: Path | str, *, device: str = "cpu", revision: str | None = None) -> Self:
        """Return an estimator that `save` wrote.

        Args:
            source: Directory, or the name of a repository on the Hugging Face Hub, "owner/name".
            device: Device of the model.
            revision: Branch, tag or commit of a repository.
        """
        about = read_about(source, revision=revision)
        if about.get("estimator") != cls.__name__:
            raise ValueError(f"{source} holds {about.get('estimator', 'a model')}, not a {cls.__name__}")
        try:
            estimator = cls(**{**about["parameters"], "device": device})
            estimator._set_facts(about["fitted"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"{source} was saved by another version of delayssm: {error!r}") from error
        estimator.model_ = Pretrained.from_pretrained(source, device=device, revision=revision)
        return estimator

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _card(self) -> str:
        kind, parameters = type(self).__name__, sum(p.numel() for p in self.model_.parameters())
        return f"""---
library_name: delayssm
tags:
- time-series
- state-space-model
- delayssm
---

# {kind}

A `{kind}` with {parameters:,} parameters, made with `delayssm`.

```python
from delayssm.estimators import {kind}

estimator = {kind}.load("path/to/this/directory")
```
"""

    def _facts(self) -> dict[str, Any]:
        """Return what `fit` has found beside the weights, as JSON-able values."""
        return {"n_features_in_": self.n_features_in_, "scaling": self._scaling.to_lists()}

    def _set_facts(self, facts: Mapping[str, Any]) -> None:
        """Restore what `_facts` returned."""
        self.n_features_in_ = facts["n_features_in_"]
        self._scaling = Scaling.of_lists(facts["scaling"])
        self._followed: Followed | None = None

    def _training(self) -> Training:
        """Return the training loop, after making sure that its options are valid."""
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must lie in [0, 1), not {self.validation_fraction}")
        return Training(
            self.learning_rate, self.weight_decay, self.batch_size, self.max_epochs, self.patience, self.verbose
        )

    def _forget(self) -> None:
        """Drop the model of an earlier fit, so that one which fails leaves none that does not belong to the rest."""
        self.__dict__.pop("model_", None)

    def _stack(self, longest: int) -> Stack:
        """Return the blocks for series of at most this length, on the CPU."""
        max_delay = max(3, min(_REACH * self.d_model, longest)) if self.max_delay is None else self.max_delay
        return Stack(
            Block(DS4D(self.d_model, self.d_state, max_delay, dropout=self.dropout))
            for _ in range(check_whole("depth", self.depth, 1))
        )

    @contextmanager
    def _seeded(self) -> Iterator[None]:
        """Make torch's random numbers follow from `random_state`, and restore its generators afterwards."""
        seed = int(check_random_state(self.random_state).randint(2**31))
        cuda = [torch.device(self.device)] if torch.device(self.device).type == "cuda" else []
        with torch.random.fork_rng(cuda):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would also seed what is not restored
            for device in cuda:
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)
            yield

    def _tensors(self, arrays: Sequence[Array]) -> list[Tensor]:
        return [torch.tensor(values, dtype=torch.float32, device=self.device) for values in arrays]

    def _check_channels(self, channels: int) -> None:
        """Raise unless series have as many channels as those that were fitted."""
        if channels != self.n_features_in_:
            raise ValueError(
                f"X has {channels} features, but {type(self).__name__} is expecting {self.n_features_in_} features as "
                "input: the channels of a series"
            )

    def _require_followed(self) -> Followed:
        if not hasattr(self, "model_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit, or load a saved one")
        if self._followed is None:
            raise ValueError("no series is followed yet; call begin(X) with its values so far, or pass X")
        return self._followed


def _plain(value: Any) -> Any:
    """Return a hyper-parameter as a JSON-able value. A source of random numbers has none."""
    if isinstance(value, np.random.RandomState):
        return None
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
