"""Inputs of noise, for what does not depend on the data: time, memory, and whether a model still computes the same."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor, nn

from delayssm.layers.inputs import Tokens
from delayssm.models.pooled import PairModel, PooledModel


def noise(model: nn.Module, length: int, seed: int = 0) -> list[Tensor]:
    """Return the arguments of a `PooledModel` or `PairModel` for one sample of a given length."""
    if isinstance(model, PairModel):
        return [*noise(model.encoder, length, seed), *noise(model.encoder, length, seed + 1)]
    if not isinstance(model, PooledModel):
        raise TypeError(
            f"noise can be made for a PooledModel or a PairModel, not for a {type(model).__name__}; if the models of a "
            "task predict a token at each position, derive the task from RecallTask"
        )
    if isinstance(model.inputs, Tokens):
        return [noise_tokens(model.inputs.num_embeddings, length, seed)]
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(1, length, model.inputs.in_features, generator=generator)]


def noise_tokens(vocab_size: int, length: int, seed: int = 0) -> Int[Tensor, "1 L"]:
    """Return one sequence of random tokens."""
    return torch.randint(0, vocab_size, (1, length), generator=torch.Generator().manual_seed(seed))
