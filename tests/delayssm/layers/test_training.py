"""Optimiser groups, mixed precision, compilation, saving."""

import shutil
import subprocess
import sys

import pytest
import torch
from torch import nn

from delayssm import DS4D, S4D, Block, DelaySSM, Stack, param_groups
from tests.support.numerics import relative_rms


def test_param_groups() -> None:
    model = nn.Sequential(
        nn.Embedding(10, 8), Stack([Block(DS4D(8, 4, 30)), Block(S4D(8, 4), norm="batch")]), nn.Linear(8, 3)
    )
    groups = {group["name"]: group for group in param_groups(model, 1e-2, 1e-4, 0.05)}
    names = {id(p): name for name, p in model.named_parameters()}
    found = {key: sorted(names[id(p)] for p in group["params"]) for key, group in groups.items()}
    assert found["step size"] == ["1.blocks.0.layer.ssm.nu_dt", "1.blocks.1.layer.ssm.nu_dt"]
    assert found["main"] == [
        "0.weight", "1.blocks.0.layer.linear.weight", "1.blocks.1.layer.linear.weight", "2.weight",
    ]  # fmt: skip
    assert sum(map(len, found.values())) == len(list(model.parameters()))
    rates = {name: (g["lr"], g["weight_decay"]) for name, g in groups.items()}
    assert rates == {"main": (1e-2, 0.05), "no decay": (1e-2, 0.0), "dynamics": (1e-2, 0.0), "step size": (1e-4, 0.0)}
    slow = {group["name"]: group["lr"] for group in param_groups(model, 1e-2, 1e-4, 0.05, dynamics_lr=1e-3)}
    assert slow == {"main": 1e-2, "no decay": 1e-2, "dynamics": 1e-3, "step size": 1e-4}
    assert {name.rpartition(".")[2] for name in found["dynamics"]} == {"nu_re", "nu_im", "B"}
    torch.optim.AdamW(param_groups(model, 1e-2, 1e-4, 0.05)).step()


def test_param_groups_skip_frozen_and_shared_parameters() -> None:
    layer = DS4D(8, 4, 30)
    model = nn.ModuleList([Block(layer), Block(layer)])
    layer.ssm.nu_dt.requires_grad_(False)
    groups = param_groups(model, 1e-2, 1e-4, 0.05)
    params = [p for group in groups for p in group["params"]]
    assert len(params) == len({id(p) for p in params}) == len(list(model.parameters())) - 1
    assert "step size" not in [group["name"] for group in groups]


@pytest.mark.parametrize(("H", "N"), [(133, 64), (7, 4)])
def test_parameter_count(H: int, N: int) -> None:
    count = lambda module: sum(p.numel() for p in module.parameters())  # noqa: E731
    s4d, ds4d = Block(S4D(H, N)), Block(DS4D(H, N))
    assert count(s4d) == 3 * H * N + 2 * H * H + 6 * H
    assert count(ds4d) == count(s4d) + H * N + H


def test_autocast_keeps_the_transform_in_float32() -> None:
    stack = Stack([Block(DS4D(16, 8, 40)), Block(DS4D(16, 8, 40))])
    x = torch.randn(2, 100, 16)
    exact = stack(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = stack(x)
        mixed.square().mean().backward()
        reduced = stack.blocks[0].layer.ssm(x.bfloat16())
    assert reduced.dtype == torch.bfloat16
    assert relative_rms(mixed, exact) <= 2e-2
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in stack.parameters())


COMPILE = """
import sys, torch
from delayssm import *

def error(found, expected):
    return float((found - expected).norm() / expected.norm())

stack = Stack([Block(DS4D(8, 4, 20)), Block(S4D(8, 4), norm="batch")])
x = torch.randn(2, 40, 8)
compiled = torch.compile(stack, backend=sys.argv[1], fullgraph=True)
y = compiled(x)
y.square().sum().backward()
found = {name: p.grad.clone() for name, p in stack.named_parameters()}
stack.zero_grad()
expected = stack(x)
expected.square().sum().backward()
worst = max(error(found[name], p.grad) for name, p in stack.named_parameters())

stack.eval()
with torch.no_grad():
    stream = torch.compile(lambda x, state: stack.stream(x, state), backend=sys.argv[1])
    first, state = stream(x[:, :11], stack.init_state(2))
    second, _ = stream(x[:, 11:], state)
    streamed = error(torch.cat([first, second], 1), stack(x))
model = TokenModel(9, stack)
tokens, at = torch.randint(0, 9, (2, 40)), torch.tensor([[3, 39], [0, 20]])
whole = torch.compile(model, backend=sys.argv[1], fullgraph=True)(tokens, at=at)
print(error(y, expected) <= 1e-6, worst <= 1e-5, streamed <= 1e-6, error(whole, model(tokens, at=at)) <= 1e-6)
"""


def test_compiled_models_equal_eager_ones() -> None:
    """In a process of its own, without the shape checks of this one. `fullgraph` forbids graph breaks."""
    compiler = "inductor" if shutil.which("g++") else "aot_eager"  # which traces as much and generates nothing
    done = subprocess.run([sys.executable, "-c", COMPILE, compiler], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True"] * 4, done.stdout + done.stderr
    assert "complex operators" not in done.stderr  # nothing complex reaches the compiler


def test_state_dict_round_trip() -> None:
    a, b = DelaySSM(8, 4, 30), DelaySSM(8, 4, 30)
    b.load_state_dict(a.state_dict())
    x = torch.randn(1, 20, 8)
    assert torch.equal(a(x), b(x))
    assert all(not p.is_complex() for p in a.state_dict().values())


def test_it_learns_a_delay() -> None:
    """One channel moves its delay to where the target is."""
    ssm = DelaySSM(1, 4, 40, delays=18.5, branch_fraction=0.5, phase=0.0, dt_min=0.5, dt_max=0.5)
    optimiser = torch.optim.Adam(ssm.parameters(), lr=0.02)
    x = torch.randn(16, 80, 1)
    target = 0.6 * x.roll(20, dims=1)
    target[:, :20] = 0
    first = None
    for _ in range(300):
        loss = (ssm(x) - target).square().mean()
        first = first or float(loss.detach())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert float(loss.detach()) < 0.2 * first
    assert 19 < float(ssm.delays().detach()) < 21
