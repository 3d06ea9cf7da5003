"""Parameter groups for optimisers."""

import pytest
import torch
from torch import nn

from delayssm import DS4D, S4D, Block, DelaySSM, DiagonalSSM, Rule, Stack, param_groups


def test_param_groups() -> None:
    model = nn.Sequential(
        nn.Embedding(10, 8), Stack([Block(DS4D(8, 4, 30)), Block(S4D(8, 4), norm="batch")]), nn.Linear(8, 3)
    )
    options = {"dt_lr": 1e-4, "dynamics_lr": 1e-2, "weight_decay": 0.05}
    groups = {group["name"]: group for group in param_groups(model, 1e-2, **options)}
    names = {id(p): name for name, p in model.named_parameters()}
    members = {key: sorted(names[id(p)] for p in group["params"]) for key, group in groups.items()}
    assert members["step_size"] == ["1.blocks.0.layer.ssm.nu_dt", "1.blocks.1.layer.ssm.nu_dt"]
    assert members["main"] == [
        "0.weight", "1.blocks.0.layer.linear.weight", "1.blocks.1.layer.linear.weight", "2.weight",
    ]  # fmt: skip
    assert sum(map(len, members.values())) == len(list(model.parameters()))
    rates = {name: (g["lr"], g["weight_decay"]) for name, g in groups.items()}
    assert rates == {
        "main": (1e-2, 0.05),
        "no_decay": (1e-2, 0.0),
        "output": (1e-2, 0.0),
        "dynamics": (1e-2, 0.0),
        "step_size": (1e-4, 0.0),
    }
    slow = {group["name"]: group["lr"] for group in param_groups(model, 1e-2, **{**options, "dynamics_lr": 1e-3})}
    assert slow == {"main": 1e-2, "no_decay": 1e-2, "output": 1e-2, "dynamics": 1e-3, "step_size": 1e-4}
    assert {name.rpartition(".")[2] for name in members["dynamics"]} == {"nu_re", "nu_im", "B"}
    assert {name.rpartition(".")[2] for name in members["output"]} == {"C", "D"}
    decays = {g["name"]: g["weight_decay"] for g in param_groups(model, 1e-2, **options, decay_output=True)}
    assert decays == {"main": 0.05, "no_decay": 0.0, "output": 0.05, "dynamics": 0.0, "step_size": 0.0}
    torch.optim.AdamW(param_groups(model, 1e-2, **options)).step()


@pytest.mark.parametrize("name", ["lr", "dt_lr", "dynamics_lr", "weight_decay"])
@pytest.mark.parametrize("rate", ["1e-3", -1, float("nan"), float("inf"), True])
def test_rates_must_be_numbers(name: str, rate: object) -> None:
    options = {"lr": 1e-3, name: rate}
    with pytest.raises(ValueError, match=rf"^{name} must be a number of at least 0, not {rate!r}"):
        param_groups(S4D(8, 4), **options)  # type: ignore[arg-type]


def test_param_groups_skip_frozen_and_shared_parameters() -> None:
    layer = DS4D(8, 4, 30)
    model = nn.ModuleList([Block(layer), Block(layer)])
    layer.ssm.nu_dt.requires_grad_(False)
    groups = param_groups(model, 1e-2, dt_lr=1e-4, weight_decay=0.05)
    params = [p for group in groups for p in group["params"]]
    assert len(params) == len({id(p) for p in params}) == len(list(model.parameters())) - 1
    assert "step_size" not in [group["name"] for group in groups]


def _rates(model: nn.Module, lr: float, **options: float) -> dict[int, float]:
    """Return the learning rate of each parameter, by its id."""
    return {id(p): group["lr"] for group in param_groups(model, lr, **options) for p in group["params"]}


@pytest.mark.parametrize(("lr", "diagonal_rate"), [(1e-2, 1e-3), (5e-4, 5e-4)])
def test_default_rates(lr: float, diagonal_rate: float) -> None:
    """Step sizes and dynamics of both kinds of SSM in one model have the rates of their classes."""
    delay, diagonal = DelaySSM(4, 4, 30), DiagonalSSM(4, 4)
    model = nn.ModuleList([delay, diagonal])
    groups = param_groups(model, lr)
    dynamics = ["dynamics"] * (2 if diagonal_rate < lr else 1)
    assert [group["name"] for group in groups] == ["no_decay", "output", *dynamics, "step_size", "step_size"]
    rates = _rates(model, lr)
    assert (rates[id(delay.nu_dt)], rates[id(diagonal.nu_dt)]) == (1e-4, diagonal_rate)
    assert {rates[id(p)] for p in (diagonal.nu_re, diagonal.nu_im, diagonal.B)} == {diagonal_rate}
    assert {rates[id(p)] for p in (diagonal.C, diagonal.D)} == {lr}
    assert {rates[id(p)] for name, p in delay.named_parameters() if name != "nu_dt"} == {lr}
    given = _rates(model, lr, dt_lr=7e-6)
    assert given[id(delay.nu_dt)] == given[id(diagonal.nu_dt)] == 7e-6
    decays = {group["name"]: group["weight_decay"] for group in param_groups(nn.Linear(2, 2), lr)}
    assert decays == {"main": 0.01, "no_decay": 0.0}


SUBCLASS = """
from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import nn

from delayssm import DelaySSM, Rule


class Gated(DelaySSM):
    optimiser_rules: ClassVar[Mapping[str, Rule]] = {**DelaySSM.optimiser_rules, "gate": Rule.MAIN}
    gate: nn.Parameter

    def __init__(self) -> None:
        super().__init__(4, 4, 30)
        self.gate = nn.Parameter(torch.ones(4))

    @staticmethod
    def step_size_rate(lr: float) -> float:
        return lr / 2


class Forgetful(Gated):
    optimiser_rules: ClassVar[Mapping[str, Rule]] = DelaySSM.optimiser_rules
"""


def test_rules_of_a_subclass() -> None:
    """Rules are values, so they also hold in a module whose annotations are strings."""
    names: dict[str, type[DelaySSM]] = {}
    exec(compile(SUBCLASS, "subclass.py", "exec", dont_inherit=True), names)
    module = names["Gated"]()
    groups = {group["name"]: group for group in param_groups(module, 1e-2)}
    assert [id(p) for p in groups["main"]["params"]] == [id(module.gate)]
    assert groups["main"]["weight_decay"] == 0.01
    assert [id(p) for p in groups["step_size"]["params"]] == [id(module.nu_dt)]
    assert groups["step_size"]["lr"] == 5e-3
    with pytest.raises(TypeError, match=r"Forgetful\.optimiser_rules has no rule for the parameter 'gate'; add one"):
        param_groups(nn.Sequential(names["Forgetful"]()), 1e-2)


def test_parameters_are_not_a_model() -> None:
    with pytest.raises(TypeError, match="takes the model itself, not its parameters or a generator"):
        param_groups(DelaySSM(2, 4).parameters(), 1e-2)  # type: ignore[arg-type]


@pytest.mark.parametrize("cls", [DelaySSM, DiagonalSSM])
def test_every_parameter_of_an_ssm_has_a_rule(cls: type[DiagonalSSM]) -> None:
    assert set(cls.optimiser_rules) == {name for name, _ in cls(2, 4).named_parameters()}
    assert all(isinstance(rule, Rule) for rule in cls.optimiser_rules.values())
