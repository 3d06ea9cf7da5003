"""Comparison of exported graphs, as a runtime runs them, with the models that they were made from."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from delayssm.export.examples import example
from delayssm.layers.streaming import Streaming
from delayssm.system.memory import Rings

#: Largest difference of an output, relative to the largest output.
TOLERANCE = 1e-5
#: Chunks that streams are compared over, and largest number of tokens.
CHUNKS, TOKENS = (1, 16, 1, 50), 2048


class Disagreement(ValueError):
    """A graph that does not compute what its model does. No file was written.

    >>> issubclass(Disagreement, ValueError)
    True
    """


@torch.no_grad()
def stream(content: bytes, model: Streaming[Any]) -> None:
    """Raise unless a graph agrees with `model.stream` over chunks of several lengths, until rings have gone round."""
    from delayssm.export.streaming_session import StreamingSession

    state, session = model.init_state(2), StreamingSession(content, batch_size=2)
    rings = [memory.k.max() for memory in state.memories() if isinstance(memory, Rings)]
    length = min(TOKENS, 2 * sum(CHUNKS) + int(max(rings)))
    y: list[np.ndarray] = []
    x, start = example(model, 2, length), 0
    while start < length:
        chunk = x[:, start : start + CHUNKS[len(y) % len(CHUNKS)]]
        y.append(session(chunk.numpy()))
        start += chunk.shape[1]
    expected, _ = model.stream(x, state)
    _compare(np.concatenate(y, axis=1), expected.numpy(), "a stream")


@torch.no_grad()
def sequences(content: bytes, model: Streaming[Any], max_length: int) -> None:
    """Raise unless a graph agrees with a model about sequences of several lengths, up to the longest."""
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    for length in sorted({1, 2, min(100, max_length), max_length}):
        x = example(model, 2 if length <= 100 else 1, length)
        (y,) = session.run(None, {"x": x.numpy()})
        _compare(y, model(x).numpy(), f"sequences of {length}")


def _compare(y: np.ndarray, expected: np.ndarray, what: str) -> None:
    error = float(np.abs(y - expected).max() / np.abs(expected).max())
    if not error <= TOLERANCE:
        raise Disagreement(
            f"the exported graph disagrees with the model: outputs of {what} differ by {error:.1e} of the largest one, "
            f"more than {TOLERANCE:.0e}. Nothing was written; please report this, with the output of `delayssm info`"
        )
