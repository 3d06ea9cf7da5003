"""Where modules are made: on any device, in any precision, and afresh."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from delayssm import DS4D, Block, DelaySSM, PooledModel, Stack, TokenModel, Values
from tests.contracts.modules import BIDIRECTIONAL, MODULES, Build, H, every_module, every_module_and_direction, make
from tests.support.numerics import relative_rms


def _same_bits(a: nn.Module, b: nn.Module) -> bool:
    mine, theirs = a.state_dict(), b.state_dict()
    return list(mine) == list(theirs) and all(torch.equal(mine[name], theirs[name]) for name in mine)


@every_module_and_direction
def test_meta_device_then_reset(build: Build) -> None:
    """A module that was made without memory, then reset, has the bits of one that was made directly."""
    torch.manual_seed(5)
    direct = build()
    torch.manual_seed(6)
    with torch.device("meta"):
        module = build()
    assert all(t.is_meta for t in module.state_dict().values())
    assert module.config == direct.config
    module.to_empty(device="cpu")
    torch.manual_seed(5)
    module.reset_parameters()
    assert _same_bits(module, direct)
    x = torch.randn(2, 20, H)
    assert torch.equal(module.eval()(x), direct.eval()(x))


@every_module
@torch.no_grad()
def test_reset_parameters(build: Build) -> None:
    """The same seed restores the same bits, whatever training has done; another seed gives other ones."""
    torch.manual_seed(5)
    module = build()
    before = {name: t.clone() for name, t in module.state_dict().items()}
    for t in module.state_dict().values():
        t.add_(3)
    torch.manual_seed(5)
    module.reset_parameters()
    after = module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    torch.manual_seed(7)
    module.reset_parameters()
    assert any(not torch.equal(before[name], t) for name, t in module.state_dict().items())


MODELS: dict[str, Callable[[], nn.Module]] = {
    "TokenModel": lambda: TokenModel(40, Stack([Block(DS4D(32, 8, 30)), Block(DS4D(32, 8, 30), norm="batch")])),
    "PooledModel": lambda: PooledModel(Values(3, 32), Stack([Block(DS4D(32, 8, 30))]), 9, norm="batch"),
}


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS.keys())
def test_models_are_reset_to_the_same_distribution(build: Callable[[], nn.Module]) -> None:
    """The order of draws may differ from that of construction, so bits may, too."""
    direct = build()
    with torch.device("meta"):
        model = build()
    model.to_empty(device="cpu")
    model.reset_parameters()
    for name, t in direct.state_dict().items():
        drawn = model.state_dict()[name]
        assert bool(drawn.isfinite().all()), name
        if float(t.double().std(unbiased=False)) < 1e-6:
            assert torch.equal(drawn, t), name
        elif t.numel() >= 64:
            assert float(drawn.std()) == pytest.approx(float(t.std()), rel=0.3), name


@pytest.mark.parametrize("build", [*MODULES.values(), *BIDIRECTIONAL.values()])
def test_double_precision(build: Build) -> None:
    config = make(build).config
    torch.manual_seed(1)
    module = config.build(dtype=torch.float64).eval()
    assert {t.dtype for t in module.state_dict().values() if t.is_floating_point()} == {torch.float64}
    x = torch.randn(2, 20, H, dtype=torch.float64)
    y = module(x)
    assert y.dtype == torch.float64
    assert relative_rms(module.float()(x.float()), y) <= 1e-5


def test_initial_values_are_drawn_in_full_precision() -> None:
    ssm = DelaySSM(3, 4, 30, delays=[1.1, 2.7, 28.3], dtype=torch.float64)
    torch.testing.assert_close(
        ssm.delays(), torch.tensor([1.1, 2.7, 28.3], dtype=torch.float64), rtol=1e-13, atol=1e-13
    )
    assert ssm.init_state(1).memory.feedback.dtype == torch.float64
