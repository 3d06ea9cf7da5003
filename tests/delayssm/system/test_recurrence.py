"""The recurrence against the reference, and the two backends against each other."""

import numpy as np
import pytest
import torch

from delayssm import DelaySSM, DiagonalSSM
from delayssm.backends import ScanGradients, eager, numba_cpu
from delayssm.system import reference
from delayssm.system.recurrence import _scan, _scan_in_place
from tests.support.numerics import channels, relative_rms


def _case(dtype: torch.dtype, lengths: list[int], position: list[int], length: int) -> dict[str, torch.Tensor]:
    """Return the arguments of `Backend.scan`.

    One channel has no delay, the others have delays of every kind; rows differ in age and length.
    """
    ssm = DelaySSM(5, 6, 40, dt_min=0.05, dt_max=0.5, branch_fraction=0.4)
    system = ssm._system()
    system = system._replace(c=system.c[0], k=torch.tensor([0, 1, 2, 5, 30]))
    slots, rows = 0 + 1 + 2 + 5 + 30, len(lengths)
    return {
        **{name: t.detach() for name, t in system._asdict().items()},
        "x": torch.randn(rows, length, 5, dtype=dtype),
        "lengths": torch.tensor(lengths),
        "position": torch.tensor(position),
        "h": torch.randn(rows, 5, 2, 3, dtype=torch.float64),
        "feedback": torch.randn(rows, slots, 2, 3, dtype=dtype),
    }


@pytest.mark.parametrize("lengths", [[11, 0, 6], [1, 1, 1], [11, 11, 11]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fused_scan_equals_eager(dtype: torch.dtype, lengths: list[int]) -> None:
    length = max(lengths)
    case = _case(dtype, lengths, [0, 3, 77], length)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-13
    results = []
    for backend in (eager, numba_cpu):
        memory = {name: case[name].clone() for name in ("h", "feedback")}
        y = backend.scan(**{**case, **memory})
        results.append({"y": y, **memory})
    plain, fused = results
    for name in plain:
        assert fused[name].dtype == plain[name].dtype
        assert relative_rms(fused[name], plain[name]) <= tolerance, name

    gradients = {f"g_{name}": torch.randn_like(t) for name, t in plain.items()}
    plain, fused = (backend.scan_backward(**gradients, **case) for backend in (eager, numba_cpu))
    for name in ScanGradients._fields:
        a, b = getattr(fused, name), getattr(plain, name)
        assert a.shape == b.shape == case[name].shape
        assert a.dtype == b.dtype
        assert relative_rms(a, b) <= tolerance, name


@pytest.mark.parametrize(("lengths", "position"), [([7, 7], [0, 0]), ([7, 0], [3, 5]), ([2, 7], [77, 4])])
def test_gradients(backend: str, lengths: list[int], position: list[int]) -> None:
    case = _case(torch.float64, lengths, position, 7)

    def function(*t: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return _scan(**{**case, **dict(zip(ScanGradients._fields, t, strict=True))})

    inputs = [case[name].clone().requires_grad_() for name in ScanGradients._fields]
    # The eager loop is slow, so only random directions are tried for it. It is also what the fused one is compared to.
    assert torch.autograd.gradcheck(function, inputs, fast_mode=backend == "eager")


def test_operator_registrations() -> None:
    case = list(_case(torch.float64, [7, 3], [0, 4], 7).values())
    torch.library.opcheck(_scan_in_place, tuple(case))
    torch.library.opcheck(_scan, tuple(t.requires_grad_(t.is_floating_point()) for t in case))


@pytest.mark.parametrize("ssm", [DelaySSM(4, 8, 30), DiagonalSSM(4, 8)], ids=["delay", "diagonal"])
@torch.no_grad()
def test_stream_is_the_recurrence_of_the_paper(backend: str, ssm: DiagonalSSM) -> None:
    x = torch.randn(2, 150, 4)
    y, _ = ssm.stream(x, ssm.init_state(2))
    for row in range(2):
        for h, channel in enumerate(channels(ssm)):
            signal = x[row, :, h].double().numpy()
            truth = reference.simulate(channel, signal, 30) + ssm.D[h].item() * signal
            assert relative_rms(y[row, :, h], truth) <= 2e-7


@pytest.mark.parametrize("delay", [1.0, 1.5, 2.0, 3.25, 7.9])
@torch.no_grad()
def test_the_augmented_state_agrees(delay: float) -> None:
    """Compare with an independent oracle: powers of the companion matrix (appendix A.5)."""
    ssm = DelaySSM(1, 8, 10, delays=delay, branch_fraction=0.3, dt_min=0.05, dt_max=0.5)
    (channel,) = channels(ssm)
    truth = np.zeros(60)
    for mode in range(4):
        A = reference.companion(channel, mode)
        H = np.zeros(len(A), dtype=complex)
        H[0] = channel.b[mode]
        for t in range(60):
            truth[t] += 2 * (channel.c[mode] * H[0]).real
            H = A @ H
    assert relative_rms(reference.kernel(channel, 60, 10), truth) <= 1e-13
    assert relative_rms(ssm.kernel(60)[0], truth) <= 2e-7
    assert max(abs(np.linalg.eigvals(reference.companion(channel, 0)))) < 1


def test_the_reference_solves_a_case_by_hand() -> None:
    """With lam = 1/2, mu = 1/4, k = 2, alpha = 1/2 and c = 1/2, an impulse gives h = 1, 1/2, 3/8, 3/8."""
    half = np.array([0.5 + 0j])
    channel = reference.Channel(half, half / 2, np.array([1 + 0j]), half, 2, 0.5)
    # y = 2 Re(c h) = h. h_2 = 1/4 + 1/4 (1/2 h_0) = 3/8; h_3 = 3/16 + 1/4 (1/2 h_1 + 1/2 h_0) = 3/8.
    assert reference.kernel(channel, 4, 10).tolist() == [1.0, 0.5, 0.375, 0.375]
