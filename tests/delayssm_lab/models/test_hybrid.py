"""Tests of the layers with additions: each by a loop, and what all models keep."""

from dataclasses import replace

import pytest
import torch

from delayssm.layers.block import BlockConfig
from delayssm.layers.delay_ssm import DelaySSMConfig
from delayssm.layers.delta_memory import DeltaMemoryConfig
from delayssm.layers.layer import DS4DConfig
from delayssm_lab.models.hybrid import GatedDelay, ShortConvolution
from delayssm_lab.models.specs import HybridSpec, StackSpec
from delayssm_lab.recipes.recall import HYBRIDS, TASKS, hybrids, small

PLAIN = HybridSpec(depth=2, layer=DS4DConfig(8, 4, 20))
SPECS = [
    PLAIN,
    replace(PLAIN, taps=3),
    replace(PLAIN, gated=True),
    replace(PLAIN, taps=2, gated=True),
    StackSpec(
        blocks=(BlockConfig(layer=DS4DConfig(8, 4, 20)), BlockConfig(layer=DeltaMemoryConfig(8, head_size=3))),
        family="DS4D and delta memory",
    ),
]
every_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.family)


def test_the_convolution_by_hand() -> None:
    layer = ShortConvolution(1, 3)
    with torch.no_grad():
        layer.convolution.weight.copy_(torch.tensor([[[100.0, 10.0, 1.0]]]))
        layer.convolution.bias.zero_()
    assert layer(torch.tensor([[[1.0], [2.0], [3.0], [4.0]]])).flatten().tolist() == [1.0, 12.0, 123.0, 234.0]


def test_the_gate_is_two_systems_with_products() -> None:
    layer = GatedDelay(DelaySSMConfig(6, 4, 20))
    x = torch.randn(2, 20, 6)
    q, k, v = layer.qkv(x).chunk(3, dim=-1)
    expected = layer.out(q * layer.memory.stream(layer.keys.stream(k, layer.keys.init_state(2))[0] * v,
                                                 layer.memory.init_state(2))[0])  # fmt: skip
    torch.testing.assert_close(layer(x), expected, atol=1e-5, rtol=1e-5)


@every_spec
def test_no_model_sees_the_future(spec: HybridSpec | StackSpec) -> None:
    torch.manual_seed(0)
    model = spec.build(11, 20)
    tokens = torch.randint(0, 11, (2, 20))
    changed = tokens.clone()
    changed[:, 12:] = (tokens[:, 12:] + 1) % 11
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :12], after[:, :12], atol=1e-5, rtol=1e-5)
    assert (before[:, 12] - after[:, 12]).abs().max() > 1e-4
    at = torch.tensor([[3, 19], [0, 7]])
    torch.testing.assert_close(model(tokens, at=at), before[torch.arange(2)[:, None], at])


@every_spec
def test_every_parameter_gets_a_gradient(spec: HybridSpec | StackSpec) -> None:
    model = spec.build(11, 20)
    model(torch.randint(0, 11, (2, 20))).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_names_tell_what_is_added() -> None:
    assert [spec.family for spec in SPECS] == [
        "DS4D", "DS4D, convolution of 3", "DS4D, gated", "DS4D, convolution of 2, gated", "DS4D and delta memory",
    ]  # fmt: skip
    assert len({run.model_label for run in hybrids()}) == len(HYBRIDS)


def test_hybrids_have_as_many_parameters_as_the_others() -> None:
    expected = {TASKS[name]: small(name, "ds4d").parameters() for name in TASKS}
    for run in hybrids():
        assert run.parameters() == pytest.approx(expected[run.task], rel=0.02)
    first = hybrids()[0]
    assert isinstance(first.model, HybridSpec)
    assert replace(first, model=replace(first.model, taps=1)).parameters() == expected[first.task]


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="taps must be at least 1, not 0"):
        replace(PLAIN, taps=0)
    with pytest.raises(ValueError, match="a stack needs at least one block"):
        StackSpec(blocks=(), family="nothing")
    with pytest.raises(ValueError, match="set bidirectional to False"):
        replace(PLAIN, layer=DS4DConfig(8, 4, 20, bidirectional=True))
