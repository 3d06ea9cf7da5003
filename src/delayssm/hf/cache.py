"""The streams of a model as a cache of `transformers`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from delayssm.layers.decoding import Decoder
from delayssm.layers.derived import Versions
from delayssm.models.token import TokenModel
from delayssm.system.spans import Spans
from delayssm.system.state import States


class DS4DCache(Cache):  # type: ignore[misc]
    """The streams of a model, one for each row of a batch.

    >>> config = DS4DConfig(vocab_size=256, hidden_size=8, num_hidden_layers=1, d_state=16, max_delay=100)
    >>> model, cache = DS4DForCausalLM(config).eval(), DS4DCache()
    >>> with torch.no_grad():
    ...     _ = model(torch.randint(0, 256, (2, 30)), past_key_values=cache)
    >>> cache.get_seq_length()
    30

    Args:
        max_length: Largest number of tokens of a row, which makes decoding faster; None: any number.
    """

    def __init__(self, max_length: int | None = None) -> None:
        super().__init__(layers=[])
        self.max_length = max_length
        self._versions = Versions([])  # of the parameters that the decoder was made for
        self.reset()

    def reset(self) -> None:
        """Start afresh, with any number of rows."""
        self.state, self._columns = None, 0

    @property
    def state(self) -> States | None:
        """Streams as they are now; None before the first token."""
        return self._state if self._decoder is None else self._decoder.state

    @state.setter
    def state(self, state: States | None) -> None:
        self._state = state
        self._decoder: Decoder[States] | None = None

    def stream(self, model: TokenModel, x: Tensor, spans: Spans | None) -> Tensor:
        """Return the outputs of a model's backbone for a chunk of vectors (B, L, H)."""
        state = model.init_state(len(x), self.max_length) if self.state is None else self.state
        y, self.state = model.backbone.stream(x, state, spans)
        self._columns += x.shape[1]
        return y

    def step(self, model: TokenModel, tokens: Tensor) -> Tensor:
        """Return a model's logits for one more token per row (B,), without gradients, as fast as it goes."""
        if self._decoder is None or not self._versions.are_of(model.parameters()):
            state = model.init_state(len(tokens), self.max_length) if self.state is None else self.state
            self._decoder, self._versions = model.decoder(state), Versions(model.parameters())
        logits = self._decoder(tokens)
        self._columns += 1
        return logits

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return how many columns were processed, padding included, as `generate` counts them."""
        return self._columns

    def get_max_length(self, layer_idx: int | None = None) -> int:
        """Return the largest number of tokens of a row; -1 for any number."""
        return -1 if self.max_length is None else self.max_length

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some rows, in the given order."""
        state = self.state
        if state is not None:
            self.state = state.select(indices)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Give each beam the stream of the one that it continues."""
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row."""
        if self.state is not None:
            self.batch_select_indices(torch.arange(self.batch_size).repeat_interleave(repeats))

    def crop(self, tokens_to_remove: int) -> None:
        """Refuse: a stream cannot be turned back."""
        raise NotImplementedError("a stream cannot be turned back; keep a copy.deepcopy of the cache to return to")

    @property
    def is_croppable(self) -> bool:
        """Whether tokens can be taken back."""
        return False

    @property
    def batch_size(self) -> int:
        """Number of rows; -1 before the first token."""
        state = self.state
        return -1 if state is None else state.batch_size

    def __repr__(self) -> str:
        return "DS4DCache()" if self.state is None else f"DS4DCache({self.state.describe()})"

    def __getstate__(self) -> dict[str, Any]:
        # Copies make a decoder of their own.
        return {**self.__dict__, "_state": self.state, "_decoder": None, "_versions": Versions([])}
