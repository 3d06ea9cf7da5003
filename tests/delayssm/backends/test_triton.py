"""The GPU kernels: interpreted on CPU tensors and compared with the eager backend, and compiled for several GPUs."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import delayssm
from delayssm import DS4D, S4D, Block, DelaySSM, Stack, TokenModel
from delayssm.backends import KernelGradients, eager
from tests.support.numerics import reference_kernel, relative_rms

triton_gpu = pytest.importorskip("delayssm.backends.triton_gpu", reason="triton is published for Linux only")

ROOT = Path(__file__).parents[3]


@pytest.fixture
def on_triton() -> Iterator[None]:
    """Run everything through the kernels."""
    with delayssm.backend("triton"):
        yield


def _system(directions: int, channels: int, modes: int, delays: list[int]) -> dict[str, Tensor]:
    """Return random coefficients with slow and fast modes; a delay of 0 stands for none."""
    ssm = DelaySSM(channels, 2 * modes, 400, bidirectional=directions == 2, dt_min=1e-3, dt_max=0.5)
    system = ssm.constants()
    w, k = torch.randn_like(system.c), torch.tensor(delays)
    return {"lam": system.lam, "mu": system.mu, "w": w, "k": k, "alpha": system.alpha}


@pytest.mark.parametrize(
    ("directions", "modes", "delays", "size"),
    [
        (1, 3, [0, 1, 5], 37),  # nothing divides a block
        (2, 5, [2, 36], 36),
        (1, 1, [7], 1),  # one bin
        (1, 1, [1], 2),
        (2, 32, [300], 320),  # one channel, several blocks of frequencies
        (1, 33, [1, 299], 300),
        (1, 128, [0, 40], 80),
    ],
)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 2e-6)])
def test_transfer(
    directions: int, modes: int, delays: list[int], size: int, dtype: torch.dtype, tolerance: float
) -> None:
    system = _system(directions, len(delays), modes, delays)
    rho = 1e-5 ** (1 / size)
    truth = eager.transfer(**system, size=size, rho=rho, dtype=torch.float64)
    result = triton_gpu.transfer(**system, size=size, rho=rho, dtype=dtype)
    assert result.dtype == dtype
    assert result.shape == truth.shape
    assert relative_rms(result, truth) <= tolerance
    grad = torch.randn_like(truth).to(dtype)
    expected = eager.transfer_backward(grad=grad.double(), **system, size=size, rho=rho)
    gradients = triton_gpu.transfer_backward(grad=grad, **system, size=size, rho=rho)
    for name in KernelGradients._fields:
        fused, plain = getattr(gradients, name), getattr(expected, name)
        assert fused.dtype == torch.float64
        assert fused.shape == plain.shape
        if plain.abs().max() > 0:
            assert relative_rms(fused, plain) <= 10 * tolerance, name


@torch.no_grad()
@pytest.mark.parametrize("fraction", [0.015, 0.1, 0.9])
def test_the_float32_form_is_a_hundred_times_better_than_it_would_be_naively(on_triton: None, fraction: float) -> None:
    ssm = DelaySSM(4, 32, 300, branch_fraction=fraction)
    truth = reference_kernel(ssm, 300)
    single = DelaySSM(4, 32, 300, branch_fraction=fraction, contour="float32")
    single.load_state_dict(ssm.state_dict())
    assert relative_rms(single.kernel(300), truth) <= 1e-5
    assert relative_rms(ssm.kernel(300), truth) <= 2e-7


CHUNKS = [(1, [1, 1]), (5, [5, 2]), (30, [30, 0]), (1, [1, 1]), (41, [13, 41]), (1, [1, 0]), (3, [3, 3])]


@torch.no_grad()
@pytest.mark.parametrize(
    ("modes", "delays"), [(1, [1.0]), (3, [1.0, 9.3, 14.7, 30.2, 38.0]), (5, [2.5, 95.0]), (32, [20.5]), (128, [33.0])]
)
def test_scan(modes: int, delays: list[float]) -> None:
    """Rows of different age and chunks of all lengths."""
    ssm = DelaySSM(len(delays), 2 * modes, 100, delays=delays)
    constants = ssm.constants()
    system = constants._replace(c=constants.c[0])._asdict()
    outputs, memories = [], []
    for backend in (triton_gpu, eager):
        memory, y, position = ssm.init_state(2).memory.tensors(), [], torch.zeros(2, dtype=torch.int64)
        torch.manual_seed(1)
        for length, lengths in CHUNKS:
            x, n = torch.randn(2, length, len(delays)), torch.tensor(lengths)
            y.append(backend.scan(**system, x=x, lengths=n, position=position, **memory))
            position = position + n
        outputs.append(torch.cat(y, 1))
        memories.append(memory)
    assert relative_rms(*outputs) <= 1e-7
    for name, expected in memories[1].items():
        assert relative_rms(memories[0][name], expected) <= 1e-7, name


@pytest.mark.parametrize("make", [lambda: DS4D(3, 6, 20), lambda: S4D(3, 6)], ids=["DS4D", "S4D"])
def test_a_whole_model(on_triton: None, make: object) -> None:
    """Training and every way of streaming give the results of the eager backend."""
    model = TokenModel(7, Stack(Block(make()) for _ in range(2)))  # type: ignore[operator]
    tokens = torch.randint(0, 7, (2, 25))
    results = []
    for name in ("triton", "eager"):
        with delayssm.backend(name):
            model.zero_grad()
            logits = model(tokens)
            logits.square().sum().backward()
        results.append([logits.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    for result, expected in zip(*results, strict=True):
        assert relative_rms(result, expected) <= 1e-6
    assert delayssm.backend() == "triton"
    model.eval()
    with torch.no_grad():
        for max_length in (None, 40):
            state = model.init_state(2, max_length)
            first, state = model.stream(tokens[:, :9], state)
            decoder = model.decoder(state)
            rest = [decoder(tokens[:, t]).clone() for t in range(9, 25)]
            assert relative_rms(torch.cat([first, torch.stack(rest, 1)], 1), results[1][0]) <= 1e-6


class _NoWaiting(TorchDispatchMode):
    """A mode that refuses whatever makes the host wait for a GPU, and so breaks the capture of a CUDA graph."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name = function.name()
        assert name.split("::")[1].split(".")[0] not in {"_local_scalar_dense", "nonzero", "equal", "unique", "item"}
        return function(*args, **(kwargs or {}))


@torch.no_grad()
def test_a_step_waits_for_nothing_and_stays_in_its_memory(on_triton: None) -> None:
    stack = Stack(Block(DS4D(3, 6, 30)) for _ in range(2)).eval()
    decoder = stack.decoder(stack.init_state(2))
    decoder(torch.randn(2, 3))
    before = {name: t.data_ptr() for name, t in decoder.state.tensors().items()}
    with _NoWaiting():
        for _ in range(10):
            decoder(torch.randn(2, 3))
    assert {name: t.data_ptr() for name, t in decoder.state.tensors().items()} == before
    assert decoder.state.position.tolist() == [11, 11]


def test_a_bound_is_kept_without_looking(on_triton: None) -> None:
    stack = Stack([Block(DS4D(3, 6, 30))]).eval()
    state = stack.init_state(2, 12)
    with torch.no_grad():
        _, state = stack.stream(torch.randn(2, 10, 3), state, lengths=[10, 4])
        state.reset([0])
        _, state = stack.stream(torch.randn(2, 8, 3), state)
        with pytest.raises(ValueError, match="stream 1 would reach 13 tokens"):
            stack.stream(torch.randn(2, 1, 3), state)


def _run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment},
    )


def test_kernels_compile_for_gpus_that_are_not_here(record_property: Callable[[str, object], None]) -> None:
    """Every kernel compiles at its launch parameters, and spills no registers."""
    code = """
from delayssm_lab.measure.gpu_binaries import GENERATIONS, build, cases
for case in cases():
    for generation in GENERATIONS:
        binary = build(case, generation)
        assert f".target sm_{generation}" in binary.ptx
        assert binary.spilled == 0, binary
        sizes = f"{binary.registers:4} registers {binary.shared:5} B shared {binary.spilled:2} B spilled"
        print(f"{binary.name:28} sm_{generation:<4} {sizes}")
"""
    done = _run(code, TRITON_INTERPRET="0")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3 * 8
    record_property("shown", f"GPU kernels, compiled\n{done.stdout}")


def test_everything_else_works_without_triton() -> None:
    code = """
import sys
sys.modules["triton"] = None
import delayssm, torch
from delayssm.backends import choice
print(delayssm.backend(), choice("cuda"), choice("mps"))
try:
    delayssm.backend("triton")
except ImportError as error:
    print(error)
"""
    done = _run(code, DELAYSSM_BACKEND="")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("numba eager eager\nthe backend 'triton' cannot run here")


def test_on_a_gpu_it_is_the_choice() -> None:
    code = "from delayssm.backends import choice; print(choice('cuda'), choice('cpu'))"
    assert _run(code, DELAYSSM_BACKEND="", TRITON_INTERPRET="").stdout.split() == ["triton", "numba"]
    assert _run(code, DELAYSSM_BACKEND="eager").stdout.split() == ["eager", "eager"]
