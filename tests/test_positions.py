"""Outputs at some positions: those of the whole sequence, gradients included."""

from collections.abc import Callable

import pytest
import torch

from delayssm.layers.streaming import Streaming
from tests.test_modules import BIDIRECTIONAL, MODULES, H, make


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


@pytest.mark.parametrize("build", [*MODULES.values(), *BIDIRECTIONAL.values()])
@pytest.mark.parametrize("training", [False, True])
def test_outputs_at_some_positions_are_those_of_the_whole(build: Callable[[], Streaming], training: bool) -> None:
    module = make(build).train(training)
    x = torch.randn(3, 20, H)
    lengths = torch.tensor([20, 11, 5])
    at = torch.tensor([[19, 0, 7, 7], [10, 3, 11, 19], [4, 5, 0, 2]])  # twice the same, and some in the padding
    weights = torch.randn(3, 4, H)
    found = []
    for some in (True, False):
        torch.manual_seed(2)  # dropout
        module.zero_grad()
        inputs = x.clone().requires_grad_()
        y = module(inputs, lengths, at) if some else module(inputs, lengths)[torch.arange(3)[:, None], at]
        (y * weights).sum().backward()
        found.append([y, inputs.grad, *(p.grad for p in module.parameters())])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    assert found[0][0][1, 2:].eq(0).all()


def test_wrong_positions_are_refused() -> None:
    module, x = make(MODULES["Stack"]), torch.randn(2, 5, H)
    with pytest.raises(ValueError, match="a row for each of the 2 rows"):
        module(x, at=torch.zeros(3, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match="whole numbers"):
        module(x, at=torch.zeros(2, 1))
    with pytest.raises(ValueError, match="between 0 and 4, not -1 and 0"):
        module(x, at=torch.tensor([[0], [-1]]))
    with pytest.raises(ValueError, match="between 0 and 4, not 0 and 5"):
        module(x, at=torch.tensor([[0], [5]]))
