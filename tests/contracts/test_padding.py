"""Padding changes nothing, whatever it holds: on the right, on the left, in one pass and in streams."""

import copy

import pytest
import torch
from torch import Tensor

from delayssm import DS4D, S4D, Block, DiagonalSSM, Spans
from delayssm.layers.checks import check_lengths
from delayssm.system.state import State
from tests.contracts.modules import MODULES, Build, H, every_module, every_module_and_direction, make, without_dropout
from tests.support.numerics import relative_rms


@every_module_and_direction
@pytest.mark.parametrize("training", [False, True])
def test_padding_changes_nothing(build: Build, training: bool) -> None:
    module = without_dropout(make(build)).train(training)
    lengths = [20, 7, 0, 13]
    x = torch.randn(4, 20, H)
    padded = x.clone()
    for row, length in enumerate(lengths):
        padded[row, length:] = float("nan")
    y = module(padded, lengths=lengths)
    zeros = module(torch.where(padded.isnan(), 0, padded), lengths=torch.tensor(lengths))
    assert torch.equal(y, zeros)
    for row, length in enumerate(lengths):
        assert not y[row, length:].any()
        if not training and length:
            alone = module(x[row : row + 1, :length])
            assert relative_rms(y[row, :length], alone[0]) <= 1e-6
    y.square().sum().backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in module.parameters())


@every_module_and_direction
@pytest.mark.parametrize("training", [False, True])
def test_left_padding_shifts_the_outputs(build: Build, training: bool) -> None:
    """Rows padded on the left or on both sides equal the same rows padded on the right, moved."""
    module = without_dropout(make(build)).train(training)
    reference = copy.deepcopy(module)
    start, lengths = [0, 5, 20, 7, 3], [20, 15, 0, 13, 10]
    x = torch.randn(5, 20, H)
    left = torch.full_like(x, float("nan"), requires_grad=True)
    with torch.no_grad():
        for row, (first, length) in enumerate(zip(start, lengths, strict=True)):
            left[row, first : first + length] = x[row, :length]
    spans = Spans(torch.tensor(start) + torch.tensor(lengths), torch.tensor(start))
    y, expected = module(left, spans), reference(x, lengths)
    for row, (first, length) in enumerate(zip(start, lengths, strict=True)):
        valid = slice(first, first + length)
        assert not y[row, :first].any()
        assert not y[row, first + length :].any()
        if length:
            assert relative_rms(y[row, valid], expected[row, :length]) <= 1e-6
        if length and not training:
            assert relative_rms(y[row, valid], module(x[row : row + 1, :length])[0]) <= 1e-6
    at = torch.tensor([[0, 19], [4, 5], [0, 19], [19, 7], [12, 13]])
    torch.testing.assert_close(copy.deepcopy(reference)(left, spans, at), _at(module(left, spans), at))
    y.square().sum().backward()
    expected.square().sum().backward()
    assert not left.grad[left.isnan()].any()
    for (name, p), q in zip(module.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-5, msg=name)


def _at(y: Tensor, at: Tensor) -> Tensor:
    return y[torch.arange(len(y))[:, None], at]


def test_batch_norm_counts_valid_tokens_only() -> None:
    block = Block(S4D(H, 8), norm="batch").train()
    x = torch.randn(2, 10, H)
    block(torch.cat([x, torch.full((2, 5, H), 1e6)], 1), lengths=[10, 10])
    assert torch.allclose(block.norm.running_mean, 0.1 * x.mean((0, 1)), atol=1e-6)


@every_module
@pytest.mark.parametrize("side", ["right", "left", "both"])
@torch.no_grad()
def test_finished_rows_freeze(build: Build, backend: str, side: str) -> None:
    """Chunks of one stream, padded on any side, are the valid tokens one after another."""
    module = make(build)
    x = torch.randn(3, 60, H)
    whole = module(x)
    state = module.init_state(3, max_length=60)
    position = [0, 0, 0]
    outputs: list[list[Tensor]] = [[], [], []]
    for lengths in ([17, 4, 0], [3, 20, 9], [0, 0, 11], [25, 1, 30]):
        start = {"right": [0, 0, 0], "left": [30 - n for n in lengths], "both": [(30 - n) // 2 for n in lengths]}[side]
        chunk = torch.full((3, 30, H), float("nan"))
        for row, (first, n) in enumerate(zip(start, lengths, strict=True)):
            chunk[row, first : first + n] = x[row, position[row] : position[row] + n]
        spans = Spans(torch.tensor(start) + torch.tensor(lengths), torch.tensor(start))
        y, state = module.stream(chunk, state, lengths=lengths if side == "right" else spans)
        for row, (first, n) in enumerate(zip(start, lengths, strict=True)):
            outputs[row].append(y[row, first : first + n])
            assert not y[row, :first].any()
            assert not y[row, first + n :].any()
            position[row] += n
    assert state.position.tolist() == position
    for row in range(3):
        assert relative_rms(torch.cat(outputs[row]), whole[row, : position[row]]) <= 1e-6


@pytest.mark.parametrize("name", ["DelaySSM", "DiagonalSSM", "Stack"])
def test_gradients_of_left_padded_chunks(name: str, backend: str) -> None:
    module = make(MODULES[name])
    x = torch.randn(1, 20, H, requires_grad=True)
    y, state = module.stream(x[:, :8], module.init_state(1))
    padded = torch.cat([torch.full((1, 5, H), float("nan")), x[:, 8:]], 1)
    z, _ = module.stream(padded, state, Spans(torch.tensor([17]), torch.tensor([5])))
    weights = torch.randn(1, 20, H)
    inputs = [x, *module.parameters()]
    chunks = torch.autograd.grad((torch.cat([y, z[:, 5:]], 1) * weights).sum(), inputs)
    whole = torch.autograd.grad((module(x) * weights).sum(), inputs)
    for gradient, expected in zip(chunks, whole, strict=True):
        assert relative_rms(gradient, expected) <= 2e-5


def test_lengths_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outermost module turns lengths into spans; every module inside is given the same object."""
    stack = make(MODULES["Stack"])
    x = torch.randn(2, 5, H)
    given: list[object] = []
    forward, stream = DiagonalSSM.forward, DiagonalSSM.stream

    def record_forward(self: DiagonalSSM, x: Tensor, lengths: object = None, at: object = None) -> Tensor:
        given.append(lengths)
        return forward(self, x, lengths, at)

    def record_stream(self: DiagonalSSM, x: Tensor, state: State, lengths: object = None) -> tuple[Tensor, State]:
        given.append(lengths)
        return stream(self, x, state, lengths)

    monkeypatch.setattr(DiagonalSSM, "forward", record_forward)
    monkeypatch.setattr(DiagonalSSM, "stream", record_stream)
    spans = Spans(torch.tensor([5, 3]), torch.tensor([0, 1]))
    for lengths in ([5, 3], spans):
        for call in (lambda n: stack(x, n), lambda n: stack.stream(x, stack.init_state(2), n)):
            given.clear()
            call(lengths)
            assert len(given) == len(stack.blocks) == 3
            assert isinstance(given[0], Spans)
            assert given[0].stop.tolist() == [5, 3]
            assert all(other is given[0] for other in given)
    checked = check_lengths(spans, x)
    assert check_lengths(checked, x) is checked
    with pytest.raises(ValueError, match="between 0 and 4"):  # it is known to fit another batch only
        check_lengths(checked, x[:, :4])


def test_lengths_may_be_part_of_another_tensor(backend: str) -> None:
    layer, x = DS4D(H, 8, 30), torch.randn(2, 5, H)
    table = torch.tensor([[2, 1], [5, 1]])
    y, _ = layer.stream(x, layer.init_state(2), lengths=table[:, 0])
    expected, _ = layer.stream(x, layer.init_state(2), lengths=[2, 5])
    assert torch.equal(y, expected)
    checked = check_lengths(table[:, 0], x)
    assert checked is not None
    assert checked.stop.is_contiguous()  # which Triton relies on
