"""States are safe: they follow their module, branch, detach, and are refused once they are spent."""

import copy
import gc
import pickle
import weakref
from collections.abc import Callable

import pytest
import torch

from delayssm import DS4D, DelaySSM, DiagonalSSM
from delayssm.system.state import States
from tests.contracts.modules import MODULES, H, make
from tests.support.numerics import relative_rms


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
    before = ssm.constants()
    assert ssm.constants() is before  # it is a cache
    optimiser = torch.optim.SGD(ssm.parameters(), lr=0.1)
    ssm(x).square().sum().backward()
    optimiser.step()
    assert ssm.constants() is not before
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
    ssm.reset_parameters()
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
    assert state.memory.feedback.shape == (2, slots, 2, 4)
    assert state.nbytes == 2 * (slots * 4 * 2 * 4 + 3 * 4 * 2 * 8 + 8)
    assert DiagonalSSM(3, 8).init_state(2).memory.feedback.numel() == 0


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
        memory = second.memory.feedback.clone()
        for use in (lambda: ssm.stream(x, first), first.clone):
            with pytest.raises(RuntimeError, match=r"spent.*clone\(\)"):
                use()
        assert torch.equal(second.memory.feedback, memory)  # the attempt did no harm
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
    assert copied.config == ssm.config


def test_a_copy_is_another_module() -> None:
    ssm = DelaySSM(H, 8, 30)
    state = ssm.init_state(1)
    x = torch.randn(1, 3, H)
    with pytest.raises(ValueError, match="another module"):
        copy.deepcopy(ssm).stream(x, state)
    ssm.stream(x, state)


@torch.no_grad()
def test_a_state_crosses_inference_mode() -> None:
    ssm = DelaySSM(H, 8, 30)
    x = torch.randn(1, 20, H)
    for max_length in (None, 20):
        with torch.inference_mode():
            y, state = ssm.stream(x[:, :5], ssm.init_state(1, max_length))
            state = state.clone()
        outputs = [y]
        y, state = ssm.stream(x[:, 5:12], state)
        outputs.append(y)
        with torch.inference_mode():
            y, state = ssm.stream(x[:, 12:], state)
        assert relative_rms(torch.cat([*outputs, y], 1), ssm(x)) <= 1e-6


@pytest.mark.parametrize("max_length", [None, 40])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda state: pickle.loads(pickle.dumps(state))])
@torch.no_grad()
def test_states_can_be_copied(copied: Callable[[States], States], max_length: int | None) -> None:
    stack = make(MODULES["Stack"])
    x = torch.randn(2, 40, H)
    _, state = stack.stream(x[:, :25], stack.init_state(2, max_length))
    branch = copied(state)
    y, state = stack.stream(x[:, 25:], state)
    assert torch.equal(stack.stream(x[:, 25:], branch)[0], y)
    stack.init_state(2, max_length).put([0, 1], copied(stack.init_state(2, max_length)))
    pair = copied((stack, stack.init_state(2, max_length)))
    assert torch.equal(pair[0].stream(x, pair[1])[0], stack.stream(x, stack.init_state(2, max_length))[0])


@torch.no_grad()
def test_a_pickled_state_belongs_to_its_parameters() -> None:
    stack = make(MODULES["Stack"])
    content = pickle.dumps(stack.init_state(1))
    other = make(MODULES["Stack"])
    other.blocks[0].layer.ssm.C.add_(1)
    with pytest.raises(ValueError, match="belongs to another module"):
        other.stream(torch.randn(1, 3, H), pickle.loads(content))
    make(MODULES["Stack"]).stream(torch.randn(1, 3, H), pickle.loads(content))


def test_a_module_that_was_streamed_is_freed_at_once() -> None:
    layer = DS4D(4, 4, 20)
    with torch.no_grad():
        layer.stream(torch.randn(1, 5, 4), layer.init_state(1, max_length=20))
    freed = weakref.ref(layer.ssm)
    gc.disable()
    try:
        del layer
        assert freed() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("max_length", [None, 30])
@torch.no_grad()
def test_a_state_is_contiguous_whatever_made_it(backend: str, max_length: int | None) -> None:
    layer, x = DS4D(4, 4, 20), torch.randn(4, 20, 4)
    _, state = layer.stream(x[:, :10], layer.init_state(4, max_length))
    one, other = state.select([0, 2]), state.map(lambda t: t[::2])
    expected, one = layer.stream(x[::2, 10:15], one)
    y, other = layer.stream(x[::2, 10:15], other)
    assert torch.equal(y, expected)
    assert torch.equal(layer.step(x[::2, 15], other)[0], layer.step(x[::2, 15], one)[0])


def test_gradients_after_inference_mode(backend: str) -> None:
    ssm, x = DelaySSM(4, 4, max_delay=20, contour="float32"), torch.randn(1, 37, 4)
    with torch.inference_mode():
        ssm(x)
    (gradient,) = torch.autograd.grad(ssm(x).square().sum(), ssm.C, create_graph=True)
    gradient.sum().backward()
    assert ssm.C.grad is not None
