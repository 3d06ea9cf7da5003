"""A `TokenModel` as a causal language model of `transformers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from delayssm.hf.cache import DS4DCache
from delayssm.hf.config import DS4DConfig
from delayssm.hf.masks import check_prompts, labels_that_count, positions_of, spans_of
from delayssm.layers.checks import check_module
from delayssm.layers.inputs import Tokens
from delayssm.layers.norms import BatchNorm
from delayssm.models.token import TokenModel, TokenModelConfig
from delayssm.system.spans import Spans, take, without_padding


class DS4DForCausalLM(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """A causal language model, computed by the `TokenModel` at `model`.

    >>> from delayssm import DS4D, Block, Stack, TokenModel
    >>> token_model = TokenModel(256, Stack([Block(DS4D(8, 16, max_delay=100))]))
    >>> model = DS4DForCausalLM.from_model(token_model).eval()
    >>> model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=5, pad_token_id=0).shape
    torch.Size([1, 8])
    """

    config: DS4DConfig
    config_class = DS4DConfig
    base_model_prefix = "model"
    accepts_loss_kwargs = True
    supports_gradient_checkpointing = True
    _is_stateful = True
    _no_split_modules = ("TokenModel",)  # streams pass by the hooks that move tensors between devices
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
        wrapped.train(model.training)
        return wrapped

    @classmethod
    def from_pretrained(
        cls,
        source: Any,
        *arguments: Any,
        output_loading_info: bool = False,
        use_safetensors: bool | None = None,
        **others: Any,
    ) -> Any:
        """Return a saved model as `transformers` does, but only if every weight is there and belongs to it."""
        if use_safetensors is False:
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
        x = input_ids if inputs_embeds is None else inputs_embeds
        if x is None or (input_ids is not None and inputs_embeds is not None):
            raise ValueError("give either input_ids or inputs_embeds")
        cache = DS4DCache() if past_key_values is None and use_cache else past_key_values
        if cache is not None and not isinstance(cache, DS4DCache):
            raise TypeError(f"past_key_values must be a DS4DCache, not {type(cache).__name__}")
        spans = spans_of(attention_mask, x, 0 if cache is None else cache.get_seq_length())
        at = positions_of(logits_to_keep, x, spans)
        one_token = x is input_ids and x.shape == (len(x), 1) and spans is None and (at is None or at.shape[1] == 1)
        if cache is not None and one_token and not torch.is_grad_enabled():
            logits = cache.step(self.model, x[:, 0]).unsqueeze(1)
        else:
            vectors = self.model.embedding(x, spans) if x is input_ids else x
            y = self._whole(vectors, spans, at) if cache is None else take(cache.stream(self.model, vectors, spans), at)
            logits = without_padding(self.model.head(self.model.norm(y)), spans, at)
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits=logits,
                labels=labels_that_count(labels, spans),
                vocab_size=self.config.vocab_size,
                num_items_in_batch=num_items_in_batch,
            )
        output = CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=cache)
        named = self.config.return_dict if return_dict is None else return_dict
        return output if named else output.to_tuple()

    def get_input_embeddings(self) -> nn.Module:
        """Return the vectors of tokens."""
        return self.model.embedding

    def set_input_embeddings(self, value: Tokens) -> None:
        """Replace the vectors of tokens."""
        check_module("the embedding", value, Tokens)
        self.model.embedding = value

    def get_output_embeddings(self) -> nn.Module:
        """Return the linear map to logits."""
        return self.model.head

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        """Replace the linear map to logits."""
        check_module("the head", new_embeddings, nn.Linear)
        self.model.head = new_embeddings

    def _whole(self, x: Tensor, spans: Spans | None, at: Tensor | None) -> Tensor:
        """Return the outputs of the backbone for whole sequences."""
        if not self.gradient_checkpointing or not self.training:
            y: Tensor = self.model.backbone(x, spans, at)
            return y
        blocks = self.model.backbone.blocks
        for i, block in enumerate(blocks):
            arguments = (x, spans, at if i + 1 == len(blocks) else None)
            again = i % self._every_n_layers == 0
            x = self._gradient_checkpointing_func(block, *arguments) if again else block(*arguments)
        return x

    def _init_weights(self, module: nn.Module) -> None:
        """Leave weights as they are: the library has drawn them, or they were read from a file."""

    def _set_gradient_checkpointing(
        self, enable: bool = True, gradient_checkpointing_func: Callable[..., Any] = checkpoint, every_n_layers: int = 1
    ) -> None:
        if enable and any(isinstance(module, BatchNorm) for module in self.modules()):
            raise ValueError(
                "a batch norm would count every batch twice under gradient checkpointing; use norm='layer'"
            )
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
        check_prompts(model_kwargs.get("attention_mask"), generation_config.prefill_chunk_size is not None)
        if kind := generation_config.cache_implementation:
            raise ValueError(f"the cache is always a DS4DCache; leave out cache_implementation={kind!r}")
        if generation_config.use_cache is not False and model_kwargs.get("past_key_values") is None:
            bound = None if generation_config.return_dict_in_generate else max_cache_length
            model_kwargs["past_key_values"] = DS4DCache(bound)
