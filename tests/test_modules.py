"""One contract for every module: one pass = chunks = steps; padding changes nothing; state is safe."""

import itertools
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from delayssm import DS4D, S4D, Block, DelaySSM, DiagonalSSM, Stack
from delayssm.layers.streaming import Streaming
from delayssm.system.kernel import Contour
from tests.helpers import relative_rms

H = 6
MODULES: dict[str, Callable[[], Streaming]] = {
    "DelaySSM": lambda: DelaySSM(H, 8, 30),
    "DelaySSM, many modes": lambda: DelaySSM(H, 32, 60, delays=[7.0, 12.5, 22.25, 31.0, 44.5, 58.0]),
    "DelaySSM, short delays": lambda: DelaySSM(H, 8, 30, delays=[1.0, 1.5, 2.0, 2.5, 3.0, 4.25]),
    "DelaySSM, absorbed B": lambda: DelaySSM(H, 8, 30, init="inv", input="absorbed", branch_fraction=(0.05, 0.9)),
    "DiagonalSSM": lambda: DiagonalSSM(H, 8),
    "DS4D": lambda: DS4D(H, 8, 30, dropout=0.1),
    "S4D": lambda: S4D(H, 8, dropout=0.1),
    "Block, pre-norm": lambda: Block(DS4D(H, 8, 30)),
    "Block, post-norm, batch": lambda: Block(DS4D(H, 8, 30), norm="batch", prenorm=False),
    "Block, S4D, batch": lambda: Block(S4D(H, 8), norm="batch"),
    "Stack": lambda: Stack([Block(DS4D(H, 8, 30)), Block(S4D(H, 8)), Block(DS4D(H, 8, 12), prenorm=False)]),
}
BIDIRECTIONAL: dict[str, Callable[[], Streaming]] = {
    "DelaySSM": lambda: DelaySSM(H, 8, 30, bidirectional=True),
    "S4D": lambda: S4D(H, 8, bidirectional=True),
    "Block": lambda: Block(DS4D(H, 8, 30, bidirectional=True), norm="batch"),
}


def make(build: Callable[[], Streaming]) -> Streaming:
    torch.manual_seed(1)
    module = build().eval()
    with torch.no_grad():
        for name, buffer in module.named_buffers():  # running statistics that are not trivial
            if "running" in name:
                buffer.uniform_(0.5, 1.5)
    return module


every_module = pytest.mark.parametrize("build", MODULES.values(), ids=MODULES.keys())


@every_module
@given(
    cuts=st.lists(st.integers(0, 90), max_size=6),
    batch=st.integers(1, 3),
    max_length=st.sampled_from([None, 90, 91, 400]),
)
@settings(max_examples=16, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@torch.no_grad()
def test_any_chunking_is_one_pass(
    build: Callable[[], Streaming], backend: str, cuts: list[int], batch: int, max_length: int | None
) -> None:
    module = make(build)
    x = torch.randn(batch, 90, H)
    whole = module(x)
    state = module.init_state(batch, max_length)
    bytes_at_start = state.nbytes
    parts = []
    edges = [0, *sorted(cuts), 90]
    for start, stop in itertools.pairwise(edges):
        y, state = module.stream(x[:, start:stop], state)
        assert y.shape == (batch, stop - start, H)
        parts.append(y)
    assert relative_rms(torch.cat(parts, 1), whole) <= 1e-6
    assert state.nbytes == bytes_at_start


@every_module
@pytest.mark.parametrize("max_length", [None, 70])
@torch.no_grad()
def test_steps_are_one_pass(build: Callable[[], Streaming], backend: str, max_length: int | None) -> None:
    module = make(build)
    x = torch.randn(2, 70, H)
    state = module.init_state(2, max_length)
    outputs = []
    for t in range(70):
        y, state = module.step(x[:, t], state)
        outputs.append(y)
    assert relative_rms(torch.stack(outputs, 1), module(x)) <= 1e-6


@every_module
def test_gradients_of_chunks_are_those_of_one_pass(build: Callable[[], Streaming], backend: str) -> None:
    module = make(build)
    x = torch.randn(2, 40, H, requires_grad=True)
    target = torch.randn(2, 40, H)

    def gradients(y: torch.Tensor) -> list[torch.Tensor]:
        return list(torch.autograd.grad((y * target).sum(), [x, *module.parameters()]))

    whole = gradients(module(x))
    first, state = module.stream(x[:, :13], module.init_state(2))
    second, _ = module.stream(x[:, 13:], state)
    names = ["x", *(name for name, _ in module.named_parameters())]
    for name, found, expected in zip(names, gradients(torch.cat([first, second], 1)), whole, strict=True):
        assert relative_rms(found, expected) <= 2e-5, name


def _in_double(build: Callable[[], Streaming]) -> Streaming:
    module = make(build).double()
    for part in module.modules():
        if isinstance(part, DiagonalSSM):
            # Finite differences divide rounding by their step: take a contour that amplifies it less.
            part.contour = Contour(torch.float64, 1e-3, lambda length: 16 * length)
    return module


@pytest.mark.parametrize(
    "build",
    [
        lambda: DelaySSM(2, 4, 8, dt_min=0.05, dt_max=0.5),
        lambda: DelaySSM(2, 4, 8, dt_min=0.05, dt_max=0.5, input="absorbed", bidirectional=True),
        lambda: DiagonalSSM(2, 4, dt_min=0.05, dt_max=0.5),
        lambda: Block(DS4D(2, 4, 8, dt_min=0.05, dt_max=0.5)),
        lambda: Block(S4D(2, 4, dt_min=0.05, dt_max=0.5), norm="batch", prenorm=False),
    ],
    ids=["delay", "both directions", "diagonal", "block", "post-norm"],
)
def test_gradcheck_of_every_parameter(build: Callable[[], Streaming], backend: str) -> None:
    module = _in_double(build)
    names = [name for name, _ in module.named_parameters()]

    def function(x: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(module, dict(zip(names, values, strict=True)), (x,))

    x = torch.randn(2, 14, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(function, (x, *module.parameters()), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("build", [MODULES["DelaySSM"], MODULES["Stack"], BIDIRECTIONAL["Block"]])
def test_fused_gradients_equal_eager_ones(build: Callable[[], Streaming]) -> None:
    import delayssm

    x = torch.randn(2, 50, H)
    found = {}
    for name in ("eager", "numba"):
        delayssm.backend(name)
        module = make(build).double()
        module(x.double()).square().sum().backward()
        found[name] = {n: p.grad for n, p in module.named_parameters()}
    for n, expected in found["eager"].items():
        assert relative_rms(found["numba"][n], expected) <= 1e-6, n
