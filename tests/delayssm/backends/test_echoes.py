"""Kernels as sums of echoes: against the recurrence, against frequencies, and how long an echo is."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from delayssm import DelaySSM, DiagonalSSM
from delayssm.backends import KernelGradients, numba_cpu
from delayssm.backends.numba_echoes import ECHOES, _duration, plan
from delayssm.system.kernel import _kernel, kernel
from tests.support.numerics import reference_kernel, relative_rms

NUMBERS: Any = {"eps": 1e-8, "dtype": torch.float64}


def _rows(ssm: DiagonalSSM, length: int) -> np.ndarray:
    system = ssm.discretize()
    k = torch.where(system.k < length, system.k, 0)
    return plan(torch.view_as_real(system.lam.detach()).numpy(), k.numpy(), length, length + length // 8)


@pytest.fixture
def _in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute all channels in time, as if frequencies took for ever."""

    def always(lam: np.ndarray, k: np.ndarray, length: int, size: int) -> np.ndarray:
        rows = plan(lam, k, length, 10**9)
        assert (rows[:, 0] > 0).all()
        return rows

    monkeypatch.setattr(numba_cpu.numba_echoes, "plan", always)


@pytest.mark.usefixtures("_in_time")
@pytest.mark.parametrize("fraction", [0.0, 0.015, 0.1, 0.6, 0.9])
@pytest.mark.parametrize("length", [20, 33, 256, 1000, 5000])
def test_echoes_are_the_impulse_response(length: int, fraction: float) -> None:
    delays = [length - 2.0, 0.71 * length, length / 2.5, length / 3 + 0.5, length + 9.75]
    ssm = DelaySSM(len(delays), 14, length + 20, branch_fraction=fraction, delays=delays, dt_min=1e-3, dt_max=0.5)
    K, truth = kernel(ssm._system(), length)[0].T, reference_kernel(ssm, length)
    for h in range(len(delays)):
        assert relative_rms(K[h], truth[h]) <= 1e-12, f"channel {h}, delay {delays[h]}"


@pytest.mark.usefixtures("_in_time")
@pytest.mark.parametrize("length", [1, 2, 40, 3000])
def test_s4d_is_a_single_echo(length: int) -> None:
    ssm = DiagonalSSM(9, 6, init="inv", dt_min=1e-6, dt_max=2.0, bidirectional=True)
    K = kernel(ssm._system(), length)
    for d in range(2):
        assert relative_rms(K[d].T, reference_kernel(ssm, length, d)) <= 1e-12


@pytest.mark.usefixtures("_in_time")
@pytest.mark.parametrize("directions", [1, 2])
def test_gradients_of_echoes(directions: int) -> None:
    ssm = DelaySSM(3, 6, 90, delays=[7.25, 31.0, 89.0], bidirectional=directions == 2, dt_min=0.05, dt_max=0.5)
    lam, mu, _, c, k, alpha = (t.detach() for t in ssm._system())
    k = torch.where(k < 60, k, 0)

    def function(*t: torch.Tensor) -> torch.Tensor:
        lam, mu, w, alpha, skip = t
        return _kernel(lam, mu, w, k, alpha, skip, 60, "exact", torch.float64)

    inputs = [t.clone().requires_grad_() for t in (lam, mu, torch.randn_like(c), alpha, alpha)]
    assert torch.autograd.gradcheck(function, inputs, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("channels", [1, 7, 8, 21])
def test_time_and_frequency_agree(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same system, some channels are computed in time and some in frequency; then all in frequency."""
    length, size = 500, 576
    ssm = DelaySSM(channels, 10, 400, bidirectional=True)
    lam, mu, _, c, k, alpha = (t.detach() for t in ssm._system())
    system = {"lam": lam, "mu": mu, "w": torch.randn_like(c), "k": k, "alpha": alpha}
    grad, skip = torch.randn(2, length, channels, dtype=torch.float64), torch.randn(channels, dtype=torch.float64)

    def compute() -> tuple[torch.Tensor, KernelGradients]:
        K = numba_cpu.kernel(**system, skip=skip, length=length, size=size, **NUMBERS, result=torch.float64)
        return K, numba_cpu.kernel_backward(grad=grad, **system, size=size, **NUMBERS)

    assert (_rows(ssm, length)[:, 0] > 0).any()
    K, gradients = compute()
    monkeypatch.setattr(numba_cpu.numba_echoes, "plan", lambda lam, *_: np.zeros((len(lam), ECHOES), dtype=np.int64))
    other_K, others = compute()
    assert relative_rms(K, other_K) <= 1e-7
    for name in KernelGradients._fields:
        assert relative_rms(getattr(gradients, name), getattr(others, name)) <= 1e-6, name


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ssm = DelaySSM(40, 16, 300)
    results = []
    for parts in (1, 2, 3):
        monkeypatch.setattr(numba_cpu, "parts_for", lambda work, parts=parts: parts)
        ssm.zero_grad()
        K = ssm.kernel(256)
        K.square().sum().backward()
        results.append([K.detach(), *(p.grad for p in ssm.parameters() if p.grad is not None)])
    for others in results[1:]:
        assert all(map(torch.equal, results[0], others))


@given(j=st.integers(0, ECHOES - 1), decay=st.floats(1e-4, 5))
@settings(max_examples=200)
def test_nothing_is_heard_of_an_echo_after_its_end(j: int, decay: float) -> None:
    end = _duration.py_func(j, decay)

    def log_size(s: float) -> float:
        return math.lgamma(s + j + 1) - math.lgamma(s + 1) - s * decay

    largest = max(log_size(s) for s in np.linspace(0, end, 2000))
    assert log_size(end) - largest < math.log(1e-16)
    assert all(log_size(s) <= log_size(end) for s in np.linspace(end, 3 * end + 10, 50))


def test_many_echoes_are_left_to_frequencies() -> None:
    ssm = DelaySSM(4, 16, 1000, delays=[5.0, 30.0, 61.0, 999.0])
    rows = _rows(ssm, 1000)
    assert (rows[:2] == 0).all()
    assert np.count_nonzero(rows[3]) == 2
    # A main branch without decay is heard to the end in each echo, and so many take longer than frequencies.
    slow = DelaySSM(1, 16, 1000, delays=61.0, branch_fraction=1e-6, dt_max=1e-3)
    assert (_rows(slow, 1000) == 0).all()
