"""Weights belong to the options that decide what they mean."""

import copy
from collections.abc import Callable

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from delayssm import DS4D, Block, DelaySSM, PooledModel, Stack, TokenModel, Values
from tests.contracts.modules import MODELS, MODULES


def _stack(max_delay: int = 40, prenorm: bool = True) -> Stack:
    return Stack([Block(DS4D(4, 4, max_delay), prenorm=prenorm)])


CASES: list[tuple[Callable[[], nn.Module], Callable[[], nn.Module], str]] = [
    (lambda: DelaySSM(4, 4, 256), lambda: DelaySSM(4, 4, 1024), "DelaySSM: .*max_delay is 256 there and 1024 here"),
    (
        lambda: TokenModel(5, _stack(30)),
        lambda: TokenModel(5, _stack(31)),
        r"backbone\.blocks\.0\.layer\.ssm: .*max_delay is 30 there and 31 here",
    ),
    (_stack, lambda: _stack(prenorm=False), r"blocks\.0: .*prenorm is 1 there and 0 here"),
    (
        lambda: PooledModel(Values(2, 4), _stack(), 3),
        lambda: PooledModel(Values(2, 4), _stack(), 3, pooling="last"),
        "PooledModel: .*pooling is 0 there and 1 here",
    ),
]


@pytest.mark.parametrize(("theirs", "mine", "message"), CASES, ids=["SSM", "inside", "block", "pooled"])
@pytest.mark.parametrize("strict", [True, False])
def test_weights_of_other_options_are_refused(
    theirs: Callable[[], nn.Module], mine: Callable[[], nn.Module], message: str, strict: bool
) -> None:
    weights = load(save(theirs().state_dict()))  # as a file holds them
    with pytest.raises(RuntimeError, match=f"(?s){message}.*build the module with the configuration of the weights"):
        mine().load_state_dict(weights, strict=strict)
    theirs().load_state_dict(weights)


def test_weights_of_another_format_are_refused() -> None:
    weights = DelaySSM(4, 4, 50).state_dict()
    weights["options"] = weights["options"].clone()
    weights["options"][0] = 9
    with pytest.raises(RuntimeError, match="format is 9 there and 1 here"):
        DelaySSM(4, 4, 50).load_state_dict(weights)


@pytest.mark.parametrize("build", [*MODULES.values(), *MODELS.values()], ids=[*MODULES, *MODELS])
def test_options_survive_what_happens_to_weights(build: Callable[[], nn.Module]) -> None:
    module = build()
    expected = {name: value.tolist() for name, value in module.state_dict().items() if name.endswith("options")}
    with torch.device("meta"):
        empty = build()
    empty.to_empty(device="cpu")
    empty.reset_parameters()  # type: ignore[operator]
    for version in (copy.deepcopy(module), build().double(), build().to(torch.bfloat16), empty):
        found = {name: value for name, value in version.state_dict().items() if name.endswith("options")}
        assert {name: value.tolist() for name, value in found.items()} == expected
        assert all(value.dtype == torch.int64 for value in found.values())
        version.load_state_dict(version.state_dict())
