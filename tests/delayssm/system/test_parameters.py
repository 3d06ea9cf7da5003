"""The parameterisation of section 3.3 and its initial values."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from delayssm import DelaySSM, DiagonalSSM
from delayssm.system import reference
from delayssm.system.initial import GRID_MARGIN

ORDINARY = st.floats(-4, 4, width=32)


@given(
    nu_dt=st.floats(-8, 0, width=32),
    nu_re=st.floats(-3, 3, width=32),
    nu_im=st.floats(-300, 300, width=32),
    r=ORDINARY,
    theta=ORDINARY,
    nu_tau=st.floats(-12, 12, width=32),
    B=st.complex_numbers(max_magnitude=3, width=64),
    C=st.complex_numbers(max_magnitude=3, width=64),
    max_delay=st.integers(3, 5000),
)
def test_discretisation_is_that_of_the_paper(
    nu_dt: float,
    nu_re: float,
    nu_im: float,
    r: float,
    theta: float,
    nu_tau: float,
    B: complex,
    C: complex,
    max_delay: int,
) -> None:
    ssm = DelaySSM(1, 2, max_delay)
    values = {"nu_dt": nu_dt, "nu_re": nu_re, "nu_im": nu_im, "r": r, "theta": theta, "nu_tau": nu_tau}
    with torch.no_grad():
        for name, value in values.items():
            getattr(ssm, name).fill_(value)
        ssm.B.copy_(torch.tensor([B.real, B.imag]))
        ssm.C.copy_(torch.tensor([C.real, C.imag]))
        system = ssm.discretize()
    truth = reference.discretize(nu_dt, [nu_re], [nu_im], [r], [theta], nu_tau, [B], [C], max_delay)
    for name in ("lam", "mu", "b", "c"):
        assert getattr(system, name).dtype == torch.complex128
        np.testing.assert_allclose(getattr(system, name)[0], getattr(truth, name), rtol=1e-9, atol=1e-15)
    assert system.k.dtype == torch.int64
    assert system.alpha.dtype == torch.float64
    assert float(system.k + system.alpha) == pytest.approx(truth.k + truth.alpha, rel=1e-12)
    assert 1 <= int(system.k) <= max_delay - 1
    assert 0 <= float(system.alpha) < 1
    assert float(ssm.delays().detach()) == float(system.k + system.alpha)


@pytest.mark.parametrize("cls", [DiagonalSSM, DelaySSM])
@pytest.mark.parametrize("n_ssm", [1, 2, 3, 6])
def test_channels_share_dynamics(cls: type[DiagonalSSM], n_ssm: int) -> None:
    """A shared module is one with its own dynamics for each channel, channel h with those of set h mod n_ssm."""
    torch.manual_seed(0)
    shared, alone = cls(6, 4, n_ssm=n_ssm).double(), cls(6, 4).double()
    assert [len(p) for p in (shared.nu_re, shared.nu_im, shared.B)] == [n_ssm] * 3
    with torch.no_grad():
        for parameter in shared.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    sets = torch.arange(6) % n_ssm
    names = "nu_re", "nu_im", "B"
    state = shared.state_dict()
    alone.load_state_dict({**state, **{name: state[name][sets] for name in names}})
    x = torch.randn(2, 20, 6, dtype=torch.float64)
    ours, theirs = shared(x), alone(x)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
    ours.square().sum().backward()
    theirs.square().sum().backward()
    for name, parameter in shared.named_parameters():
        gradient = alone.get_parameter(name).grad
        if name in names:
            gradient = torch.zeros_like(parameter).index_add_(0, sets, gradient)
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-10, atol=1e-12)


def test_dynamics_are_shared_by_groups_of_equal_size() -> None:
    for n_ssm in (0, -1, 4, 7):
        with pytest.raises(ValueError, match=rf"n_ssm must divide d_model \(6\), or be None, not {n_ssm}"):
            DelaySSM(6, 4, n_ssm=n_ssm)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(data=st.data())
@settings(max_examples=60)
def test_stable_for_any_finite_parameters(dtype: torch.dtype, data: st.DataObject) -> None:
    width = 32 if dtype == torch.float32 else 64
    anything = st.floats(allow_nan=False, allow_infinity=False, width=width)
    ssm = DelaySSM(2, 4, 50).to(dtype)
    with torch.no_grad():
        for name in ("nu_dt", "nu_re", "nu_im", "r", "theta", "nu_tau"):
            parameter = getattr(ssm, name)
            drawn = data.draw(st.lists(anything, min_size=parameter.numel(), max_size=parameter.numel()))
            parameter.copy_(torch.tensor(drawn, dtype=dtype).view_as(parameter))
    system = ssm.discretize()
    assert bool((system.lam.abs() + system.mu.abs() < 1).all())
    rounded = system.lam.to(torch.complex64).abs() + system.mu.to(torch.complex64).abs()
    assert bool((rounded < 1).all())
    assert bool(((system.k >= 1) & (system.k <= 49) & (system.alpha >= 0) & (system.alpha < 1)).all())

    kernel = ssm.kernel(64)
    assert bool(torch.isfinite(kernel).all())
    kernel.square().sum().backward()
    for parameter in ssm.parameters():
        assert parameter.grad is None or bool(torch.isfinite(parameter.grad).all())


def test_the_delay_learns_through_alpha_only() -> None:
    ssm = DelaySSM(3, 4, 100, delays=[5.25, 5.5, 50.0])
    ssm.delays().sum().backward()
    through_delays = ssm.nu_tau.grad.clone()
    ssm.nu_tau.grad = None
    system = ssm.discretize()
    assert not system.k.is_floating_point()
    system.alpha.sum().backward()
    assert torch.equal(ssm.nu_tau.grad, through_delays)
    assert bool((through_delays > 0).all())


def test_absorbed_and_explicit_input_agree() -> None:
    explicit = DelaySSM(4, 8, 30)
    absorbed = DelaySSM(4, 8, 30, input="absorbed")
    with torch.no_grad():
        explicit.B.normal_()
        for name, parameter in absorbed.named_parameters():
            parameter.copy_(getattr(explicit, name))
        c, b = torch.view_as_complex(explicit.C), torch.view_as_complex(explicit.B)
        absorbed.C.copy_(torch.view_as_real(c * b))
    assert absorbed.B is None
    x = torch.randn(2, 80, 4)
    torch.testing.assert_close(absorbed(x), explicit(x), rtol=1e-5, atol=1e-6)


def test_without_its_delayed_branch_it_is_s4d() -> None:
    delay, diagonal = DelaySSM(4, 8, 30, branch_fraction=0.0), DiagonalSSM(4, 8)
    with torch.no_grad():
        for name, parameter in diagonal.named_parameters():
            parameter.copy_(getattr(delay, name))
    x = torch.randn(2, 80, 4)
    torch.testing.assert_close(delay(x), diagonal(x), rtol=1e-6, atol=1e-7)
    a, b = delay.discretize(), diagonal.discretize()
    torch.testing.assert_close(a.lam, b.lam, rtol=1e-15, atol=1e-15)
    torch.testing.assert_close(a.b, b.b, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("cls", [DelaySSM, DiagonalSSM])
def test_spectra(cls: type[DiagonalSSM]) -> None:
    lin, inv = cls(3, 8, init="lin"), cls(3, 8, init="inv")
    n = torch.arange(4)
    assert torch.allclose(-lin.nu_re.exp(), torch.tensor(-0.5))
    assert torch.allclose(lin.nu_im, (math.pi * n).expand(3, 4))
    assert torch.allclose(inv.nu_im, (8 / math.pi * (8 / (2 * n + 1) - 1)).expand(3, 4))


def test_step_sizes_are_log_uniform_in_their_range() -> None:
    dt = torch.nn.functional.softplus(DelaySSM(4000, 2, dt_min=1e-4, dt_max=1e-2).nu_dt.detach().double())
    assert 1e-4 * (1 - 1e-4) <= float(dt.min()) < 1.1e-4
    assert 0.9e-2 < float(dt.max()) <= 1e-2 * (1 + 1e-4)
    assert float(dt.log10().mean()) == pytest.approx(-3, abs=0.05)


def test_delay_grid() -> None:
    ssm = DelaySSM(64, 2, 1088)
    delays = ssm.delays().detach()
    assert float(delays.mean()) == pytest.approx(544.0, abs=0.01)
    ordered = delays.sort().values
    j = torch.arange(1, 65)
    expected = 1 + 1086 * (GRID_MARGIN + (j - 0.5) / 64 * (1 - 2 * GRID_MARGIN))
    assert torch.allclose(ordered, expected.double(), rtol=1e-5)
    assert not torch.equal(delays, ordered)


@pytest.mark.parametrize("delays", [28.0, 28, torch.tensor(28.0), [28.0] * 5])
def test_given_delays(delays: object) -> None:
    assert torch.allclose(DelaySSM(5, 2, 784, delays=delays).delays(), torch.tensor(28.0).double(), rtol=1e-5)


def test_the_ends_of_the_delay_range() -> None:
    assert DelaySSM(2, 2, 50, delays=[1.0, 49.0]).delays().tolist() == [1.0, 49.0]


@pytest.mark.parametrize(
    ("fraction", "expected"),
    [
        (0.1, [[0.1] * 4] * 2),
        ((0.01, 0.64), [[0.01, 0.04, 0.16, 0.64]] * 2),
        (torch.tensor([0.1, 0.2, 0.3, 0.4]), [[0.1, 0.2, 0.3, 0.4]] * 2),
        (torch.tensor([[0.5], [0.1]]), [[0.5] * 4, [0.1] * 4]),
        (torch.full((2, 4), 0.3), [[0.3] * 4] * 2),
    ],
)
def test_branch_fractions(fraction: float | tuple[float, float] | torch.Tensor, expected: list[list[float]]) -> None:
    ssm = DelaySSM(2, 8, branch_fraction=fraction)
    torch.testing.assert_close(torch.sigmoid(ssm.r.detach()), torch.tensor(expected), rtol=1e-5, atol=1e-6)
    system = ssm.discretize()
    share = (system.mu.abs() / (system.mu.abs() + system.lam.abs())).detach()
    torch.testing.assert_close(share.float(), torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_phases_start_near_their_centre() -> None:
    theta = DelaySSM(100, 64, phase=0.5).theta
    assert float(theta.detach().mean()) == pytest.approx(0.5, abs=0.01)
    assert 0 < float(theta.detach().std()) < 0.1
