"""Configurations: everything that decides a module, as a value that can be written, read and built again."""

import dataclasses
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from delayssm import DS4D, S4D, Block, Config, DelaySSM, DiagonalSSM, Stack, Streaming, TokenModel
from delayssm.layers.block import BlockConfig
from delayssm.layers.delay_ssm import DelaySSMConfig
from delayssm.layers.layer import DS4DConfig, S4DConfig
from delayssm.layers.stack import StackConfig
from delayssm.system.state import State
from tests.contracts.modules import BIDIRECTIONAL, MODELS, MODULES, H
from tests.support.numerics import relative_rms

every_configured_module = pytest.mark.parametrize(
    "build",
    [*MODULES.values(), *BIDIRECTIONAL.values(), *MODELS.values()],
    ids=[*MODULES, *(f"{name}, bidirectional" for name in BIDIRECTIONAL), *MODELS],
)


def _read_again(config: Config) -> Config:
    return Config.from_dict(json.loads(json.dumps(config.to_dict())))


@every_configured_module
def test_a_written_configuration_builds_the_same_module(build: Callable[[], nn.Module]) -> None:
    torch.manual_seed(3)
    module = build()
    config = _read_again(module.config)
    assert config == module.config
    assert type(config) is type(module.config)
    torch.manual_seed(3)
    again = config.build()
    assert type(again) is type(module)
    assert again.config == config
    mine, theirs = module.state_dict(), again.state_dict()
    assert list(mine) == list(theirs)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


@every_configured_module
def test_a_configuration_builds_on_any_device_in_any_precision(build: Callable[[], nn.Module]) -> None:
    config = build().config
    assert all(p.is_meta for p in config.build("meta").parameters())
    double = config.build(dtype=torch.float64)
    assert {p.dtype for p in double.parameters()} == {torch.float64}
    assert double.config == config


@every_configured_module
def test_configurations_are_values(build: Callable[[], nn.Module]) -> None:
    config = build().config
    assert len({config, _read_again(config)}) == 1
    field = dataclasses.fields(config)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, field, None)


def test_a_module_takes_its_configuration() -> None:
    config = DS4DConfig(4, 8, 30, dropout=0.1)
    layer = DS4D(config, dtype=torch.float64)
    assert layer.config is config
    assert layer.dropout == 0.1
    assert layer.linear.weight.dtype == torch.float64
    with pytest.raises(AttributeError):
        layer.dropout = 0.5
    assert StackConfig([BlockConfig(layer=config)]) == StackConfig((BlockConfig(layer=config),))


@pytest.mark.parametrize(
    ("fraction", "stored"),
    [
        (0.2, 0.2),
        (torch.tensor(0.5), 0.5),
        ((0.1, 0.5), (0.1, 0.5)),
        ([0.1, 0.5], (0.1, 0.5)),
        (torch.tensor([0.25, 0.5]), ((0.25, 0.5),)),
        (torch.tensor([[0.5], [0.125], [0.5]]), ((0.5,), (0.125,), (0.5,))),
        ([[0.5], [0.125], [0.5]], ((0.5,), (0.125,), (0.5,))),
        (torch.tensor([[0.25, 0.5], [0.125, 0.0], [0.75, 0.5]]), ((0.25, 0.5), (0.125, 0.0), (0.75, 0.5))),
    ],
    ids=["number", "tensor of one number", "pair", "list", "mode", "channel", "rows", "channel and mode"],
)
def test_branch_fractions_survive(fraction: Any, stored: object) -> None:
    ssm = DelaySSM(3, 4, 30, branch_fraction=fraction)
    assert ssm.config.branch_fraction == stored
    hash(ssm.config)
    again = _read_again(ssm.config)
    assert again == ssm.config
    assert torch.equal(again.build().r, ssm.r)


@pytest.mark.parametrize(
    ("delays", "stored"),
    [
        ("grid", "grid"),
        (7, 7.0),
        (torch.tensor(7.5), 7.5),
        ([1, 2.5, 29], (1.0, 2.5, 29.0)),
        (torch.tensor([1.0, 2.5, 29.0], requires_grad=True), (1.0, 2.5, 29.0)),
    ],
    ids=["grid", "number", "tensor of one number", "list", "tensor"],
)
def test_delays_survive(delays: Any, stored: object) -> None:
    ssm = DelaySSM(3, 4, 30, delays=delays)
    assert ssm.config.delays == stored
    hash(ssm.config)
    again = _read_again(ssm.config)
    assert again == ssm.config
    if delays != "grid":
        assert torch.equal(again.build().nu_tau, ssm.nu_tau)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"branch_fractoin": 0.1}, "DS4D has no option branch_fractoin; its options are d_model, d_state"),
        ({"kind": "S5"}, "no configuration is called 'S5' here; there are Block, DS4D, "),
        ({"kind": ""}, "no configuration is called ''"),
        ({"d_model": "8"}, "option d_model of DS4D must be of type int, not '8'"),
        ({"d_model": 8.0}, r"option d_model of DS4D must be of type int, not 8\.0"),
        ({"dropout": True}, "option dropout of DS4D must be of type float, not True"),
        ({"dt_min": None}, "option dt_min of DS4D must be of type float, not None"),
        ({"bidirectional": "no"}, "option bidirectional of DS4D must be of type bool, not 'no'"),
        ({"init": 3}, "option init of DS4D must be of type .*'lin', 'inv'.*, not 3"),
        ({"delays": [1, "two"]}, "option delays of DS4D must be of type "),
        ({"init": "legs"}, "init must be .* not 'legs'"),
        ({"d_state": 7}, "d_state must be even .* not 7"),
        ({"dropout": 1.5}, r"dropout must lie in \[0, 1\), not 1\.5"),
    ],
)
def test_wrong_content(change: dict[str, object], message: str) -> None:
    content = DS4D(8, 4, 30).config.to_dict()
    with pytest.raises(ValueError, match=message):
        Config.from_dict({**content, **change})
    with pytest.raises(ValueError, match=message):  # also deep inside
        Config.from_dict({"kind": "Block", "layer": {**content, **change}})


def test_missing_content() -> None:
    with pytest.raises(ValueError, match="the configuration of DS4D lacks d_model"):
        Config.from_dict({"kind": "DS4D", "d_state": 4})
    with pytest.raises(ValueError, match="the configuration of TokenModel lacks vocab_size, backbone"):
        Config.from_dict({"kind": "TokenModel"})
    with pytest.raises(ValueError, match="no configuration is called None"):
        Config.from_dict({"d_model": 4})
    with pytest.raises(ValueError, match="no configuration is called None"):
        Config.from_dict([1, 2])  # type: ignore[arg-type]
    assert Config.from_dict({"kind": "DS4D", "d_model": 4}) == DS4DConfig(4)


@pytest.mark.parametrize(
    "content",
    [
        {"kind": "TokenModel", "vocab_size": 9, "backbone": {"kind": "Tokens", "vocab_size": 9, "d_model": 4}},
        {"kind": "Stack", "blocks": 3},
        {"kind": "Stack", "blocks": [4]},
        {"kind": "Block", "layer": "DS4D"},
    ],
)
def test_a_configuration_in_the_wrong_place(content: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"option \w+ of \w+ must be of type"):
        Config.from_dict(content)


def test_only_configurations_of_a_class_are_read_by_it() -> None:
    content = DS4D(4).config.to_dict()
    assert DelaySSMConfig.from_dict(content) == DS4D(4).config
    with pytest.raises(ValueError, match="no configuration is called 'DS4D' here; there are S4D"):
        S4DConfig.from_dict(content)


class Mean(Streaming[State]):
    """A user's own block: an S4D layer inside, and no configuration."""

    def __init__(self) -> None:
        super().__init__()
        self.d_model = H
        self.inner = S4D(H, 4)

    def forward(self, x: Tensor, lengths: Any = None, at: Any = None) -> Tensor:
        return 0.5 * self.inner(x, lengths, at)

    def stream(self, x: Tensor, state: State, lengths: Any = None) -> tuple[Tensor, State]:
        y, state = self.inner.stream(x, state, lengths)
        return 0.5 * y, state

    def _first_state(self, batch_size: int, max_length: int | None) -> State:
        return self.inner.init_state(batch_size, max_length)


@torch.no_grad()
def test_a_block_without_a_configuration(tmp_path: Path) -> None:
    """It computes and streams like any other; only asking for its configuration or saving its streams is an error."""
    stack = Stack([Block(DS4D(H, 4, 30)), Mean(), Block(Mean())]).eval()
    model = TokenModel(9, stack).eval()
    repr(model)
    tokens = torch.randint(0, 9, (2, 20))
    y, state = model.stream(tokens[:, :11], model.init_state(2))
    z, state = model.stream(tokens[:, 11:19], state)
    last, state = model.step(tokens[:, 19], state)
    assert relative_rms(torch.cat([y, z, last[:, None]], 1), model(tokens)) <= 1e-6
    for ask in (lambda: model.config, lambda: stack.config, lambda: stack.blocks[2].config):
        with pytest.raises(TypeError, match="Mean has no configuration, so it cannot be saved; give it a property"):
            ask()
    for use in (lambda: state.save(tmp_path / "state"), lambda: stack.init_state(1).save(tmp_path / "state")):
        with pytest.raises(TypeError, match="Mean has no configuration"):
            use()
    assert list(tmp_path.iterdir()) == []
    assert stack.blocks[0].config.layer == DS4DConfig(H, 4, 30)


OPTIONS = {
    DS4D: ["d_model", "d_state", "max_delay", "init", "dt_min", "dt_max", "n_ssm", "input", "bidirectional",
           "contour", "branch_fraction", "phase", "delays", "dropout", "device", "dtype"],
    S4D: ["d_model", "d_state", "init", "dt_min", "dt_max", "n_ssm", "input", "bidirectional", "contour", "dropout",
          "device", "dtype"],
    DelaySSM: ["d_model", "d_state", "max_delay", "init", "dt_min", "dt_max", "n_ssm", "input", "bidirectional",
               "contour", "branch_fraction", "phase", "delays", "device", "dtype"],
    DiagonalSSM: ["d_model", "d_state", "init", "dt_min", "dt_max", "n_ssm", "input", "bidirectional", "contour",
                  "device", "dtype"],
}  # fmt: skip


@pytest.mark.parametrize("cls", OPTIONS)
def test_constructors_show_and_document_their_options(cls: type) -> None:
    parameters = inspect.signature(cls).parameters
    assert sorted(parameters) == sorted(OPTIONS[cls])
    config = cls(4).config
    for name, parameter in parameters.items():
        if name in ("device", "dtype"):
            assert parameter.default is None
        elif name != "d_model":
            assert parameter.default == getattr(config, name)
            assert f"{name}={parameter.default!r}" in repr(cls(4))
        documented = [line for line in cls.__init__.__doc__.splitlines() if line.startswith(f"    {name}: ")]
        assert len(documented) == 1, name
    positional = [name for name, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == [name for name in ("d_model", "d_state", "max_delay") if name in parameters]
