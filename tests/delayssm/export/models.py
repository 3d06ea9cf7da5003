"""The models that are exported: both cores, both norms, all inputs, both poolings, shared dynamics, short delays."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from delayssm import DS4D, S4D, Block, DelaySSM, PooledModel, SeriesModel, Stack, Streaming, TokenModel, Tokens, Values

H = 6


def stack(**options: Any) -> Stack:
    """Return three different blocks."""
    return Stack(
        [
            Block(DS4D(H, 8, 40, n_ssm=2, **options)),
            Block(S4D(H, 8, **options), norm="batch"),
            Block(DS4D(H, 8, 12, delays=[1.0, 1.5, 2.0, 3.25, 7.0, 10.5], **options), prenorm=False),
        ]
    )


MODELS: dict[str, Callable[[], Streaming[Any]]] = {
    "tokens": lambda: TokenModel(9, stack()),
    "series": lambda: SeriesModel(Values(3, H), stack(), 2),
    "mean": lambda: PooledModel(Values(3, H), stack(), 4, norm="batch"),
    "last": lambda: PooledModel(Tokens(9, H), stack(), None, pooling="last"),
    "stack": stack,
    "layer": lambda: S4D(H, 8),
    "ssm": lambda: DelaySSM(H, 8, 40, input="absorbed"),
}
BOTH_WAYS: dict[str, Callable[[], Streaming[Any]]] = {
    "both ways": lambda: PooledModel(Tokens(9, H), stack(bidirectional=True), 4),
    "layer, both ways": lambda: DS4D(H, 8, 40, bidirectional=True),
}


def make(build: Callable[[], Streaming[Any]]) -> Streaming[Any]:
    """Return a model in evaluation mode, with running statistics that are not trivial."""
    torch.manual_seed(1)
    model = build().eval()
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if "running" in name:
                buffer.uniform_(0.5, 1.5)
    return model


def error(y: Any, expected: Any) -> float:
    """Return the largest difference, relative to the largest value."""
    y, expected = np.asarray(y), np.asarray(expected)
    assert y.shape == expected.shape
    assert y.dtype == expected.dtype
    return float(np.abs(y - expected).max() / np.abs(expected).max())
