"""The token models that can be compared, each as a value: what it is called, its sizes, and how it is built."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from torch import nn

from delayssm.layers import layer
from delayssm.layers.block import Block
from delayssm.layers.layer import DiagonalOptions, Layer
from delayssm.layers.norms import Norm
from delayssm.layers.stack import Stack
from delayssm.models.matching import match_width
from delayssm.models.token import TokenModel
from delayssm_lab.models.baselines import LSTMModel, MambaModel, TransformersModel

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


@dataclass(frozen=True, kw_only=True)
class StateSpace(ABC):
    """What S4D and DS4D share.

    Args:
        d_model: channels H.
        depth: blocks.
        d_state: modes N of each channel.
        init: of the base dynamics, S4D-Lin or S4D-Inv.
        dropout: one mask for all times.
        norm: of each block.
        prenorm: the norm stands before the layer; otherwise after the sum with its input.
        bidirectional: reads sequences from both ends; for answers to whole sequences only.
        dt_min: the smallest step size to start with.
        dt_max: the largest; they start log-uniformly in between.
    """

    family: ClassVar[str]
    width_multiple: ClassVar[int] = 1
    d_model: int
    depth: int
    d_state: int
    init: Literal["lin", "inv"] = "lin"
    dropout: float = 0.0
    norm: Norm = "layer"
    prenorm: bool = True
    bidirectional: bool = False
    dt_min: float = 1e-3
    dt_max: float = 1e-1

    @abstractmethod
    def layer(self, max_length: int) -> Layer:
        """One layer, freshly initialised, for sequences up to a length."""

    def backbone(self, max_length: int) -> Stack:
        """All blocks."""
        layers = (self.layer(max_length) for _ in range(self.depth))
        return Stack(Block(layer, norm=self.norm, prenorm=self.prenorm) for layer in layers)

    def build(self, vocab_size: int, max_length: int) -> TokenModel:
        """The model, freshly initialised."""
        return TokenModel(vocab_size, self.backbone(max_length))

    def _options(self) -> DiagonalOptions:
        return {
            "init": self.init,
            "dt_min": self.dt_min,
            "dt_max": self.dt_max,
            "bidirectional": self.bidirectional,
        }


@dataclass(frozen=True, kw_only=True)
class DS4D(StateSpace):
    """Blocks of DS4D layers with delays up to the length of the sequences.

    Args, besides those of `StateSpace`:
        branch_fraction: p, the share of each mode's memory that the delayed branch starts with.
        phase: omega, where the angle of its coefficients starts.
        delays: where all delays start, in steps; None: on a grid.
    """

    family: ClassVar[str] = "DS4D"
    branch_fraction: float = 0.1
    phase: float = math.pi
    delays: float | None = None

    def layer(self, max_length: int) -> Layer:
        return layer.DS4D(
            self.d_model,
            self.d_state,
            max_length,
            dropout=self.dropout,
            branch_fraction=self.branch_fraction,
            phase=self.phase,
            delays="grid" if self.delays is None else self.delays,
            **self._options(),
        )


@dataclass(frozen=True, kw_only=True)
class S4D(StateSpace):
    """Blocks of S4D layers."""

    family: ClassVar[str] = "S4D"

    def layer(self, max_length: int) -> Layer:
        return layer.S4D(self.d_model, self.d_state, dropout=self.dropout, **self._options())


@dataclass(frozen=True, kw_only=True)
class LSTM:
    """Layers of torch's LSTM."""

    family: ClassVar[str] = "LSTM"
    width_multiple: ClassVar[int] = 1
    d_model: int
    depth: int

    def build(self, vocab_size: int, max_length: int) -> LSTMModel:
        """The model, freshly initialised."""
        return LSTMModel(vocab_size, self.d_model, self.depth)


@dataclass(frozen=True, kw_only=True)
class Mamba:
    """`MambaForCausalLM`; the paper uses a convolution over 3 tokens."""

    family: ClassVar[str] = "Mamba"
    width_multiple: ClassVar[int] = 1
    d_model: int
    depth: int
    d_state: int
    conv_kernel: int = 3

    def build(self, vocab_size: int, max_length: int) -> MambaModel:
        """The model, freshly initialised."""
        from transformers import MambaConfig, MambaForCausalLM

        config = _config(
            MambaConfig,
            vocab_size=vocab_size,
            hidden_size=self.d_model,
            num_hidden_layers=self.depth,
            state_size=self.d_state,
            conv_kernel=self.conv_kernel,
        )
        return MambaModel(MambaForCausalLM(config))


@dataclass(frozen=True, kw_only=True)
class GPT2:
    """`GPT2LMHeadModel`, without dropout: no sample is seen twice, so there is nothing to overfit."""

    family: ClassVar[str] = "GPT-2"
    d_model: int
    depth: int
    heads: int

    @property
    def width_multiple(self) -> int:
        """Heads share the width."""
        return self.heads

    def build(self, vocab_size: int, max_length: int) -> TransformersModel:
        """The model, freshly initialised, with a learned embedding for each of `max_length` positions."""
        from transformers import GPT2Config, GPT2LMHeadModel

        config = _config(
            GPT2Config,
            vocab_size=vocab_size,
            n_positions=max_length,
            n_embd=self.d_model,
            n_layer=self.depth,
            n_head=self.heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
        return TransformersModel(GPT2LMHeadModel(config))


@dataclass(frozen=True, kw_only=True)
class Llama:
    """`LlamaForCausalLM`."""

    family: ClassVar[str] = "Llama"
    d_model: int
    depth: int
    heads: int
    d_mlp: int

    @property
    def width_multiple(self) -> int:
        """Heads share the width, and rotary positions turn pairs."""
        return 2 * self.heads

    def build(self, vocab_size: int, max_length: int) -> TransformersModel:
        """The model, freshly initialised."""
        from transformers import LlamaConfig, LlamaForCausalLM

        config = _config(
            LlamaConfig,
            vocab_size=vocab_size,
            hidden_size=self.d_model,
            num_hidden_layers=self.depth,
            num_attention_heads=self.heads,
            intermediate_size=self.d_mlp,
            max_position_embeddings=max_length,
        )
        return TransformersModel(LlamaForCausalLM(config))


Spec = DS4D | S4D | LSTM | Mamba | GPT2 | Llama
AnySpec = TypeVar("AnySpec", DS4D, S4D, LSTM, Mamba, GPT2, Llama)


def matched(spec: AnySpec, budget: int, build: Callable[[AnySpec], nn.Module]) -> AnySpec:
    """The same model at the width that comes nearest to `budget` parameters; `build` makes it, with what is around."""

    def widened(width: int) -> nn.Module:
        return build(replace(spec, d_model=width))

    return replace(spec, d_model=match_width(widened, budget, spec.width_multiple))


def _config(kind: type[PreTrainedConfig], **options: Any) -> PreTrainedConfig:
    """Untied head; no special tokens, since the defaults lie outside our vocabularies."""
    return kind(tie_word_embeddings=False, bos_token_id=None, eos_token_id=None, pad_token_id=None, **options)
