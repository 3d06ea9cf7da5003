"""Tests of the layers with additions: each by a loop, and what all models keep."""

from dataclasses import replace

import pytest
import torch

from delayssm.layers.delay_ssm import DelaySSMConfig
from delayssm.layers.layer import DS4DConfig
from delayssm_lab.models.hybrid import DeltaHeads, GatedDelay, ShortConvolution, delta_rule
from delayssm_lab.models.specs import HybridSpec
from delayssm_lab.recipes.recall import HYBRIDS, TASKS, hybrids, small

PLAIN = HybridSpec(depth=2, layer=DS4DConfig(8, 4, 20))
SPECS = [
    PLAIN,
    replace(PLAIN, taps=3),
    replace(PLAIN, gated=True),
    replace(PLAIN, heads=2, head_size=3),
    replace(PLAIN, taps=2, gated=True, heads=1),
]
every_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.family)


def test_the_delta_rule_by_its_recurrence() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 3, 9, 4), torch.randn(2, 3, 9, 4), torch.randn(2, 3, 9, 5)
    beta = torch.rand(2, 3, 9)
    state, expected = torch.zeros(2, 3, 5, 4), []
    for t in range(9):
        missing = v[:, :, t] - (state @ k[:, :, t, :, None]).squeeze(-1)
        state = state + (beta[:, :, t, None] * missing).unsqueeze(-1) * k[:, :, t].unsqueeze(-2)
        expected.append((state @ q[:, :, t, :, None]).squeeze(-1))
    torch.testing.assert_close(delta_rule(q, k, v, beta), torch.stack(expected, 2), atol=1e-3, rtol=1e-3)


def test_the_delta_rule_stores_and_replaces() -> None:
    key, other = torch.eye(4)[:2]
    k, v = torch.stack([key, other, key]), torch.tensor([[1.0], [5.0], [2.0]])
    read = delta_rule(key.expand(1, 1, 3, 4), k[None, None], v[None, None], torch.ones(1, 1, 3))
    assert read.flatten().tolist() == [1.0, 1.0, 2.0]


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
def test_no_model_sees_the_future(spec: HybridSpec) -> None:
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
def test_every_parameter_gets_a_gradient(spec: HybridSpec) -> None:
    model = spec.build(11, 20)
    model(torch.randint(0, 11, (2, 20))).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_names_tell_what_is_added() -> None:
    assert [spec.family for spec in SPECS] == [
        "DS4D", "DS4D, convolution of 3", "DS4D, gated", "DS4D, 2 delta heads",
        "DS4D, convolution of 2, gated, 1 delta head",
    ]  # fmt: skip
    assert len({run.model_label for run in hybrids()}) == len(HYBRIDS)


def test_hybrids_have_as_many_parameters_as_the_others() -> None:
    expected = {TASKS[name]: small(name, "ds4d").parameters() for name in TASKS}
    for run in hybrids():
        assert run.parameters() == pytest.approx(expected[run.task], rel=0.02)
    without = replace(hybrids()[0].model, taps=1)
    assert replace(hybrids()[0], model=without).parameters() == expected[hybrids()[0].task]


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="taps must be at least 1, not 0"):
        replace(PLAIN, taps=0)
    with pytest.raises(ValueError, match="heads must be at least 0, not -1"):
        replace(PLAIN, heads=-1)
    with pytest.raises(ValueError, match="set bidirectional to False"):
        replace(PLAIN, layer=DS4DConfig(8, 4, 20, bidirectional=True))


def test_heads_share_nothing() -> None:
    heads = DeltaHeads(8, 2, 3)
    assert heads(torch.randn(2, 5, 8)).shape == (2, 5, 8)
    with torch.no_grad():
        heads.out.weight[:, 3:] = 0
        x = torch.randn(1, 5, 8)
        before = heads(x)
        heads.qkv.weight.view(3, 2, 3, 8)[:, 1] += 1  # of the second head, which is not read
        torch.testing.assert_close(heads(x), before)
