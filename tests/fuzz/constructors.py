"""Fuzzing of the arguments of modules: what can be built computes, and whatever else is refused."""

import math
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from delayssm import DS4D, S4D, Block, DelaySSM, DiagonalSSM, PooledModel, Stack, TokenModel, Tokens, Values
from delayssm.layers.streaming import Streaming
from tests.fuzz.outcomes import ACCEPTED, REFUSED, require_clear

LAYERS = [DiagonalSSM, DelaySSM, S4D, DS4D]
#: Values that make sense for some option.
SENSIBLE: dict[str, list[Any]] = {
    "d_model": [1, 2, 4, 17],
    "d_state": [2, 4, 8],
    "init": ["lin", "inv"],
    "dt_min": [1e-12, 1e-3, 0.05],
    "dt_max": [0.05, 0.1, 59.0],
    "n_ssm": [1, 2, None],
    "input": ["explicit", "absorbed"],
    "bidirectional": [False, True],
    "contour": ["exact", "float32", "paper"],
    "max_delay": [3, 10, 1000, 10**9],
    "branch_fraction": [0.0, 0.1, 1 - 1e-16, (1e-9, 0.999), [[0.1] * 4], torch.full((4,), 0.5), [[0.5], [0.1]]],
    "phase": [0.0, math.pi, -1e30],
    "delays": ["grid", 1, 2.5, [1.0, 2.0], torch.tensor([1.0, 2.0, 1.5, 2.0]), np.array([1.5, 1.25])],
    "dropout": [0.0, 0.5],
}
#: Values that hardly ever make sense.
ODD: list[Any] = [
    0, -1, 1, 3, 5, 1.5, -0.0, 1e-300, 1e300, math.nan, math.inf, -math.inf, True, None, "", "x", "grid", [], (), [1.0],
    [[0.5]], (0.1, 0.2), (0.2, 0.1), {}, {"a": 1}, b"lin", 1j, object, torch.zeros(0), torch.tensor(0.1),
    torch.tensor([math.nan, 1.0]), np.float32(0.1), np.int64(4), np.array(["a"]), -(2**70),
]  # fmt: skip


def case(data: st.DataObject, tmp: Path) -> str:
    """Build a module, then run it forwards, backwards and as a stream."""
    torch.manual_seed(0)
    try:
        module = _build(data)
    except Exception as error:
        require_clear(error)
        return REFUSED
    try:
        _use(data, module)
    except RuntimeError as error:
        if "there is no room for the memory" not in str(error):  # of delays of a billion steps
            raise
        require_clear(error)
        return REFUSED
    return ACCEPTED


def _build(data: st.DataObject) -> Streaming[Any]:
    layer_type = data.draw(st.sampled_from(LAYERS), "layer")
    arguments = {}
    for field in fields(layer_type(2).config):
        required = field.default is MISSING
        source = data.draw(
            st.sampled_from(["sensible"] * 9 + ["odd"] + ["default"] * (0 if required else 20)), "source"
        )
        if source != "default":
            values = SENSIBLE[field.name] if source == "sensible" else ODD
            arguments[field.name] = data.draw(st.sampled_from(values), field.name)
    if data.draw(st.integers(0, 30), "unknown option") == 0:
        arguments[data.draw(st.sampled_from(["d_modle", "self", "config", "", "device_"]))] = 1
    layer: Any = layer_type(**arguments)
    blocks = data.draw(st.sampled_from([[layer], layer, [], [layer, layer], [None], [layer, S4D(3)]]), "blocks")
    kind = data.draw(st.sampled_from(["layer", "block", "stack", "tokens", "pooled"]), "kind")
    if kind == "layer" or layer_type in (DiagonalSSM, DelaySSM):
        return layer
    norm = data.draw(st.sampled_from(["layer", "batch", *ODD]), "norm")
    if kind == "block":
        return Block(layer, norm=norm, prenorm=data.draw(st.booleans(), "prenorm"))
    stack: Any = Stack(blocks if kind == "stack" else [Block(layer)])
    if kind == "tokens":
        return TokenModel(data.draw(st.sampled_from([1, 9, *ODD]), "vocab_size"), stack)
    if kind == "pooled":
        width = data.draw(st.sampled_from([layer.d_model, *ODD]), "width")
        inputs = data.draw(st.sampled_from([Tokens, Values]), "inputs")(2, width)
        outputs = data.draw(st.sampled_from([3, *ODD]), "outputs")
        return PooledModel(inputs, stack, outputs, data.draw(st.sampled_from(["mean", "last", "x"])), norm)
    return stack


def _use(data: st.DataObject, module: Streaming[Any]) -> None:
    """Make sure that outputs and gradients are finite, and that streams give the outputs of the whole sequence."""
    torch.manual_seed(0)
    x = _input(module, data.draw(st.sampled_from([1, 2, 33]), "length"))
    module.train()
    y = module(x)
    assert bool(y.isfinite().all())
    y.square().sum().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in module.parameters())
    module.eval()
    causal = not any(getattr(inner, "bidirectional", False) for inner in module.modules())
    if causal:
        with torch.no_grad():
            state = module.init_state(2, data.draw(st.sampled_from([None, 33, 200]), "max_length"))
            outputs, _ = module.stream(x, state)
            whole = module(x) if not isinstance(module, PooledModel) else module(x).unsqueeze(1)
            last = outputs[:, -whole.shape[1] :]
        contours = {inner.config.contour for inner in module.modules() if isinstance(inner, DiagonalSSM)}
        error, size = float((last - whole).norm()), float(whole.norm())
        if contours == {"exact"}:
            assert error <= 1e-5 * size + 1e-20
        else:  # as accurate as the kernel is, beside which an output can be small
            assert error <= 1e-2 * (size + whole.numel() ** 0.5)


def _input(module: Streaming[Any], length: int) -> Tensor:
    if isinstance(module, TokenModel) or (isinstance(module, PooledModel) and isinstance(module.inputs, Tokens)):
        return torch.randint(0, module.vocab_size if isinstance(module, TokenModel) else 2, (2, length))
    return torch.randn(2, length, 2 if isinstance(module, PooledModel) else module.d_model)
