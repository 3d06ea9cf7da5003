"""The modules that every contract is tested with."""

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import nn

from delayssm import (
    DS4D,
    S4D,
    Block,
    DelaySSM,
    DeltaMemory,
    DiagonalSSM,
    PairModel,
    PooledModel,
    SeriesModel,
    Stack,
    TokenModel,
    Tokens,
    Values,
)
from delayssm.layers.layer import LayerOptions
from delayssm.layers.streaming import Streaming

H = 6
Build = Callable[[], Streaming]

MODULES: dict[str, Build] = {
    "DelaySSM": lambda: DelaySSM(H, 8, 30),
    "DelaySSM, many modes": lambda: DelaySSM(H, 32, 60, delays=[7.0, 12.5, 22.25, 31.0, 44.5, 58.0]),
    "DelaySSM, short delays": lambda: DelaySSM(H, 8, 30, delays=[1.0, 1.5, 2.0, 2.5, 3.0, 4.25]),
    "DelaySSM, absorbed B": lambda: DelaySSM(H, 8, 30, init="inv", input="absorbed", branch_fraction=(0.05, 0.9)),
    "DelaySSM, shared dynamics": lambda: DelaySSM(H, 8, 30, n_ssm=2),
    "DiagonalSSM": lambda: DiagonalSSM(H, 8),
    "DeltaMemory": lambda: DeltaMemory(H, heads=2, head_size=4),
    "DS4D": lambda: DS4D(H, 8, 30, dropout=0.1),
    "S4D": lambda: S4D(H, 8, dropout=0.1),
    "Block, pre-norm": lambda: Block(DS4D(H, 8, 30)),
    "Block, post-norm, batch": lambda: Block(DS4D(H, 8, 30), norm="batch", prenorm=False),
    "Block, S4D, batch": lambda: Block(S4D(H, 8), norm="batch"),
    "Block, delta memory": lambda: Block(DeltaMemory(H, head_size=4, taps=1)),
    "Stack": lambda: Stack([Block(DS4D(H, 8, 30)), Block(S4D(H, 8)), Block(DS4D(H, 8, 12), prenorm=False)]),
}
BIDIRECTIONAL: dict[str, Build] = {
    "DelaySSM": lambda: DelaySSM(H, 8, 30, bidirectional=True),
    "S4D": lambda: S4D(H, 8, bidirectional=True),
    "Block": lambda: Block(DS4D(H, 8, 30, bidirectional=True), norm="batch"),
}
#: Modules that take tokens or values, not vectors.
MODELS: dict[str, Callable[[], nn.Module]] = {
    "TokenModel": lambda: TokenModel(9, MODULES["Stack"]()),  # type: ignore[arg-type]
    "PooledModel, tokens": lambda: PooledModel(Tokens(9, H), MODULES["Stack"](), 4),  # type: ignore[arg-type]
    "PooledModel, values": lambda: PooledModel(
        Values(3, H), MODULES["Stack"](), None, pooling="last", norm="batch"  # type: ignore[arg-type]
    ),
    "SeriesModel": lambda: SeriesModel(Values(3, H), MODULES["Stack"](), 2),  # type: ignore[arg-type]
    "PairModel": lambda: PairModel(
        PooledModel(Tokens(9, H), MODULES["Stack"](), None, norm=None), 2  # type: ignore[arg-type]
    ),
    "Tokens": lambda: Tokens(9, H),
    "Values": lambda: Values(3, H),
}  # fmt: skip

every_module = pytest.mark.parametrize("build", MODULES.values(), ids=MODULES.keys())
every_module_and_direction = pytest.mark.parametrize(
    "build",
    [*MODULES.values(), *BIDIRECTIONAL.values()],
    ids=[*MODULES, *(f"{name}, bidirectional" for name in BIDIRECTIONAL)],
)


def make(build: Build) -> Streaming:
    """Return a module in eval mode, with running statistics that are not trivial."""
    torch.manual_seed(1)
    module = build().eval()
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            if "running" in name:
                buffer.uniform_(0.5, 1.5)
    return module


def without_dropout(module: Streaming) -> Streaming:
    """Return the same module without dropout, so that training mode is deterministic."""
    if not isinstance(module.config, LayerOptions):
        return module
    plain = dataclasses.replace(module.config, dropout=0.0).build()
    plain.load_state_dict(module.state_dict())
    return plain.eval()
