"""The configuration of a model, as `transformers` keeps it.

`DS4DConfig` is that of a whole model here. The configuration of one layer, which has the same name in
`delayssm.layers.layer`, is called `LayerConfig` in this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from transformers import PreTrainedConfig

from delayssm.layers.block import BlockConfig
from delayssm.layers.checks import check_whole
from delayssm.layers.layer import DS4DConfig as LayerConfig
from delayssm.layers.stack import StackConfig
from delayssm.models.token import TokenModel, TokenModelConfig
from delayssm.storage.model_files import FORMAT

#: What `transformers` passes to any configuration, beside the fields that it declares.
_THEIRS = {
    "model_type", "name_or_path", "_name_or_path", "num_labels", "output_attentions", "attn_implementation",
    "experts_implementation", "torch_dtype", "use_cache",
}  # fmt: skip


class DS4DConfig(PreTrainedConfig):  # type: ignore[misc]
    """Configuration of `DS4DForCausalLM`: that of a `TokenModel`, or the sizes of a stack of equal blocks.

    >>> config = DS4DConfig(vocab_size=256, hidden_size=8, num_hidden_layers=2, d_state=16, max_delay=100)
    >>> config.model["backbone"]["blocks"][0]["layer"]["max_delay"]
    100
    >>> from delayssm import DS4D, Block, Stack, TokenModel
    >>> model = TokenModel(256, Stack([Block(DS4D(8, 16, max_delay=100))]))
    >>> DS4DConfig(model.config).hidden_size
    8

    Args:
        model: Configuration of a `TokenModel`, or the dictionary that describes it; without sizes and options.
        vocab_size: Number of tokens.
        hidden_size: Width of the model, which is d_model of its layers.
        num_hidden_layers: Number of blocks.
        pad_token_id: Token that fills rows.
        bos_token_id: Token that begins a text.
        eos_token_id: Token or tokens that end a text.
        options: Options of `DS4D` and `Block`, such as d_state, max_delay, dropout and prenorm.
    """

    model_type = TokenModel.model_type
    has_no_defaults_at_init = True

    def __init__(
        self,
        model: TokenModelConfig | Mapping[str, Any] | None = None,
        *,
        vocab_size: int | None = None,
        hidden_size: int | None = None,
        num_hidden_layers: int | None = None,
        pad_token_id: int | None = None,
        bos_token_id: int | None = None,
        eos_token_id: int | list[int] | None = None,
        **options: Any,
    ) -> None:
        theirs = {field.name for field in fields(PreTrainedConfig)} | _THEIRS
        common = {name: options.pop(name) for name in sorted(options.keys() & theirs)}
        sizes = {"vocab_size": vocab_size, "hidden_size": hidden_size, "num_hidden_layers": num_hidden_layers}
        if model is None:
            model = _equal_blocks(sizes, options)
        elif given := [name for name, size in sizes.items() if size is not None] + sorted(options):
            raise ValueError(f"model is the configuration of a whole model; leave out {', '.join(given)}")
        if not isinstance(model, TokenModelConfig):
            model = TokenModelConfig.from_dict(model)
        self.model = model.to_dict()
        self.pad_token_id, self.bos_token_id, self.eos_token_id = pad_token_id, bos_token_id, eos_token_id
        super().__init__(**common)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **others: Any) -> Any:
        """Return the configuration that a config.json describes, also one that `TokenModel.save_pretrained` wrote."""
        if config_dict.get("format") == FORMAT:
            beside = "format", "about", "model_type"
            config_dict = {"model": {name: value for name, value in config_dict.items() if name not in beside}}
        return super().from_dict(config_dict, **others)

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return int(self.model["vocab_size"])

    @vocab_size.setter
    def vocab_size(self, value: int) -> None:
        self.model = {**self.model, "vocab_size": value}

    @property
    def hidden_size(self) -> int:
        """Width of the model."""
        return _width(self.model["backbone"]["blocks"][0])

    @property
    def num_hidden_layers(self) -> int:
        """Number of blocks."""
        return len(self.model["backbone"]["blocks"])


def _equal_blocks(sizes: dict[str, int | None], options: dict[str, Any]) -> TokenModelConfig:
    """Return the configuration of a model whose blocks are all equal."""
    of_block = {field.name for field in fields(BlockConfig)} - {"layer"}
    of_layer = {field.name for field in fields(LayerConfig)} - {"d_model"}
    if unknown := sorted(options.keys() - of_block - of_layer):
        known = ", ".join([*sizes, *sorted(of_block | of_layer)])
        raise ValueError(f"DS4DConfig has no option {', '.join(unknown)}; its options are {known}")
    if missing := [name for name, size in sizes.items() if size is None]:
        raise ValueError(f"DS4DConfig needs {', '.join(missing)}, or the configuration of a whole model")
    vocab_size, width, depth = (check_whole(name, size, 1) for name, size in sizes.items())
    layer = LayerConfig(width, **{name: options[name] for name in options.keys() & of_layer})
    block = BlockConfig(layer=layer, **{name: options[name] for name in options.keys() & of_block})
    return TokenModelConfig(vocab_size, StackConfig((block,) * depth))


def _width(block: Mapping[str, Any]) -> int:
    return int(block["d_model"]) if "d_model" in block else _width(block["layer"])
