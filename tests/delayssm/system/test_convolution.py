"""The FFT convolution against the double sum."""

import pytest
import torch

from delayssm.system import convolution, reference
from delayssm.system.convolution import _convolve, convolve
from tests.support.numerics import relative_rms


def _truth(x: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    for row in range(len(x)):
        for h in range(x.shape[2]):
            signal, forward = x[row, :, h].numpy(), kernel[0, h].numpy()
            if len(kernel) == 2:
                y[row, :, h] = torch.from_numpy(reference.convolve_both(forward, kernel[1, h].numpy(), signal))
            else:
                y[row, :, h] = torch.from_numpy(reference.convolve(forward, signal))
    return y


@pytest.mark.parametrize("slice_bytes", [1, 2000, 1 << 22], ids=["by channel", "by row", "at once"])
@pytest.mark.parametrize("length", [1, 2, 3, 17, 40])
@pytest.mark.parametrize("directions", [1, 2])
def test_convolution_is_the_sum(
    backend: str, directions: int, length: int, slice_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(convolution._SLICE_BYTES, "cpu", slice_bytes)
    x = torch.randn(3, length, 2, dtype=torch.float64)
    kernel = torch.randn(directions, 2, length, dtype=torch.float64)
    truth = _truth(x, kernel)
    assert relative_rms(convolve(x, kernel), truth) <= 1e-14
    assert relative_rms(convolve(x.float(), kernel.float()), truth) <= 1e-6
    apart = x.transpose(1, 2).contiguous().transpose(1, 2)  # the same numbers in another memory order
    assert torch.equal(convolve(apart, kernel), convolve(x, kernel))


@pytest.mark.parametrize("slice_bytes", [1, 1 << 22])
@pytest.mark.parametrize("length", [1, 9])
@pytest.mark.parametrize("directions", [1, 2])
def test_gradients(
    backend: str, directions: int, length: int, slice_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(convolution._SLICE_BYTES, "cpu", slice_bytes)
    x = torch.randn(2, length, 2, dtype=torch.float64, requires_grad=True)
    kernel = torch.randn(directions, 2, length, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(convolve, (x, kernel))


def test_operator_registrations() -> None:
    x, kernel = torch.randn(2, 9, 3, requires_grad=True), torch.randn(1, 3, 9, requires_grad=True)
    torch.library.opcheck(_convolve, (x, kernel))
