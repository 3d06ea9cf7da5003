"""The token models that can be compared, each as a value: what it is called, its sizes, and how it is built."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from torch import nn

from delayssm.layers import layer
from delayssm.layers.block import Block
from delayssm.layers.stack import Stack
from delayssm.models.baselines import LSTMModel, MambaModel, TransformersModel
from delayssm.models.matching import count_parameters, match_width
from delayssm.models.token import TokenModel

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


@dataclass(frozen=True, kw_only=True)
class DS4D:
    """Blocks of DS4D layers with delays up to the length of the sequences."""

    family: ClassVar[str] = "DS4D"
    width_multiple: ClassVar[int] = 1
    d_model: int
    depth: int
    d_state: int
    init: Literal["lin", "inv"] = "lin"
    branch_fraction: float = 0.1
    phase: float = math.pi
    dropout: float = 0.0

    def build(self, vocab_size: int, max_length: int) -> TokenModel:
        """The model, freshly initialised."""
        blocks = (
            layer.DS4D(
                self.d_model,
                self.d_state,
                max_length,
                dropout=self.dropout,
                init=self.init,
                branch_fraction=self.branch_fraction,
                phase=self.phase,
            )
            for _ in range(self.depth)
        )
        return TokenModel(vocab_size, Stack(map(Block, blocks)))


@dataclass(frozen=True, kw_only=True)
class S4D:
    """Blocks of S4D layers."""

    family: ClassVar[str] = "S4D"
    width_multiple: ClassVar[int] = 1
    d_model: int
    depth: int
    d_state: int
    init: Literal["lin", "inv"] = "lin"
    dropout: float = 0.0

    def build(self, vocab_size: int, max_length: int) -> TokenModel:
        """The model, freshly initialised."""
        blocks = (
            layer.S4D(self.d_model, self.d_state, dropout=self.dropout, init=self.init) for _ in range(self.depth)
        )
        return TokenModel(vocab_size, Stack(map(Block, blocks)))


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


def parameters(spec: Spec, vocab_size: int, max_length: int) -> int:
    """How many the model has."""

    def build() -> nn.Module:
        return spec.build(vocab_size, max_length)

    return count_parameters(build)


def matched(spec: AnySpec, budget: int, vocab_size: int, max_length: int) -> AnySpec:
    """The same model at the width that comes nearest to `budget` parameters."""

    def build(width: int) -> nn.Module:
        return replace(spec, d_model=width).build(vocab_size, max_length)

    return replace(spec, d_model=match_width(build, budget, spec.width_multiple))


def _config(kind: type[PreTrainedConfig], **options: Any) -> PreTrainedConfig:
    """Untied head; no special tokens, since the defaults lie outside our vocabularies."""
    return kind(tie_word_embeddings=False, bos_token_id=None, eos_token_id=None, pad_token_id=None, **options)
