"""Training: parameter counts, mixed precision, compilation, saving, and a delay that is learned."""

import copy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from delayssm import DS4D, S4D, Block, DelaySSM, Stack, TokenModel
from tests.support.numerics import relative_rms


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

def error(result, expected):
    return float((result - expected).norm() / expected.norm())

stack = Stack([Block(DS4D(8, 4, 20)), Block(DeltaMemory(8, head_size=4)), Block(S4D(8, 4), norm="batch")])
x = torch.randn(2, 40, 8)
compiled = torch.compile(stack, backend=sys.argv[1], fullgraph=True)
y = compiled(x)
y.square().sum().backward()
gradients = {name: p.grad.clone() for name, p in stack.named_parameters()}
stack.zero_grad()
expected = stack(x)
expected.square().sum().backward()
worst = max(error(gradients[name], p.grad) for name, p in stack.named_parameters())

stack.eval()
with torch.no_grad():
    stream = torch.compile(lambda x, state: stack.stream(x, state), backend=sys.argv[1])
    first, state = stream(x[:, :11], stack.init_state(2))
    second, _ = stream(x[:, 11:], state)
    streamed = error(torch.cat([first, second], 1), stack(x))
model = TokenModel(9, stack)
tokens, at = torch.randint(0, 9, (2, 40)), torch.tensor([[3, 39], [0, 20]])
some = torch.compile(model, backend=sys.argv[1], fullgraph=True)(tokens, at=at)
spans = Spans(torch.tensor([40, 30]), torch.tensor([0, 7]))
padded = [torch.compile(model, backend=sys.argv[1], fullgraph=True)(tokens, n) for n in ([40, 30], spans)]
print(error(y, expected) <= 1e-6, worst <= 1e-5, streamed <= 1e-6, error(some, model(tokens, at=at)) <= 1e-6)
print(error(padded[0], model(tokens, [40, 30])) <= 1e-6, error(padded[1], model(tokens, spans)) <= 1e-6)
"""


@pytest.mark.slow
def test_compiled_models_equal_eager_ones() -> None:
    """Compile in another process, without the shape checks of this one. `fullgraph` forbids graph breaks."""
    compiler = "inductor" if shutil.which("g++") else "aot_eager"  # which traces as much and generates nothing
    done = subprocess.run([sys.executable, "-c", COMPILE, compiler], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True"] * 6, done.stdout + done.stderr
    assert "complex operators" not in done.stderr  # nothing complex reaches the compiler


def test_state_dict_round_trip() -> None:
    a, b = DelaySSM(8, 4, 30), DelaySSM(8, 4, 30)
    b.load_state_dict(a.state_dict())
    x = torch.randn(1, 20, 8)
    assert torch.equal(a(x), b(x))
    assert all(not p.is_complex() for p in a.state_dict().values())


def test_it_learns_a_delay() -> None:
    """A channel moves its delay to that of the target."""
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_a_cast_leaves_the_delays_alone(dtype: torch.dtype, tmp_path: Path) -> None:
    """Rounded to bfloat16, parameters of state-space modules would be other delays, so they stay in float32."""
    model = TokenModel(50, Stack(Block(DS4D(16, 8, max_delay=1000)) for _ in range(2))).eval()
    narrow = copy.deepcopy(model).to(dtype)
    for block, exact in zip(narrow.backbone.blocks, model.backbone.blocks, strict=True):
        assert torch.equal(block.layer.ssm.delays(), exact.layer.ssm.delays())
        assert torch.equal(block.layer.ssm.kernel(500), exact.layer.ssm.kernel(500))
        assert block.layer.linear.weight.dtype == dtype
    tokens = torch.randint(50, (2, 300))
    y = narrow(tokens)
    assert y.dtype == dtype
    assert relative_rms(y.float(), model(tokens)) <= {torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype]
    streamed, _ = narrow.stream(tokens, narrow.init_state(2))
    assert relative_rms(streamed.float(), y.float()) <= {torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype]
    narrow.save_pretrained(tmp_path)
    again = TokenModel.from_pretrained(tmp_path)
    assert torch.equal(again(tokens), y)
    assert {name: t.dtype for name, t in again.state_dict().items()} == {
        name: t.dtype for name, t in narrow.state_dict().items()
    }
    built = model.config.build(dtype=dtype)
    assert {t.dtype for t in built.backbone.blocks[0].layer.ssm.parameters()} == {torch.float32}
    assert {built.head.weight.dtype, built.norm.weight.dtype, built.backbone.blocks[1].norm.weight.dtype} == {dtype}
