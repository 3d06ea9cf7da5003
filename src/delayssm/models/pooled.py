"""One answer for a whole sequence, or for two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from delayssm.layers.inputs import Tokens, Values
from delayssm.layers.norms import BatchNorm, Norm, make_norm, normalise, require_streamable
from delayssm.layers.stack import Stack
from delayssm.layers.streaming import Lengths, Streaming, check_lengths
from delayssm.system.layout import Layout
from delayssm.system.padding import without_padding
from delayssm.system.state import Memory, Owner, States, Streams

Pooling = Literal["mean", "last"]


@dataclass
class PooledState(Streams):
    """Streams on their way to an answer: those of the backbone, and the sum of what came out of it so far."""

    backbone: States
    total: Float[Tensor, "B H"]
    model: Owner | None = None

    @property
    def position(self) -> Tensor:  # type: ignore[override]
        return self.backbone.position

    @property
    def max_length(self) -> int | None:
        return self.backbone.max_length

    def tensors(self) -> dict[str, Tensor]:
        return {**self.backbone.tensors(), "total": self.total}

    def layouts(self) -> list[Layout]:
        return self.backbone.layouts()

    def memories(self) -> list[Memory]:
        return self.backbone.memories()

    def map(self, function: Callable[[Tensor], Tensor]) -> PooledState:
        return PooledState(self.backbone.map(function), function(self.total), self.model)

    def describe(self) -> str:
        return self.backbone.describe()

    def require_unspent(self) -> None:
        self.backbone.require_unspent()


class PooledModel(Streaming[PooledState]):
    """Input layer, backbone, norm, pooling over time, linear head: logits of classes, or values to regress.

    Args:
        inputs: `Tokens` or `Values`.
        backbone: blocks of any kind.
        outputs: numbers in an answer; None for no head: the answer is what was pooled.
        pooling: "mean" over the valid times, or the "last" of them.
        norm: after the backbone, "layer" or "batch"; None where its last block ends with one. Batch norm before a mean
            over equally long sequences has a price: in training, the answers to a batch then have the same mean
            whatever is in it, which numbers to regress have not.
    """

    def __init__(
        self,
        inputs: Tokens | Values,
        backbone: Stack,
        outputs: int | None,
        pooling: Pooling = "mean",
        norm: Norm | None = "layer",
    ) -> None:
        super().__init__()
        if outputs is not None and outputs < 1:
            raise ValueError(f"outputs must be at least 1, or None for no head, not {outputs}")
        if pooling not in ("mean", "last"):
            raise ValueError(f'pooling must be "mean" or "last", not {pooling!r}')
        width = inputs.embedding_dim if isinstance(inputs, Tokens) else inputs.out_features
        if width != backbone.d_model:
            raise ValueError(f"the input layer has width {width}, but the backbone has {backbone.d_model}")
        self.d_model = width
        self.inputs = inputs
        self.backbone = backbone
        self.norm = None if norm is None else make_norm(norm, width)
        self.head: nn.Linear | nn.Identity = nn.Identity() if outputs is None else nn.Linear(width, outputs)
        self.pooling = pooling

    def forward(self, x: Tensor, lengths: Lengths = None) -> Float[Tensor, "B O"]:  # type: ignore[override]
        """x is (batch, length) tokens or (batch, length, features) values."""
        answer: Tensor = self.head(self._pool(x, lengths))
        return answer

    def stream(
        self, x: Tensor, state: PooledState, lengths: Lengths = None
    ) -> tuple[Float[Tensor, "B L O"], PooledState]:
        """The answer after each time of a chunk, as if the sequence ended there; and the state after the chunk."""
        if self.norm is not None:
            require_streamable(self.norm)
        before = state.position.clone()  # which the backbone advances in place
        y, backbone = self.backbone.stream(self.inputs(x, lengths), state.backbone, lengths)
        valid = check_lengths(lengths, y)
        y = without_padding(self._normalise(y, valid), valid)
        total = state.total.unsqueeze(1) + y.cumsum(1)
        if self.pooling == "mean":
            count = before.unsqueeze(1) + 1 + torch.arange(y.shape[1], device=y.device)
            y = total / count.unsqueeze(-1)
        after = total[:, -1] if total.shape[1] else state.total
        return without_padding(self.head(y), valid), PooledState(backbone, after, state.model)

    @torch.no_grad()
    def step(self, x: Tensor, state: PooledState) -> tuple[Float[Tensor, "B O"], PooledState]:
        """One time, without gradients: the answer if the sequence ended there, and the state after it."""
        y, state = self.stream(x.unsqueeze(1), state)
        return y[:, 0], state

    def extra_repr(self) -> str:
        return f"pooling={self.pooling!r}"

    def _pool(self, x: Tensor, lengths: Lengths) -> Float[Tensor, "B H"]:
        u = self.inputs(x, lengths)
        valid = check_lengths(lengths, x)
        count = torch.full((len(u),), u.shape[1], device=u.device) if valid is None else valid
        last = (count - 1).clamp(min=0).unsqueeze(1)
        if self.pooling == "last" and not isinstance(self.norm, BatchNorm):
            return without_padding(self._normalise(self.backbone(u, lengths, last), None), count, last).squeeze(1)
        y = without_padding(self._normalise(self.backbone(u, lengths), valid), valid)
        if self.pooling == "last":  # batch statistics are over all times, so all had to be there
            return y.gather(1, last.unsqueeze(-1).expand(-1, -1, self.d_model)).squeeze(1)
        return y.sum(1) / count.clamp(min=1).unsqueeze(-1)

    def _first_state(self, batch_size: int, max_length: int | None) -> PooledState:
        total = next(self.parameters()).new_zeros(batch_size, self.d_model)
        return PooledState(self.backbone.init_state(batch_size, max_length), total)

    def _normalise(self, y: Tensor, lengths: Tensor | None) -> Tensor:
        return y if self.norm is None else normalise(self.norm, y, lengths)


class PairModel(nn.Module):
    """One answer for two documents: both through one encoder, then a small network on [a, b, a - b, a b].

    Args:
        encoder: a model without a head.
        outputs: numbers in an answer.
    """

    def __init__(self, encoder: PooledModel, outputs: int) -> None:
        super().__init__()
        if not isinstance(encoder.head, nn.Identity):
            raise ValueError("the encoder of documents has no head of its own; make it with outputs=None")
        self.encoder = encoder
        width = encoder.d_model
        self.head = nn.Sequential(nn.Linear(4 * width, width), nn.ReLU(), nn.Linear(width, outputs))

    def forward(
        self,
        first: Int[Tensor, "B L"],
        second: Int[Tensor, "B M"],
        first_lengths: Lengths = None,
        second_lengths: Lengths = None,
    ) -> Float[Tensor, "B O"]:
        """x is two batches of documents, row by row."""
        a, b = self.encoder(first, first_lengths), self.encoder(second, second_lengths)
        answer: Tensor = self.head(torch.cat([a, b, a - b, a * b], dim=-1))
        return answer
