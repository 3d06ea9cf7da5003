"""Batches of streams: rows that come and go, files, and one compiled call per token."""

import copy
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from numba.core.runtime import _nrt_python, rtsys
from torch import nn

from delayssm import DS4D, S4D, Block, DelaySSM, PooledModel, SeriesModel, Stack, TokenModel, Tokens, Values
from delayssm.layers.decoding import CompiledDecoder
from delayssm.layers.streaming import Streaming
from delayssm.storage import tensors as tensor_file
from delayssm.system.state import FORMAT
from tests.support.numerics import relative_rms

H = 8
STACKS: dict[str, Callable[[], Stack]] = {
    "DS4D": lambda: Stack(Block(DS4D(H, 32, 80)) for _ in range(2)),
    "S4D": lambda: Stack(Block(S4D(H, 8)) for _ in range(2)),
    "of all kinds": lambda: Stack([
        Block(DS4D(H, 6, 50), norm="batch"),
        Block(S4D(H, 32), prenorm=False),
        Block(DS4D(H, 160, 70, input="absorbed"), norm="batch", prenorm=False),
        Block(DS4D(H, 32, 400)),
    ]),
}  # fmt: skip
every_stack = pytest.mark.parametrize("build", STACKS.values(), ids=STACKS.keys())


def _make(build: Callable[[], Stack]) -> Stack:
    torch.manual_seed(1)
    stack = build().eval()
    for name, buffer in stack.named_buffers():
        if "running" in name:
            buffer.uniform_(0.5, 1.5)
    return stack


@every_stack
@pytest.mark.parametrize("max_length", [None, 60])
@pytest.mark.parametrize("batch_size", [1, 3])
@torch.no_grad()
def test_the_compiled_call_is_the_modules(build: Callable[[], Stack], max_length: int | None, batch_size: int) -> None:
    stack = _make(build)
    x = torch.randn(batch_size, 60, H)
    whole = stack(x)
    _, state = stack.stream(x[:, :5], stack.init_state(batch_size, max_length))
    plain, decoder = state.clone(), stack.decoder(state)
    assert isinstance(decoder, CompiledDecoder)
    for t in range(5, 60):
        y, plain = stack.step(x[:, t], plain)
        assert relative_rms(decoder(x[:, t]), y) <= 5e-7
        assert relative_rms(y, whole[:, t]) <= 2e-6
    for name, t in plain.tensors().items():
        if t.numel():
            assert relative_rms(decoder.state.tensors()[name], t) <= 1e-6 or not t.any()


@torch.no_grad()
def test_the_compiled_call_allocates_nothing() -> None:
    model = TokenModel(20, _make(STACKS["DS4D"]))
    decoder = model.decoder(model.init_state(2, max_length=500))
    tokens = torch.tensor([3, 4])
    decoder(tokens)
    _nrt_python.memsys_enable_stats()
    before = rtsys.get_allocation_stats()
    for _ in range(100):
        decoder(tokens)
    assert rtsys.get_allocation_stats() == before
    _nrt_python.memsys_disable_stats()


@torch.no_grad()
def test_a_step_follows_every_change_of_the_parameters() -> None:
    stack = _make(STACKS["of all kinds"])
    x = torch.randn(2, H)
    changes: list[Callable[[], object]] = [
        lambda: stack.blocks[0].layer.ssm.C.mul_(2),
        lambda: stack.blocks[1].layer.linear.weight.add_(0.1),
        lambda: stack.blocks[2].norm.running_mean.add_(0.3),
        lambda: setattr(stack.blocks[3], "norm", nn.LayerNorm(H)),
        lambda: stack.load_state_dict(_make(STACKS["of all kinds"]).state_dict(), assign=True),
        lambda: setattr(stack.blocks[3].layer.linear, "bias", nn.Parameter(torch.randn(2 * H))),
        lambda: stack.blocks[0].norm.register_forward_hook(lambda module, inputs, y: y + 1),
    ]
    _, state = stack.step(x, stack.init_state(2))
    for change in changes:
        change()
        expected, _ = Streaming.step(stack, x, state.clone())
        y, state = stack.step(x, state)
        assert relative_rms(y, expected) <= 5e-7


@torch.no_grad()
def test_what_the_compiled_call_does_not_know_goes_through_the_modules(backend: str) -> None:
    class Louder(nn.LayerNorm):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    stack = _make(STACKS["DS4D"])
    stack.blocks[1].norm = Louder(H)
    x = torch.randn(2, 30, H)
    for module in (stack, stack.double()):
        signal_ = x.to(next(module.parameters()).dtype)
        state = module.init_state(2)
        decoder = module.decoder(module.init_state(2))
        for t in range(30):
            y, state = module.step(signal_[:, t], state)
            assert torch.equal(y, decoder(signal_[:, t]))
        assert relative_rms(y, module(signal_)[:, -1]) <= 1e-6


def test_wrong_input_to_the_compiled_call() -> None:
    stack = _make(STACKS["DS4D"])
    state = stack.init_state(2)
    x = torch.randn(2, H)
    for wrong, kind, message in (
        (x[0], ValueError, "one token per row"),
        (x[:, :3], ValueError, "width 3"),
        (x.double(), TypeError, "float64"),
        (x[:1], ValueError, "holds 2 streams, but x has 1 rows"),
    ):
        with pytest.raises(kind, match=message):
            stack.step(wrong, state)
        with pytest.raises(ValueError, match=r"this decoder takes torch\.float32 of shape \(2, 8\) on the CPU, not"):
            stack.decoder(state)(wrong)
    with pytest.raises(ValueError, match="another module"):
        copy.deepcopy(stack).step(x, state)
    stack = Stack([Block(DS4D(H, 32, 80, dropout=0.1)), Block(DS4D(H, 32, 80))]).eval()
    _, state = stack.step(x, stack.init_state(2))
    with pytest.raises(RuntimeError, match="dropout"):
        stack.train().step(x, state)


def test_a_decoder_and_other_calls_do_not_mix() -> None:
    stack = _make(STACKS["DS4D"])
    x = torch.randn(2, H)
    first = stack.init_state(2)
    decoder = stack.decoder(first)
    decoder(x)
    with pytest.raises(RuntimeError, match="spent"):
        stack.step(x, first)
    seen = decoder.state
    decoder(x)
    with pytest.raises(RuntimeError, match="spent"):
        seen.clone()
    stack.step(x, decoder.state)
    with pytest.raises(RuntimeError, match="make a new decoder"):
        decoder(x)


@every_stack
@pytest.mark.parametrize("max_length", [None, 60])
@torch.no_grad()
def test_rows_come_and_go(build: Callable[[], Stack], max_length: int | None) -> None:
    """Of three streams the second ends, a fourth takes its row after a prompt of its own, and the first is dropped."""
    stack = _make(build)
    x = torch.randn(4, 60, H)
    whole = stack(x)
    y, state = stack.stream(x[:3, :20], stack.init_state(3, max_length))
    state.reset([1])
    assert state.position.tolist() == [20, 0, 20]
    y, state = stack.step(x[[0, 3, 2], [20, 0, 20]], state)
    assert relative_rms(y, whole[[0, 3, 2], [20, 0, 20]]) <= 2e-6
    y, newcomer = stack.stream(x[3:, :30], stack.init_state(1, max_length))
    decoder = stack.decoder(state)
    decoder.state.put([1], newcomer)
    for i in range(25):
        times = [21 + i, 30 + i, 21 + i]
        assert relative_rms(decoder(x[[0, 3, 2], times]), whole[[0, 3, 2], times]) <= 2e-6
    rest = decoder.state.select([2, 1])
    y, rest = stack.stream(torch.stack([x[2, 46:51], x[3, 55:60]]), rest)
    assert relative_rms(y, torch.stack([whole[2, 46:51], whole[3, 55:60]])) <= 2e-6
    assert rest.position.tolist() == [51, 60]


def test_wrong_rows() -> None:
    stack, other = _make(STACKS["DS4D"]), _make(STACKS["DS4D"])
    state = stack.init_state(3)
    for call in (state.select, state.reset, lambda rows: state.put(rows, state.clone())):
        with pytest.raises(ValueError, match=r"rows must be a list of numbers from 0 to 2, not \[3\]"):
            call([3])
        for wrong in ([-1], [True, False, True], [0.5], 1):
            with pytest.raises(ValueError, match="from 0 to 2"):
                call(wrong)
    with pytest.raises(ValueError, match="1 streams for 2 rows"):
        state.put([0, 1], stack.init_state(1))
    with pytest.raises(ValueError, match="another module"):
        state.put([0], other.init_state(1))
    with pytest.raises(ValueError, match="max_length=9, not None"):
        state.put([0], stack.init_state(1, 9))
    before = stack.init_state(1)
    with torch.no_grad():
        stack.blocks[0].layer.ssm.nu_tau.add_(0.5)
    with pytest.raises(ValueError, match="made for other delays"):
        stack.init_state(3).put([0], before)
    _, attached = stack.stream(torch.randn(3, 2, H), stack.init_state(3))
    for change in (lambda: attached.reset([0]), lambda: attached.put([0], stack.init_state(1))):
        with pytest.raises(RuntimeError, match=r"break its gradients; detach\(\)"):
            change()
    with pytest.raises(ValueError, match="max_length must be a whole number of at least 1"):
        stack.init_state(1, 0)


@pytest.mark.parametrize("max_length", [None, 60])
@pytest.mark.parametrize(
    "build",
    [lambda: DelaySSM(H, 32, 80), lambda: Block(DS4D(H, 32, 80)), *STACKS.values()],
    ids=["DelaySSM", "Block", *STACKS.keys()],
)
@torch.no_grad()
def test_saved_streams_continue_bit_for_bit(
    build: Callable[[], Streaming], max_length: int | None, tmp_path: Path
) -> None:
    module = _make(build)
    x = torch.randn(2, 60, H)
    _, state = module.stream(x[:, :33], module.init_state(2, max_length))
    state.save(tmp_path / "state.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["state.safetensors"]
    again = copy.deepcopy(module)  # another object, as in another process
    restored = again.load_state(tmp_path / "state.safetensors")
    assert restored.position.tolist() == [33, 33]
    for t in range(33, 60):
        y, state = module.step(x[:, t], state)
        z, restored = again.step(x[:, t], restored)
        assert torch.equal(y, z)


@torch.no_grad()
def test_a_state_of_something_else_is_refused(tmp_path: Path) -> None:
    stack = _make(STACKS["DS4D"])
    path = tmp_path / "state"
    stack.init_state(1).save(path)
    other = "has streams of another model:"
    with pytest.raises(ValueError, match=rf"{other} blocks\.0\.layer\.kind is DS4D there and S4D here; "):
        _make(STACKS["S4D"]).load_state(path)
    moved = r"blocks\.{}\.layer\.max_delay is 80 there and 81 here"
    with pytest.raises(ValueError, match=f"{other} {moved.format(0)}; {moved.format(1)}$"):
        Stack(Block(DS4D(H, 32, 81)) for _ in range(2)).load_state(path)
    with pytest.raises(ValueError, match=rf"{other} blocks\.1\.kind is Block there and absent here; .* and \d+ more"):
        Stack([Block(DS4D(H, 32, 80))]).load_state(path)
    stack.blocks[1].norm.bias[0] += 1e-3
    with pytest.raises(ValueError, match="other values of the parameters: load the checkpoint"):
        stack.load_state(path)
    stack.init_state(1).save(path)
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], content[:-1] + b"\xff", b"", b"nonsense" * 10):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="is damaged"):
            stack.load_state(path)
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match=r"has the format .* but 'delayssm state 4' is expected"):
        stack.load_state(path)
    with pytest.raises(FileNotFoundError):
        stack.load_state(tmp_path / "absent")
    state = _make(STACKS["DS4D"]).init_state(1)  # its module is gone at once
    with pytest.raises(RuntimeError, match="module that made this state is gone"):
        state.save(path)


@torch.no_grad()
def test_what_is_no_state_is_refused() -> None:
    block, tokens = Block(DS4D(H, 8, 20)), Tokens(5, H)
    stack = Stack([block])
    pooled, language_model = PooledModel(tokens, stack, outputs=2).eval(), TokenModel(5, stack).eval()
    x, ids = torch.randn(2, 3, H), torch.zeros(2, 3, dtype=torch.int64)
    state, states = block.init_state(2), stack.init_state(2)
    for module, argument, wrong, kind in (
        (block, x, None, "State"),
        (block, x, states, "State"),
        (stack, x, None, "States"),
        (stack, x, state, "States"),
        (language_model, ids, 2, "States"),
        (pooled, ids, None, "PooledState"),
        (pooled, ids, states, "PooledState"),
    ):
        message = rf"expected a state of type {kind}, not {type(wrong).__name__}; begin with .*init_state"
        with pytest.raises(TypeError, match=message):
            module.stream(argument, wrong)  # type: ignore[arg-type,operator]
        with pytest.raises(TypeError, match=message):
            module.step(argument[:, 0], wrong)  # type: ignore[arg-type,operator]
    for model in (stack, language_model, SeriesModel(Values(1, H), stack, outputs=1)):
        with pytest.raises(TypeError, match="expected a state of type States, not NoneType"):
            model.decoder(None)  # type: ignore[arg-type]


def _change(path: Path, change: Callable[[dict[str, torch.Tensor], dict[str, str]], None]) -> None:
    """Write a file of streams again, with a valid checksum, after a change of its content."""
    tensors, about = tensor_file.read(path, FORMAT)
    change(tensors, about)
    tensor_file.write(path, FORMAT, tensors, about)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors, about: [tensors[f"{i}.position"].fill_(-1000) for i in range(2)], "seen -1000 tokens"),
        (lambda tensors, about: [tensors[f"{i}.position"].fill_(65) for i in range(2)], "seen 65 tokens, not 0 to 64"),
        (lambda tensors, about: tensors["1.position"].fill_(3), "parts of this state have seen different numbers"),
        (lambda tensors, about: tensors.clear(), "does not have the tensors"),
        (lambda tensors, about: tensors.pop("0.values"), "does not have the tensors"),
        (lambda tensors, about: tensors.update({"0.values": torch.zeros(1, 64, 8)}), "does not have the tensors"),
        (lambda tensors, about: tensors.update({"0.position": torch.zeros(10**12, 0)}), "does not have the tensors"),
        (lambda tensors, about: about.clear(), "does not say which config, parameters, max_length it is for"),
        (lambda tensors, about: about.update(max_length="-5"), "max_length must be .* not -5"),
        (lambda tensors, about: about.update(max_length="many"), "is damaged: invalid literal"),
        (lambda tensors, about: about.update(max_length=str(1 << 70)), "is damaged: max_length can be at most"),
        (lambda tensors, about: about.update(config="{"), "streams of another model"),
    ],
)
@torch.no_grad()
def test_a_crafted_state_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    """A valid checksum does not make numbers true that memory would be read by."""
    stack = _make(STACKS["DS4D"])
    stack.init_state(2, 64).save(tmp_path / "state")
    _change(tmp_path / "state", change)
    with pytest.raises(ValueError, match=message):
        stack.load_state(tmp_path / "state")


@torch.no_grad()
def test_a_state_is_known_by_the_meaning_of_options(tmp_path: Path) -> None:
    """Numbers and lists that mean the same options are the same configuration."""
    ssm = DelaySSM(H, 8, 30, phase=0, delays=[4] * H)
    ssm.init_state(2).save(tmp_path / "state")
    same = DelaySSM(d_model=H, d_state=8, max_delay=30, phase=0.0, delays=torch.full((H,), 4.0))
    same.load_state_dict(ssm.state_dict())
    assert same.load_state(tmp_path / "state").batch_size == 2


def test_a_failed_save_leaves_the_previous_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = _make(STACKS["DS4D"])
    path = tmp_path / "state"
    stack.init_state(1).save(path)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        stack.init_state(2).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_leftovers_of_killed_writers_are_removed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    host = socket.gethostname()
    dead, alive, elsewhere = (
        tmp_path / f".state.{name}.part"
        for name in (f"{host}.{process.pid}-1", f"{host}.{os.getppid()}-1", "other.1-1")
    )
    for path in (dead, alive, elsewhere):
        path.write_bytes(b"half")
    stack = _make(STACKS["DS4D"])
    stack.init_state(1).save(tmp_path / "state")
    assert sorted(tmp_path.iterdir()) == sorted([alive, elsewhere, tmp_path / "state"])


STREAMING = """
import sys, torch
from pathlib import Path
from delayssm import *

torch.manual_seed(0)
model = TokenModel(50, Stack(Block(DS4D(16, 32, 500)) for _ in range(2))).eval()
folder, until = Path(sys.argv[1]), int(sys.argv[2])
tokens = torch.randint(0, 50, (until,), generator=torch.Generator().manual_seed(1))
path = folder / "state"
state = model.load_state(path) if path.exists() else model.init_state(1, max_length=until)
decoder = model.decoder(state)
with (folder / sys.argv[3]).open("a") as log:
    for t in range(int(state.position), until):
        logits = decoder(tokens[t : t + 1])
        print(t, logits.numpy().tobytes().hex(), file=log, flush=True)
        if t % 50 == 49:
            decoder.state.save(path)
"""


def test_a_killed_process_continues_where_it_had_saved(tmp_path: Path) -> None:
    def start(folder: Path, log: str) -> subprocess.Popen[bytes]:
        folder.mkdir(exist_ok=True)
        return subprocess.Popen([sys.executable, "-c", STREAMING, str(folder), "2000", log])

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert start(whole, "log").wait() == 0
    process = start(broken, "first")
    deadline = time.monotonic() + 120
    while not (log := broken / "first").exists() or log.read_bytes().count(b"\n") < 321:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert start(broken, "second").wait() == 0
    expected = (whole / "log").read_text().splitlines()
    first = (broken / "first").read_text().splitlines()[:-1]  # the last line may be cut off
    second = (broken / "second").read_text().splitlines()
    assert first == expected[: len(first)]
    assert 0 < len(second) < 2000
    assert len(expected) == 2000
    assert second == expected[-len(second) :]


def test_streams_that_do_not_fit_are_refused() -> None:
    layer = DS4D(1, 64, max_delay=2**40)
    with pytest.raises(RuntimeError, match=r"no room for the memory of 7 streams, .* bytes; use fewer streams"):
        layer.init_state(7)
