"""One pass, any chunking and token by token give the same outputs and gradients."""

import itertools

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings

import delayssm
from delayssm import DS4D, S4D, Block, DelaySSM, DeltaMemory, DiagonalSSM
from delayssm.system.kernel import CONTOURS, Contour
from tests.contracts.modules import BIDIRECTIONAL, MODULES, Build, H, every_module, make
from tests.support.numerics import relative_rms


@every_module
@given(
    cuts=st.lists(st.integers(0, 90), max_size=6),
    batch=st.integers(1, 3),
    max_length=st.sampled_from([None, 90, 91, 400]),
)
@settings(max_examples=16, suppress_health_check=[HealthCheck.function_scoped_fixture])
@torch.no_grad()
def test_any_chunking_is_one_pass(
    build: Build, backend: str, cuts: list[int], batch: int, max_length: int | None
) -> None:
    module = make(build)
    x = torch.randn(batch, 90, H)
    whole = module(x)
    state = module.init_state(batch, max_length)
    bytes_at_start = state.nbytes
    outputs = []
    edges = [0, *sorted(cuts), 90]
    for start, stop in itertools.pairwise(edges):
        y, state = module.stream(x[:, start:stop], state)
        assert y.shape == (batch, stop - start, H)
        outputs.append(y)
    assert relative_rms(torch.cat(outputs, 1), whole) <= 1e-6
    assert state.nbytes == bytes_at_start


@every_module
@pytest.mark.parametrize("max_length", [None, 70])
@torch.no_grad()
def test_steps_are_one_pass(build: Build, backend: str, max_length: int | None) -> None:
    module = make(build)
    x = torch.randn(2, 70, H)
    state = module.init_state(2, max_length)
    outputs = []
    for t in range(70):
        y, state = module.step(x[:, t], state)
        outputs.append(y)
    assert relative_rms(torch.stack(outputs, 1), module(x)) <= 1e-6


@every_module
def test_gradients_of_chunks_are_those_of_one_pass(build: Build, backend: str) -> None:
    module = make(build)
    x = torch.randn(2, 40, H, requires_grad=True)
    target = torch.randn(2, 40, H)

    def gradients(y: torch.Tensor) -> list[torch.Tensor]:
        return list(torch.autograd.grad((y * target).sum(), [x, *module.parameters()]))

    whole = gradients(module(x))
    first, state = module.stream(x[:, :13], module.init_state(2))
    second, _ = module.stream(x[:, 13:], state)
    names = ["x", *(name for name, _ in module.named_parameters())]
    for name, gradient, expected in zip(names, gradients(torch.cat([first, second], 1)), whole, strict=True):
        assert relative_rms(gradient, expected) <= 2e-5, name


@pytest.mark.parametrize(
    "build",
    [
        lambda: DelaySSM(2, 4, 8, dt_min=0.05, dt_max=0.5),
        lambda: DelaySSM(2, 4, 8, dt_min=0.05, dt_max=0.5, input="absorbed", bidirectional=True),
        lambda: DiagonalSSM(2, 4, dt_min=0.05, dt_max=0.5),
        lambda: DeltaMemory(2, heads=2, head_size=2),
        lambda: Block(DS4D(2, 4, 8, dt_min=0.05, dt_max=0.5)),
        lambda: Block(S4D(2, 4, dt_min=0.05, dt_max=0.5), norm="batch", prenorm=False),
    ],
    ids=["delay", "both directions", "diagonal", "delta", "block", "post-norm"],
)
def test_gradcheck_of_every_parameter(build: Build, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Finite differences divide rounding by their step: take a contour that amplifies it less.
    monkeypatch.setitem(CONTOURS, "exact", Contour(torch.float64, 1e-3, lambda length: 16 * length))
    module = make(build).double()
    names = [name for name, _ in module.named_parameters()]

    def function(x: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(module, dict(zip(names, values, strict=True)), (x,))

    x = torch.randn(2, 14, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(function, (x, *module.parameters()), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("build", [MODULES["DelaySSM"], MODULES["Stack"], BIDIRECTIONAL["Block"]])
def test_fused_gradients_equal_eager_ones(build: Build) -> None:
    x = torch.randn(2, 50, H)
    gradients = {}
    for name in ("eager", "numba"):
        with delayssm.backend(name):
            module = make(build).double()
            module(x.double()).square().sum().backward()
            gradients[name] = {n: p.grad for n, p in module.named_parameters()}
    for n, expected in gradients["eager"].items():
        assert relative_rms(gradients["numba"][n], expected) <= 1e-6, n


@pytest.mark.parametrize("build", BIDIRECTIONAL.values(), ids=BIDIRECTIONAL.keys())
def test_both_directions(build: Build) -> None:
    module = make(build)
    x = torch.randn(2, 40, H)
    y = module(x)
    later = x.clone()
    later[:, 30] += 1
    assert not torch.allclose(module(later)[:, :30], y[:, :30])
    for call in (
        lambda: module.init_state(2),
        lambda: module.step(x[:, 0], None),  # type: ignore[arg-type]
        lambda: module.stream(x, None),  # type: ignore[arg-type]
    ):
        with pytest.raises((RuntimeError, ValueError), match="bidirectional"):
            call()


def test_bidirectional_is_two_kernels() -> None:
    ssm = DelaySSM(2, 8, 20, bidirectional=True).double()
    x = torch.randn(1, 30, 2, dtype=torch.float64)
    K0, K1 = ssm.kernel(30).detach()
    truth = ssm.D * x
    for t in range(30):
        for s in range(30):
            truth[0, t] += (K0[:, t - s] if s <= t else K1[:, s - t - 1]) * x[0, s]
    assert relative_rms(ssm(x), truth) <= 1e-12


def test_dropout_is_tied_over_time() -> None:
    layer = DS4D(64, 4, 30, dropout=0.5).train()
    with torch.no_grad():
        layer.linear.weight.zero_()
        layer.linear.weight[:64] = torch.eye(64)
        layer.linear.bias.zero_()
        layer.ssm.C.zero_()
        layer.ssm.D.fill_(1)
    y = layer(torch.ones(1, 12, 64))[0]
    assert torch.allclose(y, y[:1].expand_as(y), atol=1e-6)
    dropped = (y[0].abs() < 1e-6).float().mean()
    assert 0.2 < float(dropped) < 0.8
    assert not torch.allclose(y, layer(torch.ones(1, 12, 64))[0])
