"""Specifications of the models that are compared: values that hold the sizes of a model and build it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from torch import nn

from delayssm.layers.block import BlockConfig
from delayssm.layers.layer import DS4DConfig, S4DConfig
from delayssm.layers.stack import Stack, StackConfig
from delayssm.models.matching import match_width
from delayssm.models.token import TokenModel
from delayssm_lab.models.baselines import LSTMModel, MambaModel, TransformersModel
from delayssm_lab.models.hybrid import HybridBlock, HybridModel

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


@dataclass(frozen=True, kw_only=True)
class StateSpaceSpec:
    """A stack of equal blocks of S4D or DS4D layers.

    Args:
        depth: Number of blocks.
        block: Configuration of each block. Its layer is S4D or DS4D.
    """

    width_multiple: ClassVar[int] = 1
    depth: int
    block: BlockConfig

    def __post_init__(self) -> None:
        if not isinstance(self.block.layer, S4DConfig | DS4DConfig):
            raise ValueError(f"the layer of the block must be S4D or DS4D, not {type(self.block.layer).__name__}")

    @property
    def layer(self) -> S4DConfig | DS4DConfig:
        """Configuration of the layer in each block."""
        assert isinstance(self.block.layer, S4DConfig | DS4DConfig)
        return self.block.layer

    @property
    def family(self) -> str:
        """Name of the model in tables."""
        return "DS4D" if isinstance(self.layer, DS4DConfig) else "S4D"

    @property
    def d_model(self) -> int:
        """Number of channels."""
        return self.layer.d_model

    @property
    def d_state(self) -> int:
        """State size of each channel."""
        return self.layer.d_state

    def with_layer(self, **options: Any) -> StateSpaceSpec:
        """Return the same model with other options of its layers."""
        return replace(self, block=replace(self.block, layer=replace(self.layer, **options)))

    def with_width(self, width: int) -> StateSpaceSpec:
        """Return the same model with another width."""
        return self.with_layer(d_model=width)

    def with_delays_up_to(self, length: int) -> StateSpaceSpec:
        """Return the same model with delays up to the length of its sequences; S4D unchanged, as it has no delays."""
        return self.with_layer(max_delay=length) if isinstance(self.layer, DS4DConfig) else self

    def backbone(self) -> Stack:
        """Return the blocks without input layer and head, freshly initialised."""
        return StackConfig((self.block,) * self.depth).build()

    def build(self, vocab_size: int, max_length: int) -> TokenModel:
        """Return a model of tokens, freshly initialised."""
        return TokenModel(vocab_size, self.backbone())


@dataclass(frozen=True, kw_only=True)
class StackSpec:
    """A stack of blocks of several kinds.

    Args:
        blocks: Configuration of each block.
        family: Name of the model in tables.
    """

    width_multiple: ClassVar[int] = 1
    blocks: tuple[BlockConfig, ...]
    family: str

    def __post_init__(self) -> None:
        if not self.blocks:
            raise ValueError("a stack needs at least one block")

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    @property
    def d_model(self) -> int:
        """Number of channels."""
        width: int = self.blocks[0].layer.d_model  # type: ignore[attr-defined]
        return width

    def with_width(self, width: int) -> StackSpec:
        """Return the same model with another width."""
        blocks = (replace(block, layer=replace(block.layer, d_model=width)) for block in self.blocks)  # type: ignore[call-arg]
        return replace(self, blocks=tuple(blocks))

    def build(self, vocab_size: int, max_length: int) -> TokenModel:
        """Return a model of tokens, freshly initialised."""
        return TokenModel(vocab_size, StackConfig(self.blocks).build())


@dataclass(frozen=True, kw_only=True)
class HybridSpec:
    """A stack of DS4D layers with additions for recall, which `delayssm_lab.models.hybrid` explains.

    Args:
        depth: Number of blocks.
        layer: Configuration of the delay layer in each block.
        taps: Number of taps of the short convolution before each layer. 1 means that there is none.
        gated: Whether each layer is two delay systems with products before and after the second.
    """

    width_multiple: ClassVar[int] = 1
    depth: int
    layer: DS4DConfig
    taps: int = 1
    gated: bool = False

    def __post_init__(self) -> None:
        if self.layer.bidirectional:
            raise ValueError("the layer of a hybrid must see the past only; set bidirectional to False")
        for name in ("depth", "taps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")

    @property
    def family(self) -> str:
        """Name of the model in tables."""
        additions = (f"convolution of {self.taps}" if self.taps > 1 else "", "gated" if self.gated else "")
        return ", ".join(["DS4D", *filter(None, additions)])

    @property
    def d_model(self) -> int:
        """Number of channels."""
        return self.layer.d_model

    def with_width(self, width: int) -> HybridSpec:
        """Return the same model with another width."""
        return replace(self, layer=replace(self.layer, d_model=width))

    def build(self, vocab_size: int, max_length: int) -> HybridModel:
        """Return the model, freshly initialised."""
        blocks = (HybridBlock(self.layer, self.taps, self.gated) for _ in range(self.depth))
        return HybridModel(vocab_size, self.d_model, blocks)


@dataclass(frozen=True, kw_only=True)
class BaselineSpec:
    """Base of the specifications of baselines.

    Args:
        d_model: Number of channels.
        depth: Number of layers.
    """

    family: ClassVar[str]
    d_model: int
    depth: int

    def __post_init__(self) -> None:
        for field in fields(self):
            size = getattr(self, field.name)
            if size < 1:
                raise ValueError(f"{field.name} of {self.family} must be at least 1, not {size}")

    @property
    def width_multiple(self) -> int:
        """Number that the width must be a multiple of."""
        return 1

    def with_width(self, width: int) -> Self:
        """Return the same model with another width."""
        return replace(self, d_model=width)


@dataclass(frozen=True, kw_only=True)
class LSTMSpec(BaselineSpec):
    """Baseline of torch's LSTM layers."""

    family: ClassVar[str] = "LSTM"

    def build(self, vocab_size: int, max_length: int) -> LSTMModel:
        """Return the model, freshly initialised."""
        return LSTMModel(vocab_size, self.d_model, self.depth)


@dataclass(frozen=True, kw_only=True)
class MambaSpec(BaselineSpec):
    """Baseline `MambaForCausalLM` of the `transformers` library.

    Args:
        d_state: State size of each channel.
        conv_kernel: Length of the convolution in tokens. The paper has 3.
    """

    family: ClassVar[str] = "Mamba"
    d_state: int
    conv_kernel: int = 3

    def build(self, vocab_size: int, max_length: int) -> MambaModel:
        """Return the model, freshly initialised."""
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
class GPT2Spec(BaselineSpec):
    """Baseline `GPT2LMHeadModel` of the `transformers` library.

    It has no dropout, because no sample is seen twice and overfitting is impossible.

    Args:
        heads: Number of attention heads, a divisor of the width.
    """

    family: ClassVar[str] = "GPT-2"
    heads: int

    @property
    def width_multiple(self) -> int:
        """Number that the width must be a multiple of, since the heads share it."""
        return self.heads

    def build(self, vocab_size: int, max_length: int) -> TransformersModel:
        """Return the model, freshly initialised, with a learned embedding for each of `max_length` positions."""
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
class LlamaSpec(BaselineSpec):
    """Baseline `LlamaForCausalLM` of the `transformers` library.

    Args:
        heads: Number of attention heads. The width is a multiple of twice this number.
        d_mlp: Width of the gated MLP.
    """

    family: ClassVar[str] = "Llama"
    heads: int
    d_mlp: int

    @property
    def width_multiple(self) -> int:
        """Number that the width must be a multiple of: the heads share it, and rotary positions rotate pairs."""
        return 2 * self.heads

    def build(self, vocab_size: int, max_length: int) -> TransformersModel:
        """Return the model, freshly initialised."""
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


Spec = StateSpaceSpec | StackSpec | LSTMSpec | MambaSpec | GPT2Spec | LlamaSpec | HybridSpec
AnySpec = TypeVar("AnySpec", StateSpaceSpec, StackSpec, LSTMSpec, MambaSpec, GPT2Spec, LlamaSpec, HybridSpec)


def matched(spec: AnySpec, budget: int, build: Callable[[AnySpec], nn.Module]) -> AnySpec:
    """Return the same model at the width that comes nearest to `budget` parameters; `build` makes the whole model."""
    width = match_width(lambda width: build(spec.with_width(width)), budget, spec.width_multiple)
    return spec.with_width(width)


def _config(config_class: type[PreTrainedConfig], **options: Any) -> PreTrainedConfig:
    """Return a configuration with an untied head and no special tokens, whose defaults lie outside our vocabularies."""
    return config_class(tie_word_embeddings=False, bos_token_id=None, eos_token_id=None, pad_token_id=None, **options)
