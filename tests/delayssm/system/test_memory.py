"""Rings and histories: which memory a stream has, what it costs, that both are exact, and that a bound is kept."""

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from delayssm import DS4D, S4D, Block, DelaySSM, DiagonalSSM, Stack
from delayssm.backends import eager, numba_cpu
from delayssm.layers import derived
from delayssm.system import reference
from delayssm.system.history import Response, _advance
from delayssm.system.memory import History, Rings, slots
from delayssm.system.state import State
from delayssm_lab.measure.dense import DenseStep
from tests.support.numerics import channels, relative_rms


@given(
    channels=st.integers(1, 40),
    chunks=st.lists(st.integers(0, 300) | st.sampled_from([63, 64, 65, 128, 512]), min_size=1, max_size=7),
    more=st.integers(0, 40),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pieces_of_a_convolution(backend: str, channels: int, chunks: list[int], more: int, seed: int) -> None:
    """Any chunks, rows of different age, any response: the pieces are those of the convolution as a whole."""
    run, generator = {"eager": eager, "numba": numba_cpu}[backend], torch.Generator().manual_seed(seed)
    length = sum(chunks)
    max_length = max(1, length + more)
    S, width = slots(max_length), -(-channels // 16) * 16
    kernel = torch.zeros(2 * S, width, dtype=torch.float64)
    kernel[:, :channels] = torch.randn(2 * S, channels, dtype=torch.float64, generator=generator)
    x = torch.randn(2, length, channels, dtype=torch.float64, generator=generator)
    response = (*run.respond(kernel[:S], S), run.respond_far(kernel, S))
    values, position, outputs = (
        torch.zeros(2, S, width, dtype=torch.float64),
        torch.zeros(2, dtype=torch.int64),
        [[], []],
    )
    for size in chunks:
        lengths = torch.tensor([size, max(0, size - 3)])
        chunk = torch.full((2, size, channels), torch.nan, dtype=torch.float64)
        for row in range(2):
            chunk[row, : lengths[row]] = x[row, position[row] : position[row] + lengths[row]]
        chunk = chunk.nan_to_num()
        memory = {"lengths": lengths, "position": position, "values": values}
        y = run.advance(x=chunk, **memory, response=response, max_length=max_length)
        for row in range(2):
            outputs[row].append(y[row, : lengths[row]])
            assert not y[row, lengths[row] :].any()
        position = position + lengths
    truth = eager.convolve(x, kernel[None, :length, :channels])
    for row in range(2):
        torch.testing.assert_close(torch.cat(outputs[row]), truth[row, : position[row]], rtol=1e-9, atol=1e-9)
    assert not values[..., channels:].any()


def test_operator_registrations() -> None:
    response = Response(*numba_cpu.respond(torch.randn(128, 16), 128), torch.empty(0))
    position = torch.tensor([3, 60])
    arguments = torch.randn(2, 5, 7), torch.tensor([5, 2]), position, torch.randn(2, 128, 16)
    torch.library.opcheck(_advance, (*arguments, response.near, response.levels, response.far, 200))


@pytest.mark.parametrize("ssm", [DelaySSM(3, 64, 200, delays=[8.25, 33.25, 70.75]), DiagonalSSM(3, 8)])
@torch.no_grad()
def test_a_history_is_the_recurrence_of_the_paper(backend: str, ssm: DiagonalSSM) -> None:
    x = torch.randn(1, 400, 3)
    state, parts = ssm.init_state(1, 400), []
    for chunk in x.split([1, 40, 6, 3, 70, 130, 150], 1):
        y, state = ssm.stream(chunk, state)
        parts.append(y)
    for h, channel in enumerate(channels(ssm)):
        signal = x[0, :, h].double().numpy()
        truth = reference.simulate(channel, signal, 200) + ssm.D[h].item() * signal
        assert relative_rms(torch.cat(parts, 1)[0, :, h], truth) <= 5e-7


def test_the_memory_is_chosen() -> None:
    ssm = DelaySSM(20, 64, 9000, delays=400.5)
    rings, history = ssm.init_state(2), ssm.init_state(2, 8192)
    assert isinstance(rings.memory, Rings)
    assert rings.nbytes == 2 * (20 * 64 * 8 + 20 * 400 * 64 * 4 + 8)
    assert "rings of 400 to 400 slots, 2,048,000 bytes a stream" in rings.describe()
    assert isinstance(history.memory, History)
    assert history.nbytes == 2 * (4096 * 32 * 4 + 8)
    assert "a history of 4,096 tokens, 524,288 bytes a stream" in history.describe()
    assert "streams: 2 of at most 8,192 tokens" in history.describe()
    assert [slots(n) for n in (1, 64, 128, 129, 256, 257, 1024)] == [64, 64, 64, 128, 128, 256, 512]
    long = ssm.init_state(1, 10**9)  # a bound that is not worth a history
    assert isinstance(long.memory, Rings)
    assert long.max_length == 10**9
    assert S4D(4, 8).init_state(1).describe().endswith("the last state, 256 bytes a stream")


@pytest.mark.parametrize("T", [1024, 2048, 4096, 8192, 65536])
@torch.no_grad()
def test_less_than_a_cache_of_keys_and_values(T: int) -> None:
    """With H = 256, a stream takes at most a quarter of it; a long one also less with what all streams share."""
    layer = DS4D(256, 64, 1024)
    state = layer.init_state(1, max_length=T)
    keys_and_values = 2 * T * 256 * 4
    assert state.nbytes <= keys_and_values / 4 + 8
    if T == 8192:
        shared = layer.ssm.response_for(state).nbytes
        assert state.nbytes + shared <= 0.8 * keys_and_values


@pytest.mark.parametrize("batch_size", [1, 2])
@torch.no_grad()
def test_a_large_far_part_is_kept_for_several_streams_alone(batch_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived, "_SMALL_RESPONSE", 0)
    stack = Stack([Block(DS4D(4, 8, 100))]).eval()
    x = torch.randn(batch_size, 200, 4)
    for prompt in (100, 150):
        y, state = stack.stream(x[:, :prompt], stack.init_state(batch_size, 200))
        decoder = stack.decoder(state)
        outputs = [y, *(decoder(x[:, t]).clone()[:, None] for t in range(prompt, 200))]
        assert relative_rms(torch.cat(outputs, 1), stack(x)) <= 1e-6
        response = stack.blocks[0].layer.ssm.response_for(decoder.state.parts[0])
        assert bool(response.far.numel()) == (batch_size == 2)


@torch.no_grad()
def test_a_history_belongs_to_the_values_of_the_parameters(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived, "_SMALL_RESPONSE", 0)
    stack = Stack([Block(DS4D(4, 8, 30))]).eval()
    x = torch.randn(1, 20, 4)
    _, state = stack.stream(x, stack.init_state(1, 200))
    decoder = stack.decoder(state.clone())
    C = stack.blocks[0].layer.ssm.C
    saved = C.clone()
    C.mul_(1.01)
    for call in (
        lambda: stack.stream(x, state),
        lambda: stack.step(x[:, 0], state),
        lambda: stack.decoder(state)(x[:, 0]),
        lambda: stack.init_state(1, 200).put([0], state),
    ):
        with pytest.raises(ValueError, match="values of the parameters"):
            call()
    if backend == "numba":  # the decoder goes on with what it was made for, and says so when that is not there any more
        outputs = [decoder(x[:, 0]).clone() for _ in range(107)]
        with pytest.raises(ValueError, match="a parameter has changed"):
            decoder(x[:, 0])
        C.copy_(saved)
        expected = [stack.step(x[:, 0], state)]
        for _ in range(106):
            expected.append(stack.step(x[:, 0], expected[-1][1]))
        assert relative_rms(torch.stack(outputs), torch.stack([y for y, _ in expected])) <= 1e-6
        assert bool(decoder(x[:, 0]).isfinite().all())
    C.copy_(saved)
    stack.load_state_dict({name: t.clone() for name, t in stack.state_dict().items()}, assign=True)
    stack.stream(x, state.clone() if backend == "eager" else stack.init_state(1, 200))  # equal values are no change


@pytest.mark.slow
@pytest.mark.parametrize("max_length", [None, 2048], ids=["rings", "history"])
@torch.no_grad()
def test_four_blocks_token_by_token(max_length: int | None) -> None:
    """A prompt, steps, a chunk and steps again equal the FFT pass, at the size of the benchmarks."""
    stack = Stack(Block(DS4D(256, 64, 2048)) for _ in range(4)).eval()
    x = torch.randn(1, 2048, 256)
    state = stack.init_state(1, max_length)
    y, state = stack.stream(x[:, :1001], state)
    outputs = [y]
    for t in range(1001, 1300):
        y, state = stack.step(x[:, t], state)
        outputs.append(y[:, None])
    y, state = stack.stream(x[:, 1300:1777], state)
    outputs.append(y)
    decoder = stack.decoder(state)
    outputs += [decoder(x[:, t]).clone()[:, None] for t in range(1777, 2048)]
    assert relative_rms(torch.cat(outputs, 1), stack(x)) <= 1e-6


@torch.no_grad()
def test_the_dense_buffer_of_the_benchmark_is_the_same_model() -> None:
    """The baseline of the speed measurements computes the same outputs."""
    stack = Stack(Block(DS4D(4, 8, 30)) for _ in range(2)).eval()
    x = torch.randn(2, 70, 4)
    dense = DenseStep(stack, 2, 40)
    outputs = torch.stack([dense(x[:, t]) for t in range(70)], 1)
    assert relative_rms(outputs, stack(x)) <= 1e-5  # it computes in float32


@pytest.mark.parametrize(
    "advance",
    [
        lambda stack, state: stack.stream(torch.ones(2, 3, 4), state)[0],
        lambda stack, state: stack.stream(torch.ones(2, 3, 4), state, lengths=[0, 3])[0],
        lambda stack, state: [stack.step(torch.ones(2, 4), state) for _ in range(1)],
        lambda stack, state: stack.decoder(state)(torch.ones(2, 4)),
    ],
    ids=["chunk", "one row", "step", "decoder"],
)
@torch.no_grad()
def test_a_bound_is_kept_and_nothing_is_lost(backend: str, advance: Callable[[Stack, State], object]) -> None:
    stack = Stack([Block(DS4D(4, 32, 60)), Block(S4D(4, 8))])
    x = torch.randn(2, 10, 4)
    _, state = stack.stream(x, stack.init_state(2, max_length=10))
    before = state.clone()
    with pytest.raises(ValueError, match=r"would reach 1\d tokens, but this state was made for at most 10"):
        advance(stack, state)
    for name, t in before.tensors().items():
        assert torch.equal(t, state.tensors()[name])
    state.reset([0, 1])
    y, _ = stack.stream(x, state)
    assert relative_rms(y, stack(x)) <= 1e-6


def test_a_bounded_state_has_no_gradients() -> None:
    ssm = DelaySSM(4, 8, 30)
    with pytest.raises(RuntimeError, match=r"max_length has no gradients; wrap the call in torch.no_grad\(\)"):
        ssm.stream(torch.randn(1, 3, 4), ssm.init_state(1, max_length=10))


@torch.no_grad()
def test_a_million_tokens() -> None:
    """Outputs stay finite, memory stays constant, and the end equals a float64 scan over the relevant past."""
    ssm = DelaySSM(4, 8, 300, dt_min=1e-2, dt_max=1e-1)
    generator = torch.Generator().manual_seed(1)
    state, size, last = ssm.init_state(1), None, []
    chunk, relevant = 50_000, 100_000
    for i in range(1_000_000 // chunk):
        x = torch.randn(1, chunk, 4, generator=generator)
        last = [*last[-(relevant // chunk - 1) :], x]
        if i + 1 == 1_000_000 // chunk:
            x = x[:, :-500]  # the end token by token
        y, state = ssm.stream(x, state)
        assert bool(y.isfinite().all())
        assert size in (None, state.nbytes)
        size = state.nbytes
    steps = []
    for t in range(500):
        y, state = ssm.step(last[-1][:, chunk - 500 + t], state)
        steps.append(y)
    assert state.position.item() == 1_000_000
    assert state.nbytes == size
    double = DelaySSM(4, 8, 300).double()
    double.load_state_dict(ssm.state_dict())
    truth, _ = double.stream(torch.cat(last, 1).double(), double.init_state(1))
    assert relative_rms(torch.stack(steps, 1), truth[:, -500:]) <= 1e-5
