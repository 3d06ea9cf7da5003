"""One contract for every module: one pass = chunks = steps; padding changes nothing; state is safe."""

import copy
import itertools
import pickle
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from delayssm import DS4D, S4D, Block, DelaySSM, DiagonalSSM, Stack
from delayssm.layers.streaming import Streaming
from delayssm.system.kernel import Contour
from tests.support.numerics import relative_rms

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


@pytest.mark.parametrize("build", [*MODULES.values(), *BIDIRECTIONAL.values()])
@pytest.mark.parametrize("training", [False, True])
def test_padding_changes_nothing(build: Callable[[], Streaming], training: bool) -> None:
    module = make(build)
    for part in module.modules():
        if hasattr(part, "dropout"):
            part.dropout = 0.0
    module.train(training)
    lengths = [20, 7, 0, 13]
    x = torch.randn(4, 20, H)
    padded = x.clone()
    for row, length in enumerate(lengths):
        padded[row, length:] = float("nan")
    found = module(padded, lengths=lengths)
    zeros = module(torch.where(padded.isnan(), 0, padded), lengths=torch.tensor(lengths))
    assert torch.equal(found, zeros)
    for row, length in enumerate(lengths):
        assert not found[row, length:].any()
        if not training and length:
            alone = module(x[row : row + 1, :length])
            assert relative_rms(found[row, :length], alone[0]) <= 1e-6
    found.square().sum().backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in module.parameters())


def test_batch_norm_counts_valid_tokens_only() -> None:
    block = Block(S4D(H, 8), norm="batch").train()
    x = torch.randn(2, 10, H)
    block(torch.cat([x, torch.full((2, 5, H), 1e6)], 1), lengths=[10, 10])
    assert torch.allclose(block.norm.running_mean, 0.1 * x.mean((0, 1)), atol=1e-6)


@every_module
@torch.no_grad()
def test_finished_rows_freeze(build: Callable[[], Streaming], backend: str) -> None:
    module = make(build)
    x = torch.randn(3, 60, H)
    whole = module(x)
    state = module.init_state(3, max_length=60)
    position = [0, 0, 0]
    parts: list[list[torch.Tensor]] = [[], [], []]
    for lengths in ([17, 4, 0], [3, 20, 9], [0, 0, 11], [25, 1, 30]):
        chunk = torch.full((3, 30, H), float("nan"))
        for row, n in enumerate(lengths):
            chunk[row, :n] = x[row, position[row] : position[row] + n]
        y, state = module.stream(chunk, state, lengths=lengths)
        for row, n in enumerate(lengths):
            parts[row].append(y[row, :n])
            assert not y[row, n:].any()
            position[row] += n
    for row in range(3):
        assert relative_rms(torch.cat(parts[row]), whole[row, : position[row]]) <= 1e-6


@pytest.mark.parametrize("build", BIDIRECTIONAL.values(), ids=BIDIRECTIONAL.keys())
def test_both_directions(build: Callable[[], Streaming]) -> None:
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


def test_cached_constants_follow_every_change() -> None:
    ssm = DelaySSM(H, 8, 30)
    x = torch.randn(1, 5, H)

    def agrees() -> None:
        with torch.no_grad():
            state, outputs = ssm.init_state(1), []
            for t in range(5):
                y, state = ssm.step(x[:, t].to(ssm.D.dtype), state)
                outputs.append(y)
            assert relative_rms(torch.stack(outputs, 1), ssm(x.to(ssm.D.dtype))) <= 1e-6

    agrees()
    before = ssm._constants()
    assert ssm._constants() is before  # it is a cache
    optimiser = torch.optim.SGD(ssm.parameters(), lr=0.1)
    ssm(x).square().sum().backward()
    optimiser.step()
    assert ssm._constants() is not before
    agrees()
    other = DelaySSM(H, 8, 30)
    ssm.load_state_dict(other.state_dict())
    agrees()
    ssm.load_state_dict(DelaySSM(H, 8, 30).state_dict(), assign=True)
    agrees()
    ssm.C.data.mul_(3)
    agrees()
    ssm.to(torch.float64)
    agrees()
    ssm = copy.deepcopy(ssm)
    with torch.no_grad():
        ssm.r.add_(1)
    agrees()


def test_constants_follow_changes_within_a_stream() -> None:
    ssm = DelaySSM(H, 8, 30)
    x = torch.randn(1, H)
    with torch.no_grad():
        state = ssm.init_state(1)
        y, state = ssm.step(x, state)
        ssm.C.zero_()
        y, state = ssm.step(x, state)
        assert torch.allclose(y, ssm.D * x)


@torch.no_grad()
def test_state_is_a_plain_object() -> None:
    stack = make(MODULES["Stack"])
    x = torch.randn(3, 40, H)
    _, state = stack.stream(x[:, :25], stack.init_state(3))
    branch, chosen = state.clone(), state.select([2, 0])
    moved, loose = state.clone().to("cpu"), state.clone().detach()
    assert branch.nbytes == state.nbytes == moved.nbytes
    assert chosen.nbytes * 3 == state.nbytes * 2
    assert (chosen.batch_size, state.batch_size) == (2, 3)
    whole = stack(x)[:, 25:]
    for memory in (state, branch, moved, loose):
        y, _ = stack.stream(x[:, 25:], memory)
        assert relative_rms(y, whole) <= 1e-6
    y, _ = stack.stream(x[[2, 0], 25:], chosen)
    assert relative_rms(y, whole[[2, 0]]) <= 1e-6


def test_rings_are_as_long_as_their_delays() -> None:
    ssm = DelaySSM(3, 8, 1000, delays=[1.0, 10.5, 400.5])
    state = ssm.init_state(2)
    slots = 1 + 10 + 400
    assert state.feedback.shape == (2, slots, 2, 4)
    assert state.nbytes == 2 * (slots * 4 * 2 * 4 + 3 * 4 * 2 * 8 + 8)
    assert DiagonalSSM(3, 8).init_state(2).feedback.numel() == 0


def test_truncated_backpropagation() -> None:
    ssm = DelaySSM(H, 8, 30)
    ssm.nu_tau.requires_grad_(False)
    optimiser = torch.optim.SGD([p for p in ssm.parameters() if p.requires_grad], lr=1e-3)
    state = ssm.init_state(2)
    for _ in range(3):
        y, state = ssm.stream(torch.randn(2, 10, H), state.detach())
        y.square().mean().backward()
        optimiser.step()
    assert state.position.tolist() == [30, 30]


def test_a_spent_state_is_refused() -> None:
    ssm = DelaySSM(H, 8, 30)
    x = torch.randn(1, 3, H)
    with torch.no_grad():
        first = ssm.init_state(1)
        kept = first.clone()
        _, second = ssm.stream(x, first)
        memory = second.feedback.clone()
        for use in (lambda: ssm.stream(x, first), first.clone):
            with pytest.raises(RuntimeError, match=r"spent.*clone\(\)"):
                use()
        assert torch.equal(second.feedback, memory)  # the attempt did no harm
        alias = second.detach()
        ssm.stream(x, second)
        with pytest.raises(RuntimeError, match="spent"):
            ssm.stream(x, alias)
        ssm.stream(x, kept)
    state = ssm.init_state(1)
    ssm.stream(x, state)  # with gradients nothing is overwritten
    ssm.stream(x, state)


def test_leaving_a_graph_does_no_harm_to_it() -> None:
    ssm = DelaySSM(H, 8, 30)
    x = torch.randn(1, 20, H, requires_grad=True)
    y, state = ssm.stream(x[:, :10], ssm.init_state(1))
    with torch.no_grad():
        later, _ = ssm.stream(x[:, 10:], state)
        assert not later.requires_grad
        assert relative_rms(later, ssm(x)[:, 10:]) <= 1e-6
    again, _ = ssm.stream(x[:, 10:], state)
    (y.sum() + again.sum()).backward()
    assert x.grad is not None


def test_inference_mode() -> None:
    ssm = DelaySSM(H, 8, 30)
    x = torch.randn(1, 20, H)
    with torch.inference_mode():
        y, state = ssm.stream(x[:, :19], ssm.init_state(1))
        last, _ = ssm.step(x[:, 19], state)
    assert relative_rms(torch.cat([y, last[:, None]], 1), ssm(x)) <= 1e-6


def test_modules_can_be_pickled() -> None:
    ssm = DelaySSM(H, 8, 30)
    x = torch.randn(1, 20, H)
    ssm.init_state(1)
    copied = pickle.loads(pickle.dumps(ssm))
    assert torch.equal(copied(x), ssm(x))


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


def test_a_copy_is_another_module() -> None:
    ssm = DelaySSM(H, 8, 30)
    state = ssm.init_state(1)
    x = torch.randn(1, 3, H)
    with pytest.raises(ValueError, match="another module"):
        copy.deepcopy(ssm).stream(x, state)
    ssm.stream(x, state)
