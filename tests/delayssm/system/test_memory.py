"""Rings and cascades: which memory a stream has, what it costs, that both are exact, and that a bound is kept."""

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from delayssm import DS4D, S4D, Block, DelaySSM, Stack
from delayssm.backends import BLOCK, SLOT_COUNT, eager, numba_cpu
from delayssm.system import reference
from delayssm.system.layout import Layout
from delayssm.system.state import State
from delayssm_lab.measure.dense import DenseStep
from tests.support.numerics import channels, relative_rms


def _forced(k: torch.Tensor, modes: int, dtype: torch.dtype, max_length: int) -> Layout:
    """Return a layout with a cascade for every channel that can have one, whether it is smaller or not."""
    layout = Layout.of(k, modes, dtype, max_length)
    chosen = (k >= BLOCK) & (k < max_length)
    counts = [
        torch.where(chosen, BLOCK, layout.table[:, SLOT_COUNT]),
        torch.where(chosen, (max_length - 1) // k.clamp(min=1), 0),
        torch.where(chosen, max_length - k, 0),
    ]
    columns = [column for count in counts for column in (count.cumsum(0) - count, count)]
    return Layout(k, torch.stack(columns, 1).contiguous(), modes, dtype, max_length)


@given(
    k=st.lists(st.integers(0, 70), min_size=1, max_size=6),
    chunks=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    modes=st.integers(1, 3),
    data=st.data(),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_cascade_is_a_ring(backend: str, k: list[int], chunks: list[int], modes: int, data: st.DataObject) -> None:
    """Both memories give the same outputs in float64, for any delays and chunks and rows of different age."""
    H, length = len(k), sum(chunks)
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    system = {
        name: scale * torch.randn(H, modes, 2, dtype=torch.float64, generator=generator).tanh()
        for name, scale in {"lam": 0.4, "mu": 0.3, "b": 1, "c": 1}.items()
    }
    system["k"] = torch.tensor(k)
    system["alpha"] = torch.rand(H, dtype=torch.float64, generator=generator)
    x = torch.randn(2, length, H, dtype=torch.float64, generator=generator)
    max_length = max(1, length + data.draw(st.integers(0, 20)))
    run = {"eager": eager, "numba": numba_cpu}[backend].scan
    results = []
    for layout in (
        Layout.of(system["k"], modes, torch.float64, None),
        _forced(system["k"], modes, torch.float64, max_length),
    ):
        state = State.zeros(None, 2, layout)  # type: ignore[arg-type]
        memory = {name: t for name, t in state.tensors().items() if name != "position"}
        outputs = [[], []]
        done = torch.zeros(2, dtype=torch.int64)
        for size in chunks:
            lengths = torch.tensor([size, max(0, size - 3)])
            chunk = torch.zeros(2, size, H, dtype=torch.float64)
            for row in range(2):
                chunk[row, : lengths[row]] = x[row, done[row] : done[row] + lengths[row]]
            y = run(**system, x=chunk, lengths=lengths, position=done, layout=layout.table, **memory)
            for row in range(2):
                outputs[row].append(y[row, : lengths[row]])
            done = done + lengths
        results.append([torch.cat(rows) for rows in outputs])
    for ring, cascade in zip(*results, strict=True):
        assert torch.allclose(ring, cascade, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("delay", [8.25, 9.5, 33.25, 70.75])
@torch.no_grad()
def test_a_cascade_is_the_recurrence_of_the_paper(backend: str, delay: float) -> None:
    ssm = DelaySSM(1, 64, 200, delays=delay, branch_fraction=0.3)
    ssm_layout = _forced(torch.tensor([int(delay)]), 32, torch.float32, 150)
    x = torch.randn(1, 150, 1)
    state = State.zeros(ssm._identity, 1, ssm_layout)
    parts = []
    for chunk in x.split([1, 40, 6, 3, 70, 30], 1):
        y, state = ssm.stream(chunk, state)
        parts.append(y)
    signal = x[0, :, 0].double().numpy()
    truth = reference.simulate(channels(ssm)[0], signal, 200) + ssm.D.item() * signal
    assert relative_rms(torch.cat(parts, 1)[0, :, 0], truth) <= 2e-7


def test_the_smaller_memory_is_chosen() -> None:
    ssm = DelaySSM(5, 64, 9000, delays=[2.5, 150.5, 400.5, 8000.5, 8500.5])
    T = 8192
    state = ssm.init_state(1, T)
    ring = lambda k: k * 64 * 4  # noqa: E731
    cascade = lambda k: BLOCK * 64 * 4 + (T - k) * 4 + (T - 1) // k * 64 * 8  # noqa: E731
    assert [ring(k) < cascade(k) for k in (2, 150, 400, 8000)] == [True, True, False, False]
    expected = ring(2) + ring(150) + cascade(400) + cascade(8000)  # and nothing for a delay beyond the end
    assert state.nbytes == expected + 5 * 64 * 8 + 8
    assert ssm.init_state(3, T).nbytes == 3 * state.nbytes
    text = state.describe()
    assert "ring: 2 channels, delay 2 to 150" in text
    assert "cascade: 2 channels, delay 400 to 8,000" in text
    assert "none: 1 channel, delay 8,500" in text
    assert "not heard within the stream" in text
    endless = ssm.init_state(1)
    assert endless.nbytes == sum(ring(k) for k in (2, 150, 400, 8000, 8500)) + 5 * 64 * 8 + 8
    assert "ring: 5 channels" in endless.describe()
    assert "none: 4 channels" in S4D(4, 8).init_state(1).describe()


@pytest.mark.parametrize("T", [1024, 2048, 4096, 8192, 65536])
def test_less_than_a_cache_of_keys_and_values(T: int) -> None:
    """With H = 256, N = 64 and the default grid of delays, a layer takes at most 10 MB for 8192 tokens."""
    state = DS4D(256, 64, T).init_state(1, max_length=T)
    keys_and_values = 2 * T * 256 * 4
    assert state.nbytes < keys_and_values
    if T == 8192:
        assert state.nbytes <= 10e6
    dense = T * 256 * 64 * 4
    assert state.nbytes * (40 if T >= 4096 else 9) < dense


@pytest.mark.slow
@pytest.mark.parametrize("max_length", [None, 2048], ids=["rings", "smaller of both"])
@torch.no_grad()
def test_four_blocks_token_by_token(max_length: int | None) -> None:
    """A prompt, steps, a chunk and steps again equal the FFT pass, at the size of the benchmarks."""
    stack = Stack(Block(DS4D(256, 64, 2048)) for _ in range(4)).eval()
    x = torch.randn(1, 2048, 256)
    state = stack.init_state(1, max_length)
    assert (state.parts[0].copies.numel() > 0) == (max_length is not None)
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
