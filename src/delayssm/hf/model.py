"""A `TokenModel` as a causal language model of `transformers`, with the state of its streams as the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import GenerationMixin, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.modeling_outputs import CausalLMOutputWithPast

from delayssm.hf.config import DS4DConfig
from delayssm.layers.checks import check_lengths, check_module, check_positions
from delayssm.layers.norms import BatchNorm
from delayssm.models.token import TokenModel, TokenModelConfig
from delayssm.system.spans import Spans, take, without_padding
from delayssm.system.state import States


class DS4DCache(Cache):  # type: ignore[misc]
    """The streams of a model, one for each row of a batch.

    Args:
        max_length: Largest number of tokens of a row, which makes decoding faster; None: any number.
    """

    def __init__(self, max_length: int | None = None) -> None:
        super().__init__(layers=[])
        self.max_length = max_length
        self.reset()

    def reset(self) -> None:
        """Start all rows afresh, in batches of any size."""
        self.state: States | None = None
        self.columns = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return how many columns were processed, padding included, as `generate` counts them."""
        return self.columns

    def get_max_length(self, layer_idx: int | None = None) -> int:
        """Return the largest number of tokens of a row; -1 for any number."""
        return -1 if self.max_length is None else self.max_length

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some rows, in the given order."""
        if self.state is not None:
            self.state = self.state.select(indices)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Give each beam the stream of the one that it continues."""
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row."""
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
        return -1 if self.state is None else self.state.batch_size


class DS4DForCausalLM(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """A causal language model, computed by the `TokenModel` at `model`."""

    config: DS4DConfig
    config_class = DS4DConfig
    base_model_prefix = "model"
    accepts_loss_kwargs = True
    supports_gradient_checkpointing = True
    _is_stateful = True
    _no_split_modules = ("Block",)
    _skip_keys_device_placement = ("past_key_values",)

    def __init__(self, config: DS4DConfig) -> None:
        super().__init__(config)
        self.model = TokenModelConfig.from_dict(config.model).build()
        self._set_gradient_checkpointing(enable=False)
        self.post_init()

    @classmethod
    def from_model(cls, model: TokenModel) -> Self:
        """Return a model of `transformers` around a `TokenModel`, which is not copied."""
        check_module("model", model, TokenModel)
        with torch.device("meta"):
            wrapped = cls(DS4DConfig(model.config))
        wrapped.model = model
        return wrapped.train(model.training)

    @classmethod
    def from_pretrained(
        cls, source: Any, *arguments: Any, output_loading_info: bool = False, use_safetensors: bool = True, **others: Any
    ) -> Any:
        """Return a saved model as `transformers` does, but only if every weight is there and belongs to it."""
        if not use_safetensors:
            raise ValueError("weights are read from safetensors files only; leave out use_safetensors=False")
        model, found = super().from_pretrained(
            source, *arguments, output_loading_info=True, use_safetensors=True, **others
        )
        kinds = "missing_keys", "unexpected_keys", "mismatched_keys"
        if wrong := [f"{kind.replace('_', ' ')} {sorted(found[kind])}" for kind in kinds if found[kind]]:
            raise ValueError(f"{source} does not have the weights that its configuration asks for: {'; '.join(wrong)}")
        options = {name: value for name, value in model.state_dict().items() if name.endswith(".options")}
        model.load_state_dict(options, strict=False)  # the library compares them with the configuration
        return (model, found) if output_loading_info else model

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: DS4DCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
        return_dict: bool | None = None,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """Return logits after each token, and the loss if there are labels.

        Args:
            input_ids: Tokens (B, L).
            attention_mask: 1 for tokens and 0 for padding, which is on the left or right of each row: (B, L), or with
                the columns that the cache has seen before them.
            past_key_values: Cache to continue, in place.
            inputs_embeds: Vectors (B, L, H) in place of tokens.
            labels: Tokens to predict (B, L), as input_ids; they are shifted here. -100 and padding do not count, nor
                does the first token of a row, which nothing precedes.
            use_cache: Whether to return a cache; None: only if one is given.
            logits_to_keep: Number of last tokens of each row whose logits are wanted, 0 for all; or their positions.
            num_items_in_batch: Divisor of the loss; None: the number of labels that count.
            return_dict: Whether to return an object with names; None: as the configuration says.
        """
        given = input_ids if inputs_embeds is None else inputs_embeds
        if given is None or (input_ids is not None and inputs_embeds is not None):
            raise ValueError("give either input_ids or inputs_embeds")
        if past_key_values is None and use_cache:
            past_key_values = DS4DCache()
        if past_key_values is not None and not isinstance(past_key_values, DS4DCache):
            raise TypeError(f"past_key_values must be a DS4DCache, not {type(past_key_values).__name__}")
        seen = 0 if past_key_values is None else past_key_values.columns
        spans = check_lengths(_spans(attention_mask, given, seen), given)
        at = _positions(logits_to_keep, given, spans)
        x = self.model.embedding(input_ids, spans) if inputs_embeds is None else inputs_embeds
        if past_key_values is None:
            y = self._whole(x, spans, at)
        else:
            y = take(self._chunk(x, spans, past_key_values), at)
        logits = without_padding(self.model.head(self.model.norm(y)), spans, at)
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits=logits,
                labels=labels if spans is None else _countable(labels, spans),
                vocab_size=self.config.vocab_size,
                num_items_in_batch=num_items_in_batch,
            )
        output = CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=past_key_values)
        named = self.config.return_dict if return_dict is None else return_dict
        return output if named else output.to_tuple()

    def get_input_embeddings(self) -> nn.Module:
        """Return the vectors of tokens."""
        return self.model.embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the vectors of tokens."""
        self.model.embedding = value

    def get_output_embeddings(self) -> nn.Module:
        """Return the linear map to logits."""
        return self.model.head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Replace the linear map to logits."""
        self.model.head = new_embeddings

    def _whole(self, x: Tensor, spans: Spans | None, at: Tensor | None) -> Tensor:
        """Return the outputs of the backbone for whole sequences."""
        blocks = self.model.backbone.blocks
        if not self.gradient_checkpointing or not self.training:
            y: Tensor = self.model.backbone(x, spans, at)
            return y
        for i, block in enumerate(blocks):
            arguments = (x, spans, at if i + 1 == len(blocks) else None)
            again = i % self._every_n_layers == 0
            x = self._gradient_checkpointing_func(block, *arguments) if again else block(*arguments)
        return x

    def _chunk(self, x: Tensor, spans: Spans | None, cache: DS4DCache) -> Tensor:
        """Return the outputs of the backbone for a chunk, and advance the cache."""
        if cache.state is None:
            cache.state = self.model.init_state(len(x), cache.max_length)
        y, cache.state = self.model.backbone.stream(x, cache.state, spans)
        cache.columns += x.shape[1]
        return y

    def _init_weights(self, module: nn.Module) -> None:
        """Leave weights as they are: the library has drawn them, or they were read from a file."""

    def _set_gradient_checkpointing(
        self, enable: bool = True, gradient_checkpointing_func: Callable[..., Any] = checkpoint, every_n_layers: int = 1
    ) -> None:
        if enable and any(isinstance(module, BatchNorm) for module in self.modules()):
            raise ValueError("a batch norm would count every batch twice under gradient checkpointing; use norm='layer'")
        self.gradient_checkpointing, self._every_n_layers = enable, every_n_layers
        self._gradient_checkpointing_func = gradient_checkpointing_func

    def _prepare_cache_for_generation(
        self,
        generation_config: Any,
        model_kwargs: dict[str, Any],
        generation_mode: Any,
        batch_size: int,
        max_cache_length: int,
        *others: Any,
    ) -> None:
        """Make the cache of a call of `generate`; one that is returned may be continued, and has no bound."""
        _check_prompts(model_kwargs.get("attention_mask"), generation_config.prefill_chunk_size)
        if generation_config.cache_implementation is not None:
            raise ValueError(
                f"the cache is always a DS4DCache; leave out cache_implementation={generation_config.cache_implementation!r}"
            )
        if generation_config.use_cache is not False and model_kwargs.get("past_key_values") is None:
            bound = None if generation_config.return_dict_in_generate else max_cache_length
            model_kwargs["past_key_values"] = DS4DCache(bound)


def _spans(mask: Tensor | None, x: Tensor, seen: int) -> Spans | None:
    """Return where the tokens of each row are; None: everywhere."""
    if mask is None:
        return None
    rows, length = x.shape[:2]
    if mask.ndim != 2 or len(mask) != rows or mask.shape[1] not in (length, seen + length):
        raise ValueError(
            f"attention_mask must have {rows} rows and {length} columns, or {seen + length} with those that the cache "
            f"has seen, not shape {tuple(mask.shape)}"
        )
    if not bool(((mask == 0) | (mask == 1)).all()):
        raise ValueError("attention_mask must be 1 for tokens and 0 for padding")
    valid = mask[:, mask.shape[1] - length :] == 1
    if bool(valid.all()):
        return None
    start = valid.int().argmax(1)
    spans = Spans(start + valid.sum(1), start)
    broken = (valid == spans.padding(length).squeeze(-1)).any(1)
    if bool(broken.any()):
        raise ValueError(
            f"row {int(broken.int().argmax())} of attention_mask has padding between tokens, but padding is on the left "
            "or right of all tokens. To go on after padding on the right, use a cache"
        )
    return spans


def _positions(keep: int | Tensor, x: Tensor, spans: Spans | None) -> Tensor | None:
    """Return the positions (B, T) whose logits are wanted; None: all."""
    rows, length = x.shape[:2]
    if isinstance(keep, Tensor):
        at = keep.to(x.device).expand(rows, -1)
        check_positions(at, x)
        return at
    if not keep:
        return None
    stop = torch.full((rows, 1), length, device=x.device) if spans is None else spans.stop.unsqueeze(1)
    start = torch.zeros_like(stop) if spans is None or spans.start is None else spans.start.unsqueeze(1)
    return (stop + torch.arange(-min(keep, length), 0, device=x.device)).maximum(start)


def _countable(labels: Tensor, spans: Spans) -> Tensor:
    """Return labels with -100 for padding, and for the first token of each row."""
    later = Spans(spans.stop, None if spans.start is None else spans.start + 1)
    return labels.masked_fill(later.padding(labels.shape[1]).squeeze(-1), -100)


def _check_prompts(mask: Tensor | None, chunk_size: int | None) -> None:
    """Raise unless every row has a last token to go on from."""
    if mask is None:
        return
    empty = ~mask.bool().any(1)
    if bool(empty.any()):
        raise ValueError(f"row {int(empty.int().argmax())} of attention_mask has no token to begin with")
    if chunk_size is not None and not bool(mask[:, -1].all()):
        raise ValueError("prompts that are processed in chunks must be padded on the left; leave out prefill_chunk_size")
