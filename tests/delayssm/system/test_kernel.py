"""The kernel from the transfer function against the recurrence."""

import functools
from typing import Any

import numpy as np
import pytest
import torch

from delayssm import DelaySSM, DiagonalSSM
from delayssm.backends import KernelGradients, eager, numba_cpu
from delayssm.backends.lengths import fast_length
from delayssm.system.kernel import CONTOURS, Contour, _kernel, kernel
from tests.support.numerics import reference_kernel, relative_rms

MAX_DELAY = 20_000
#: Smallest, largest, in between, and fractional.
DELAYS = [1.0, MAX_DELAY - 1.0, 2.5, 16.999, 700.25, 9000.5]


@functools.cache
def _case(init: str, fraction: float) -> tuple[DelaySSM, np.ndarray]:
    torch.manual_seed(0)
    ssm = DelaySSM(len(DELAYS), 64, MAX_DELAY, init=init, branch_fraction=fraction, delays=DELAYS, dt_min=1e-4)
    with torch.no_grad():  # the slowest step size, in a channel with a delay
        ssm.nu_dt[4] = float(np.log(np.expm1(1e-4)))
    return ssm, reference_kernel(ssm, 16_384)


@pytest.mark.parametrize("fraction", [0.015, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("init", ["lin", "inv"])
@pytest.mark.parametrize("length", [1, 2, 17, 1024, 4096, 16_384])
def test_kernel_is_the_impulse_response(length: int, init: str, fraction: float) -> None:
    ssm, truth = _case(init, fraction)
    truth = truth[:, :length]
    before_cast = kernel(ssm._system(), length)[0].T
    assert before_cast.dtype == torch.float64
    assert relative_rms(before_cast, truth) <= 5e-8
    after_cast = ssm.kernel(length)
    assert after_cast.dtype == torch.float32
    assert after_cast.shape == (len(DELAYS), length)
    assert relative_rms(after_cast, truth) <= 2e-7
    for h in range(len(DELAYS)):  # not only the loudest channels
        assert relative_rms(before_cast[h], truth[h]) <= 5e-8, f"channel {h}, delay {DELAYS[h]}"


def test_s4d_kernel_has_its_closed_form() -> None:
    ssm = DiagonalSSM(5, 16)
    lam, _, b, c, _, _ = ssm.discretize()
    t = torch.arange(500)
    closed = 2 * (c * b).mul(lam ** t[:, None, None]).sum(-1).real.T
    assert relative_rms(kernel(ssm._system(), 500)[0].T, closed) <= 5e-8


def test_the_setting_of_the_paper_is_there_to_compare() -> None:
    ssm = DelaySSM(16, 64, 1024)
    truth = reference_kernel(ssm, 1024)
    errors = {}
    for contour in CONTOURS:
        other = DelaySSM(16, 64, 1024, contour=contour)
        other.load_state_dict(ssm.state_dict())
        errors[contour] = relative_rms(other.kernel(1024), truth)
        assert other.config.contour == contour
        assert f"contour={contour!r}" in repr(other)
        x = torch.randn(1, 1024, 16)
        assert torch.equal(other(x), ssm(x)) == (contour == "exact")  # it is used in training, too
    assert 1e-5 < errors["paper"] < 1e-3
    assert errors["exact"] < errors["paper"] / 100
    assert errors["exact"] < errors["float32"] < errors["paper"]
    assert CONTOURS["paper"].grid(1088) == 4096
    assert CONTOURS["paper"].dtype == torch.float32


def test_bidirectional_kernels_share_the_system() -> None:
    ssm = DelaySSM(3, 8, 40, bidirectional=True)
    K = ssm.kernel(60)
    assert K.shape == (2, 3, 60)
    for direction in (0, 1):
        assert relative_rms(K[direction], reference_kernel(ssm, 60, direction)) <= 2e-7


def test_a_delay_beyond_the_window_is_not_heard() -> None:
    ssm = DelaySSM(4, 8, 200, delays=151.0)
    ssm.kernel(150).square().sum().backward()
    assert ssm.theta.grad is not None
    assert not ssm.theta.grad.any()
    assert ssm.nu_tau.grad is not None
    assert not ssm.nu_tau.grad.any()


def _random_system(directions: int, channels: int, modes: int) -> dict[str, torch.Tensor]:
    """Return the arguments lam, mu, w, k and alpha of `Backend.kernel`."""
    ssm = DelaySSM(channels, 2 * modes, 30, bidirectional=directions == 2, dt_min=0.05, dt_max=0.5)
    system = ssm._system()
    k = system.k.clone()
    k[0] = 0  # one channel without a delayed branch
    w = torch.randn_like(system.c)
    tensors = {"lam": system.lam, "mu": system.mu, "w": w, "k": k, "alpha": system.alpha}
    return {name: t.detach() for name, t in tensors.items()}


@pytest.mark.parametrize("length", [1, 2, 14, 31, 300])
@pytest.mark.parametrize("directions", [1, 2])
def test_fused_kernel_equals_eager(directions: int, length: int) -> None:
    """The two have different points on the same contour, and therefore different echoes of size eps."""
    system, size = _random_system(directions, 11, 3), fast_length(length + length // 8)
    numbers: Any = {"size": size, "eps": 1e-8, "dtype": torch.float64}
    skip = torch.randn(11, dtype=torch.float64)
    expected, fused_result = (
        backend.kernel(**system, skip=skip, length=length, **numbers, result=torch.float64)
        for backend in (eager, numba_cpu)
    )
    assert fused_result.shape == (directions, length, 11)
    assert relative_rms(fused_result, expected) <= 1e-7
    grad = torch.randn_like(expected)
    fused, plain = (backend.kernel_backward(grad=grad, **system, **numbers) for backend in (numba_cpu, eager))
    for name in KernelGradients._fields:
        assert getattr(fused, name).shape == getattr(plain, name).shape == system[name].shape
        # Short kernels hardly depend on some parameters: what counts is the size of any gradient.
        assert float((getattr(fused, name) - getattr(plain, name)).norm()) <= 1e-7 * float(plain.w.norm()), name


@pytest.mark.parametrize("directions", [1, 2])
def test_gradients(backend: str, directions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Finite differences divide rounding by their step: take a contour that amplifies it less.
    monkeypatch.setitem(CONTOURS, "exact", Contour(torch.float64, 1e-3, lambda length: 48))
    lam, mu, w, k, alpha = _random_system(directions, 3, 2).values()

    def function(*t: torch.Tensor) -> torch.Tensor:
        lam, mu, w, alpha, skip = t
        return _kernel(lam, mu, w, k, alpha, skip, 20, "exact", torch.float64)

    inputs = [t.clone().requires_grad_() for t in (lam, mu, w, alpha, alpha)]
    assert torch.autograd.gradcheck(function, inputs, rtol=1e-5, atol=1e-7)


def test_operator_registrations() -> None:
    system = [t.requires_grad_(t.is_floating_point()) for t in _random_system(1, 2, 2).values()]
    skip = torch.randn(2, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(_kernel, (*system, skip, 20, "exact", torch.float64))


@pytest.mark.parametrize("n", [*range(1, 300), 2175, 8191, 100_000])
def test_fast_lengths(n: int) -> None:
    size = fast_length(n)
    assert size >= n
    assert size % 16 == 0
    for prime in (2, 3, 5):
        while size % prime == 0:
            size //= prime
    assert size == 1
