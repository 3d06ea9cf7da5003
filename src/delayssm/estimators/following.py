"""Series that are followed as they go on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from delayssm.estimators.series import pad
from delayssm.layers.decoding import Decoder
from delayssm.layers.streaming import Streaming
from delayssm.models.pooled import PooledModel
from delayssm.models.series import SeriesModel
from delayssm.system.spans import take


class Followed:
    """Streams of a model, one for each series, and its answers after the last value of each.

    A value costs the same however long its series has become.

    Args:
        model: Model in evaluation mode.
        pieces: Values of each series so far, (times, features).
    """

    def __init__(self, model: Streaming[Any], pieces: list[Tensor]) -> None:
        self.model = model
        self._state = model.init_state(len(pieces))
        self._decoder: Decoder[Any] | None = None
        self.answers = self._advance(pieces)

    def advance(self, pieces: list[Tensor]) -> None:
        """Append values, (times, features), to each series."""
        self.answers = self._advance(pieces)

    def check_count(self, count: int) -> None:
        """Raise unless there are values for each series."""
        if count != len(self.answers):
            raise ValueError(f"{len(self.answers)} series are followed, but there are values for {count}")

    @torch.no_grad()
    def _advance(self, pieces: list[Tensor]) -> Tensor:
        chunk, lengths = pad(pieces)
        if chunk.shape[1] == 1 and isinstance(self.model, SeriesModel | PooledModel):
            if self._decoder is None:
                self._decoder = self.model.decoder(self._state)
            return self._decoder(chunk[:, 0])
        self._settle()
        answers, self._state = self.model.stream(chunk, self._state, lengths)
        if lengths is None:
            return answers[:, -1]
        return take(answers, lengths[:, None] - 1)[:, 0]

    def _settle(self) -> None:
        """Leave the decoder, which advances the streams faster than `stream`, but one value at a time only."""
        if self._decoder is not None:
            self._state, self._decoder = self._decoder.state, None

    def __getstate__(self) -> dict[str, Any]:
        self._settle()
        return self.__dict__
