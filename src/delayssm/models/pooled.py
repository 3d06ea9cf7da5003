"""Models that give one answer for a whole sequence, or for two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from delayssm.config import Config, Device
from delayssm.layers import decoding
from delayssm.layers.checks import Lengths, check_lengths, check_module, check_rows, check_state, check_whole
from delayssm.layers.decoding import Decoder
from delayssm.layers.inputs import Tokens, TokensConfig, Values, ValuesConfig
from delayssm.layers.norms import BatchNorm, Norm, check_norm, make_norm, name_of, normalise, require_streamable
from delayssm.layers.stack import Stack, StackConfig
from delayssm.layers.streaming import Streaming, reset_parameters
from delayssm.storage.pretrained import Pretrained
from delayssm.system.memory import Memory
from delayssm.system.spans import Spans, take, without_padding
from delayssm.system.state import Identity, States, Streams, Usage

Pooling = Literal["mean", "last"]


@dataclass
class PooledState(Streams):
    """Streams on their way to an answer: those of the backbone, and the sum of its outputs so far."""

    backbone: States
    total: Float[Tensor, "B H"]
    origin: Identity | None = None

    @property
    def position(self) -> Tensor:  # type: ignore[override]
        return self.backbone.position

    @property
    def max_length(self) -> int | None:
        return self.backbone.max_length

    def tensors(self) -> dict[str, Tensor]:
        return {**self.backbone.tensors(), "total": self.total}

    def memories(self) -> list[Memory]:
        return self.backbone.memories()

    def usages(self) -> list[Usage]:
        return self.backbone.usages()

    def map(self, function: Callable[[Tensor], Tensor]) -> PooledState:
        backbone = self.backbone.map(function)
        with torch.inference_mode(False):  # tensors made in inference mode could not be advanced outside of it
            return PooledState(backbone, function(self.total).contiguous(), self.origin)

    def detach(self) -> PooledState:
        return PooledState(self.backbone.detach(), self.total.detach(), self.origin)

    def to(self, device: torch.device | str) -> PooledState:
        return PooledState(self.backbone.to(device), self.total.to(device), self.origin)

    def describe(self) -> str:
        return self.backbone.describe()

    def require_unspent(self) -> None:
        self.backbone.require_unspent()


@dataclass(frozen=True, kw_only=True)
class PooledModelConfig(Config):
    """Configuration of `PooledModel`.

    Args:
        inputs: Input layer, `TokensConfig` or `ValuesConfig`.
        backbone: Stack of blocks.
        outputs: Numbers in an answer; None for no head: the answer is the pooled vector.
        pooling: "mean" over the valid times, or the "last" of them.
        norm: Norm after the backbone, "layer" or "batch"; None where the last block ends with one. Batch norm before a
            mean over equally long sequences has a price: in training, the answers to every batch have the same mean,
            whatever is in it, while targets of a regression have not.
    """

    inputs: TokensConfig | ValuesConfig
    backbone: StackConfig
    outputs: int | None
    pooling: Pooling = "mean"
    norm: Norm | None = "layer"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_outputs(self.outputs)
        check_pooling(self.pooling)
        if self.norm is not None:
            check_norm(self.norm)

    def build(self, device: Device = None, dtype: torch.dtype | None = None) -> PooledModel:
        inputs, backbone = self.inputs.build(device, dtype), self.backbone.build(device, dtype)
        return PooledModel(inputs, backbone, self.outputs, self.pooling, self.norm)


def check_outputs(outputs: int | None) -> None:
    """Raise unless an answer can have so many numbers."""
    if outputs is not None:
        check_whole("outputs", outputs, 1)


def check_pooling(pooling: Pooling) -> None:
    """Raise unless there is such a pooling."""
    if pooling not in get_args(Pooling):
        raise ValueError(f'pooling must be "mean" or "last", not {pooling!r}')


class PooledModel(Streaming[PooledState], Pretrained):
    """Input layer, backbone, norm, pooling over time, linear head: logits of classes, or values to regress.

    >>> stack = Stack(Block(DS4D(8, 16, max_delay=100)) for _ in range(2))
    >>> model = PooledModel(Values(3, 8), stack, outputs=5)
    >>> model(torch.randn(2, 300, 3), lengths=[300, 120]).shape  # one answer for each row
    torch.Size([2, 5])

    Args:
        inputs: `Tokens` or `Values`.
        backbone: Stack of blocks of any kind.
        outputs: Numbers in an answer; None for no head: the answer is the pooled vector.
        pooling: "mean" over the valid times, or the "last" of them.
        norm: Norm after the backbone, "layer" or "batch"; None where the last block ends with one.
    """

    def __init__(
        self,
        inputs: Tokens | Values,
        backbone: Stack,
        outputs: int | None,
        pooling: Pooling = PooledModelConfig.pooling,
        norm: Norm | None = PooledModelConfig.norm,
    ) -> None:
        super().__init__()
        if not isinstance(inputs, Tokens | Values):
            raise TypeError(f"inputs must be a module of type Tokens or Values, not {type(inputs).__name__}")
        check_module("backbone", backbone, Stack)
        check_outputs(outputs)
        check_pooling(pooling)
        width = inputs.config.d_model
        if width != backbone.d_model:
            raise ValueError(f"the input layer has width {width}, but the backbone has {backbone.d_model}")
        device, dtype = inputs.weight.device, inputs.weight.dtype
        self.d_model = width
        self.inputs = inputs
        self.backbone = backbone
        self.norm = None if norm is None else make_norm(norm, width, device, dtype)
        self.head: nn.Linear | nn.Identity = (
            nn.Identity() if outputs is None else nn.Linear(width, outputs, device=device, dtype=dtype)
        )
        self.pooling = pooling
        self._write_options()

    @property
    def config(self) -> PooledModelConfig:
        return PooledModelConfig(
            inputs=self.inputs.config,
            backbone=self.backbone.config,
            outputs=self.head.out_features if isinstance(self.head, nn.Linear) else None,
            pooling=self.pooling,
            norm=None if self.norm is None else name_of(self.norm, self.d_model),
        )

    def forward(self, x: Tensor, lengths: Lengths = None) -> Float[Tensor, "B O"]:  # type: ignore[override]
        """Return one answer per row of tokens (B, L) or values (B, L, features)."""
        answer: Tensor = self.head(self._pool(x, lengths))
        return answer

    def stream(
        self, x: Tensor, state: PooledState, lengths: Lengths = None
    ) -> tuple[Float[Tensor, "B L O"], PooledState]:
        """Return the answer after each time of a chunk, as if the sequence ended there, and the state after it."""
        if self.norm is not None:
            require_streamable(self.norm)
        spans = check_lengths(lengths, x)
        check_state(state, PooledState)
        before = state.position.clone()  # which the backbone advances in place
        y, backbone = self.backbone.stream(self.inputs(x, spans), state.backbone, spans)
        y = without_padding(self._normalise(y, spans), spans)
        total = state.total.unsqueeze(1) + y.cumsum(1, dtype=state.total.dtype)
        if self.pooling == "mean":
            count = before.unsqueeze(1) + 1 + torch.arange(y.shape[1], device=y.device)
            if spans is not None and spans.start is not None:
                count = (count - spans.start.unsqueeze(1)).clamp(min=1)
            y = (total / count.unsqueeze(-1)).to(y.dtype)
        with torch.inference_mode(False):  # as in `State.map`
            after = (total[:, -1] if total.shape[1] else state.total).clone()  # not a view, which would keep all of it
        return without_padding(self.head(y), spans), PooledState(backbone, after, state.origin)

    @torch.no_grad()
    def step(self, x: Tensor, state: PooledState) -> tuple[Float[Tensor, "B O"], PooledState]:
        """Return the answer if the sequence ended after one more time, and the state after it."""
        self.inputs.check_one_time(x)
        y, state = self.stream(x.unsqueeze(1), state)
        return y[:, 0], state

    def decoder(self, state: PooledState) -> Decoder[PooledState]:
        """Return this model bound to streams and to the parameters as they are now: the fastest way to go on."""
        return PooledDecoder(self, state) if decoding.is_original(self) else Decoder(self, state)

    def extra_repr(self) -> str:
        return f"pooling={self.pooling!r}"

    def _options(self) -> dict[str, int]:
        return {"pooling": get_args(Pooling).index(self.pooling)}

    def _pool(self, x: Tensor, lengths: Lengths) -> Float[Tensor, "B H"]:
        spans = check_lengths(lengths, x)
        u: Tensor = self.inputs(x, spans)
        whole = Spans(torch.full(u.shape[:1], u.shape[1], device=u.device)) if spans is None else spans
        last = (whole.stop - 1).clamp(min=0).unsqueeze(1)
        if u.shape[1] == 0:
            return u.new_zeros(len(u), self.d_model)  # nothing was seen
        if self.pooling == "last" and not isinstance(self.norm, BatchNorm):
            return whole.fill(self._normalise(self.backbone(u, spans, last), None), last).squeeze(1)
        y = without_padding(self._normalise(self.backbone(u, spans), spans), spans)
        if self.pooling == "last":  # batch statistics are over all times, so all had to be there
            return take(y, last).squeeze(1)
        return y.sum(1) / whole.lengths.clamp(min=1).unsqueeze(-1)

    def _first_state(self, batch_size: int, max_length: int | None) -> PooledState:
        like = next(self.parameters())
        dtype = torch.promote_types(like.dtype, torch.float32)  # a long sum needs more digits than its terms
        total = like.new_zeros(batch_size, self.d_model, dtype=dtype)
        return PooledState(self.backbone.init_state(batch_size, max_length), total)

    def _normalise(self, y: Tensor, spans: Spans | None) -> Tensor:
        return y if self.norm is None else normalise(self.norm, y, spans)


class PooledDecoder(Decoder[PooledState]):
    """A `PooledModel` whose stack makes one compiled call per time."""

    def __init__(self, model: PooledModel, state: PooledState) -> None:
        check_state(state, PooledState)
        if model.norm is not None:
            require_streamable(model.norm)
        super().__init__(model, state)
        self._pooled, self._stack = model, decoding.bind(model.backbone, state.backbone)
        self._total = state.total

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        model = self._pooled
        model.inputs.check_one_time(x)
        check_rows(x, self._state.batch_size)
        y = self._stack(model.inputs(x.unsqueeze(1))[:, 0])
        y = model._normalise(y.unsqueeze(1), None)[:, 0]
        self._total = self._total + y
        mean = (self._total / self._stack.position.unsqueeze(1)).to(y.dtype)
        answer: Tensor = model.head(mean if model.pooling == "mean" else y)
        return answer

    @property
    def position(self) -> Tensor:
        return self._stack.position

    @property
    def state(self) -> PooledState:
        return PooledState(self._stack.state, self._total, self._state.origin)


@dataclass(frozen=True)
class PairModelConfig(Config):
    """Configuration of `PairModel`.

    Args:
        encoder: Model without a head.
        outputs: Numbers in an answer.
    """

    encoder: PooledModelConfig
    outputs: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_outputs(self.outputs)

    def build(self, device: Device = None, dtype: torch.dtype | None = None) -> PairModel:
        return PairModel(self.encoder.build(device, dtype), self.outputs)


class PairModel(Pretrained):
    """One answer for two documents: both through one encoder, then a small network on [a, b, a - b, a b].

    >>> stack = Stack([Block(DS4D(8, 16, max_delay=100))])
    >>> model = PairModel(PooledModel(Tokens(256, 8), stack, outputs=None), outputs=2)
    >>> first, second = torch.randint(0, 256, (4, 50)), torch.randint(0, 256, (4, 70))
    >>> model(first, second).shape
    torch.Size([4, 2])

    Args:
        encoder: Model without a head.
        outputs: Numbers in an answer.
    """

    def __init__(self, encoder: PooledModel, outputs: int) -> None:
        super().__init__()
        check_module("encoder", encoder, PooledModel)
        check_outputs(outputs)
        if not isinstance(encoder.head, nn.Identity):
            raise ValueError("the encoder of documents has no head of its own; make it with outputs=None")
        self.encoder = encoder
        width = encoder.d_model
        self.outputs = outputs
        device, dtype = encoder.inputs.weight.device, encoder.inputs.weight.dtype
        self.head = nn.Sequential(
            nn.Linear(4 * width, width, device=device, dtype=dtype),
            nn.ReLU(),
            nn.Linear(width, outputs, device=device, dtype=dtype),
        )

    @property
    def config(self) -> PairModelConfig:
        """Everything that defines this model."""
        return PairModelConfig(self.encoder.config, self.outputs)

    def reset_parameters(self) -> None:
        """Draw all parameters afresh."""
        reset_parameters(self)

    def forward(
        self,
        first: Int[Tensor, "B L"],
        second: Int[Tensor, "B M"],
        first_lengths: Lengths = None,
        second_lengths: Lengths = None,
    ) -> Float[Tensor, "B O"]:
        """Return one answer for each pair of documents, row by row."""
        a, b = self.encoder(first, first_lengths), self.encoder(second, second_lengths)
        answer: Tensor = self.head(torch.cat([a, b, a - b, a * b], dim=-1))
        return answer
