"""Inputs to try a model with."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from delayssm.layers.inputs import Tokens, Values
from delayssm.layers.streaming import Streaming


def example(model: Streaming[Any], batch_size: int, length: int) -> Tensor:
    """Return random tokens, values or vectors, whichever a model takes; the same at each call."""
    generator = torch.Generator().manual_seed(0)
    first = next((module for module in model.modules() if isinstance(module, Tokens | Values)), None)
    if isinstance(first, Tokens):
        return torch.randint(first.num_embeddings, (batch_size, length), generator=generator)
    width = model.d_model if first is None else first.in_features
    return torch.randn(batch_size, length, width, generator=generator)
