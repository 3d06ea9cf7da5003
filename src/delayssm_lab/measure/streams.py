"""Streams of the models whose decoding is compared, begun after a past of any length."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from delayssm import TokenModel
from delayssm.allocator import keep_freed_memory
from delayssm.layers.block import Block
from delayssm.layers.decoding import Decoder
from delayssm.layers.layer import DS4D, S4D
from delayssm.system.memory import History
from delayssm.system.state import States
from delayssm_lab.measure.dense import DenseStep
from delayssm_lab.measure.stacks import StackSize
from delayssm_lab.models.specs import GPT2Spec, MambaSpec

VOCABULARY = 100
Model = StackSize | GPT2Spec | MambaSpec
#: `init_state` with and without `max_length`, or the paper's buffer of all states. The other models have their own.
Memory = Literal["bounded", "endless", "dense"]
#: Logits (B, V) for the next tokens (B,).
Step = Callable[[Tensor], Tensor]


class Streams(ABC):
    """Streams of one model, one for each column of `tokens` (T, B)."""

    model: Any
    stream_bytes: int  # memory of one stream of T tokens; known after a start

    def __init__(self, tokens: Tensor) -> None:
        self.tokens = tokens
        self.length, self.batch_size = tokens.shape

    @abstractmethod
    def start(self, position: int) -> Step:
        """Return the function to go on with after the first `position` tokens."""

    def shared_bytes(self) -> int:
        """Return the memory that all streams of the model share."""
        return 0


def streams_of(model: Model, memory: Memory | None, tokens: Tensor) -> Streams:
    """Return the streams of a model with random weights."""
    if isinstance(model, GPT2Spec):
        return GPT2Streams(model, tokens)
    if isinstance(model, MambaSpec):
        return MambaStreams(model, tokens)
    return DenseStreams(model, tokens) if memory == "dense" else StackStreams(model, memory == "bounded", tokens)


def state_bytes(model: Model, memory: Memory | None, batch_size: int, length: int) -> float:
    """Return about how many bytes streams of `length` tokens take, to know in advance whether they fit in memory."""
    numbers = 0.0
    if isinstance(model, GPT2Spec):
        numbers = 2.0
    elif memory == "bounded":
        numbers = 0.5
    elif isinstance(model, StackSize) and model.family == "DS4D":
        numbers = model.d_state * (1.0 if memory == "dense" else 0.5)  # delays are half of the length on average
    return 4 * numbers * model.d_model * model.depth * batch_size * length


def build(stack: StackSize, like: Tensor, max_delay: int) -> TokenModel:
    """Return a stack with embedding and head, ready to decode on the device of a tensor."""
    return TokenModel(VOCABULARY, stack.build(max_delay)).to(like.device).eval()


class StackStreams(Streams):
    """Streams of S4D or DS4D."""

    model: TokenModel

    def __init__(self, stack: StackSize, bounded: bool, tokens: Tensor) -> None:
        super().__init__(tokens)
        self.model = build(stack, tokens, self.length)
        self._max_length = self.length if bounded else None
        self._decoder: Decoder[States] | None = None

    def start(self, position: int) -> Step:
        return self.start_rows([position] * self.batch_size)

    def start_rows(self, positions: Sequence[int]) -> Step:
        """Return the function to go on with after the first `positions[i]` tokens of row i."""
        self._decoder = None  # its state may fill most of the memory
        state = self.model.init_state(self.batch_size, self._max_length)
        self.stream_bytes = state.nbytes // self.batch_size
        _, state = self.model.stream(self.tokens[: max(positions)].T, state, lengths=list(positions))
        self._decoder = self.model.decoder(state)
        return self._decoder

    def shared_bytes(self) -> int:
        """Return the memory of the impulse responses of all layers."""
        assert self._decoder is not None
        total = 0
        for block, part in zip(self.model.backbone.blocks, self._decoder.state.parts, strict=True):
            assert isinstance(block, Block)
            assert isinstance(block.layer, S4D | DS4D)
            total += block.layer.ssm.response_for(part).nbytes if isinstance(part.memory, History) else 0
        return total


class DenseStreams(Streams):
    """Streams of DS4D with the paper's buffer of all states."""

    model: TokenModel

    def __init__(self, stack: StackSize, tokens: Tensor) -> None:
        super().__init__(tokens)
        self.model = build(stack, tokens, self.length)

    def start(self, position: int) -> Step:
        model, dense = self.model, DenseStep(self.model.backbone, self.batch_size, self.length)
        self.stream_bytes = dense.nbytes // self.batch_size

        def step(tokens: Tensor) -> Tensor:
            logits: Tensor = model.head(model.norm(dense(model.embedding.weight[tokens])))
            return logits

        for tokens in self.tokens[:position]:
            step(tokens)
        return step


class BaselineStreams(Streams):
    """Streams of a model of the `transformers` library, with its own cache.

    Freed memory is kept, because a cache of keys and values is allocated anew for every token. By default the system
    would have to clear its pages each time, which takes most of the time.
    """

    def __init__(self, spec: GPT2Spec | MambaSpec, tokens: Tensor) -> None:
        super().__init__(tokens)
        keep_freed_memory()
        torch.manual_seed(0)
        self.model = spec.build(VOCABULARY, self.length).model.to(tokens.device).eval()


class GPT2Streams(BaselineStreams):
    """Streams of GPT-2. All rows get the past of the first, which is computed in one call."""

    def __init__(self, spec: GPT2Spec, tokens: Tensor) -> None:
        super().__init__(spec, tokens)
        past = self.model.base_model(input_ids=tokens[:, :1].T, use_cache=True).past_key_values
        self._past = [(layer.keys, layer.values) for layer in past.layers]
        self.stream_bytes = _nbytes(self._past)

    def start(self, position: int) -> Step:
        from transformers import DynamicCache

        model, cache = self.model, DynamicCache(config=self.model.config)
        for i, pair in enumerate(self._past):
            keys, values = (t[:, :, :position].expand(self.batch_size, -1, -1, -1) for t in pair)
            cache.update(keys, values, i)

        def step(tokens: Tensor) -> Tensor:
            logits: Tensor = model(input_ids=tokens[:, None], past_key_values=cache, use_cache=True).logits[:, -1]
            return logits

        return step


class MambaStreams(BaselineStreams):
    """Streams of Mamba."""

    def start(self, position: int) -> Step:
        if position < 1:
            raise ValueError("the cache of Mamba is made by a prompt, which has at least one token")
        model = self.model
        cache = model(input_ids=self.tokens[:position].T, use_cache=True).cache_params
        self.stream_bytes = _nbytes(cache) // self.batch_size

        def step(tokens: Tensor) -> Tensor:
            logits: Tensor = model(input_ids=tokens[:, None], cache_params=cache, use_cache=True).logits[:, -1]
            return logits

        return step


def _nbytes(value: object) -> int:
    """Return the bytes of all tensors inside an object, however a release of `transformers` arranges its caches."""
    if isinstance(value, Tensor):
        return value.nbytes
    if isinstance(value, list | tuple):
        return sum(map(_nbytes, value))
    inside = value if isinstance(value, dict) else getattr(value, "__dict__", {})
    return sum(map(_nbytes, inside.values()))


def random_tokens(length: int, batch_size: int, device: str) -> Tensor:
    """Return tokens (T, B)."""
    return torch.randint(0, VOCABULARY, (length, batch_size), device=device)
