"""Tests of the specifications: one interface for all models, their sizes, and models with pooling."""

import pytest
import torch
from torch import nn

from delayssm import DS4D, S4D, Block, DelaySSM, PooledModel, Stack, TokenModel, Tokens, Values, match_width
from delayssm.layers.block import BlockConfig
from delayssm.layers.inputs import TokensConfig
from delayssm.layers.layer import DS4DConfig, S4DConfig
from delayssm.models.matching import count_parameters
from delayssm_lab.models import specs
from delayssm_lab.models.noise import noise
from delayssm_lab.recipes.delayed import MODELS, TASKS, Scale, models_of, paper, preset
from delayssm_lab.recipes.sizes import rows

SMALL: list[specs.Spec] = [
    specs.StateSpaceSpec(depth=2, block=BlockConfig(layer=DS4DConfig(8, 4, 20))),
    specs.StateSpaceSpec(depth=2, block=BlockConfig(layer=S4DConfig(8, 4))),
    specs.LSTMSpec(d_model=8, depth=2),
    specs.MambaSpec(d_model=8, depth=2, d_state=4),
    specs.GPT2Spec(d_model=8, depth=2, heads=2),
    specs.LlamaSpec(d_model=8, depth=2, heads=2, d_mlp=12),
]
every_model = pytest.mark.parametrize("spec", SMALL, ids=lambda spec: spec.family)

#: Parameters for copying, for both sums with fixed delays, and for both sums with variable delays.
PAPER_TOTALS = {
    "lstm": (168_384, 862_698, 862_698),
    "s4d": (167_310, 866_320, 866_320),
    "mamba": (167_816, 867_552, 867_552),
    "gpt2": (165_360, 855_492, 875_980),
    "llama": (169_840, 868_650, 868_650),
    "ds4d": (167_580, 868_805, 868_805),
    "ds4d-narrow": (77_100, 412_206, 412_206),
}


@pytest.mark.parametrize("model", MODELS)
def test_the_paper_s_totals_to_the_digit(model: str) -> None:
    copy, fixed, variable = PAPER_TOTALS[model]
    expected = {"copy-fixed": copy, "copy-variable": copy, "sum-fixed": fixed, "sum-variable": variable}
    expected |= {"weighted-sum-fixed": fixed, "weighted-sum-variable": variable}
    assert {task: paper(task, model).parameters() for task in TASKS} == expected


@pytest.mark.parametrize("scale", ["paper", "small"])
def test_widths_are_matched(scale: Scale) -> None:
    for task in TASKS:
        target = preset(task, "s4d", scale)
        ds4d = preset(task, "ds4d", scale).model
        assert specs.matched(ds4d, target.parameters(), target.task.build) == ds4d
        for model in models_of(scale):
            if model != "ds4d-narrow":
                assert preset(task, model, scale).parameters() == pytest.approx(target.parameters(), rel=0.02)


def test_the_size_table() -> None:
    table = {(row[0], row[1]): row for row in rows("paper", [])}
    assert len(table) == 15
    assert table["copy", "DS4D"] == ("copy", "DS4D", "2", "133", "-", "64", "167,580")
    assert table["sum, weighted sum, variable", "GPT-2"][-1] == "875,980"


def test_delays_up_to_a_length() -> None:
    ds4d, s4d = SMALL[:2]
    assert isinstance(ds4d, specs.StateSpaceSpec)
    assert isinstance(s4d, specs.StateSpaceSpec)
    longer = ds4d.with_delays_up_to(31)
    assert longer == specs.StateSpaceSpec(depth=2, block=BlockConfig(layer=DS4DConfig(8, 4, 31)))
    assert [block.layer.config.max_delay for block in longer.backbone().blocks] == [31, 31]
    assert longer.with_delays_up_to(20) == ds4d
    assert s4d.with_delays_up_to(31) == s4d


def test_other_options_of_the_layers() -> None:
    spec = SMALL[0]
    assert isinstance(spec, specs.StateSpaceSpec)
    layer = DS4DConfig(12, 4, 20, dropout=0.1)
    assert spec.with_layer(dropout=0.1).with_width(12).layer == layer
    with pytest.raises(TypeError, match="droput"):
        spec.with_layer(droput=0.1)
    with pytest.raises(ValueError, match="must be S4D or DS4D, not TokensConfig"):
        specs.StateSpaceSpec(depth=2, block=BlockConfig(layer=TokensConfig(11, 8)))


@every_model
def test_logits_at_positions_are_those_of_the_whole(spec: specs.Spec) -> None:
    model = spec.build(11, 20).eval()
    tokens = torch.randint(0, 11, (3, 20))
    at = torch.stack([torch.randperm(20)[:5] for _ in range(3)])
    every, some = model(tokens), model(tokens, at=at)
    assert every.shape == (3, 20, 11)
    torch.testing.assert_close(some, every[torch.arange(3)[:, None], at])


@every_model
def test_no_model_sees_the_future(spec: specs.Spec) -> None:
    model = spec.build(11, 20).eval()
    tokens = torch.randint(0, 11, (1, 20))
    changed = tokens.clone()
    changed[:, 12:] = (tokens[:, 12:] + 1) % 11
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :12], after[:, :12], atol=1e-5, rtol=1e-5)
    assert (before[:, 12] - after[:, 12]).abs().max() > 1e-4


@every_model
def test_every_parameter_gets_a_gradient(spec: specs.Spec) -> None:
    model = spec.build(11, 20)
    model(torch.randint(0, 11, (2, 20))).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


@every_model
def test_counting_does_not_allocate_and_agrees(spec: specs.Spec) -> None:
    built = sum(p.numel() for p in spec.build(11, 20).parameters())
    assert count_parameters(lambda: spec.build(11, 20)) == built


def test_wrong_positions_are_refused() -> None:
    tokens = torch.zeros(2, 5, dtype=torch.int64)
    for spec in SMALL:
        with pytest.raises(ValueError, match="a row for each of the 2 rows"):
            spec.build(11, 20)(tokens, at=torch.zeros(3, 1, dtype=torch.int64))


def test_match_width() -> None:
    build = lambda width: nn.Linear(width, width)  # noqa: E731
    assert match_width(build, 110) == 10  # 10 * 10 + 10, to the digit
    assert match_width(build, 120) == 10  # 110 is nearer than 132
    assert match_width(build, 122) == 11
    assert match_width(build, 122, multiple_of=4) == 12
    assert match_width(build, 2) == 1
    with pytest.raises(ValueError, match="already has 20 parameters"):
        match_width(build, 19, multiple_of=4)
    with pytest.raises(ValueError, match="multiple_of"):
        match_width(build, 19, multiple_of=0)


def test_layers_can_be_built_without_memory() -> None:
    for options in ({}, {"delays": 7}, {"branch_fraction": (0.01, 0.5)}, {"branch_fraction": torch.full((2,), 0.1)}):
        count = count_parameters(lambda options=options: DelaySSM(3, 4, 20, **options))
        assert count == sum(p.numel() for p in DelaySSM(3, 4, 20, **options).parameters())
    with pytest.raises(ValueError, match="branch_fraction"), torch.device("meta"):
        DelaySSM(3, 4, 20, branch_fraction=1.5)


def _pooled(pooling: str, inputs: nn.Module | None = None) -> PooledModel:
    backbone = Stack([Block(DS4D(8, 4, 20)), Block(S4D(8, 4))])
    return PooledModel(inputs or Values(3, 8), backbone, 5, pooling).eval()


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_padding_does_not_change_an_answer(pooling: str) -> None:
    model = _pooled(pooling)
    x = torch.randn(4, 20, 3)
    lengths = torch.tensor([20, 13, 1, 7])
    for row, length in enumerate(lengths.tolist()):
        x[row, length:] = float("nan")
    together = model(x, lengths)
    alone = torch.cat([model(x[row : row + 1, :length]) for row, length in enumerate(lengths.tolist())])
    assert together.shape == (4, 5)
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_what_pooling_means() -> None:
    torch.manual_seed(1)
    mean, last = _pooled("mean"), _pooled("last")
    last.load_state_dict({**mean.state_dict(), "options": last.options})  # the same weights, which it would refuse
    x = torch.randn(2, 9, 3)
    features = mean.norm(mean.backbone(mean.inputs(x)))
    torch.testing.assert_close(mean(x), mean.head(features.mean(1)))
    torch.testing.assert_close(last(x), last.head(features[:, -1]))


def test_pooled_models_take_tokens() -> None:
    model = _pooled("mean", Tokens(7, 8))
    tokens = torch.randint(0, 7, (2, 9))
    padded = torch.cat([tokens, torch.full((2, 3), 99)], dim=1)
    torch.testing.assert_close(model(padded, [9, 9]), model(tokens), atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="token 99"):
        model(padded)


def test_pooled_models_that_do_not_fit() -> None:
    backbone = Stack([Block(S4D(8, 4))])
    with pytest.raises(ValueError, match="width 6, but the backbone has 8"):
        PooledModel(Values(3, 6), backbone, 5)
    with pytest.raises(ValueError, match="pooling"):
        PooledModel(Values(3, 8), backbone, 5, "max")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="outputs"):
        PooledModel(Values(3, 8), backbone, 0)
    with pytest.raises(ValueError, match="features"):
        Values(0, 8)
    with pytest.raises(ValueError, match="vocab_size"):
        TokenModel(0, backbone)


@pytest.mark.parametrize("name", ["d_model", "depth", "d_state", "conv_kernel"])
def test_sizes_of_baselines_are_at_least_one(name: str) -> None:
    sizes = {"d_model": 8, "depth": 1, "d_state": 4, "conv_kernel": 3, name: 0}
    with pytest.raises(ValueError, match=f"{name} of Mamba must be at least 1, not 0"):
        specs.MambaSpec(**sizes)


def test_noise_is_for_models_with_pooling_only() -> None:
    model = TokenModel(5, Stack([Block(S4D(4, 4))]))
    with pytest.raises(TypeError, match=r"not for a TokenModel; .* derive the task from RecallTask"):
        noise(model, 8)
