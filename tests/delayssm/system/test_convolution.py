"""The convolution: against the double sum, and the transform over channels against the plain one of torch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from delayssm.backends import eager, numba_cpu, threads
from delayssm.system import reference
from delayssm.system.convolution import _convolve, convolve
from tests.support.numerics import relative_rms


def _truth(x: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    for row in range(len(x)):
        for h in range(x.shape[2]):
            signal, forward = x[row, :, h].numpy(), kernel[0, :, h].numpy()
            if len(kernel) == 2:
                y[row, :, h] = torch.from_numpy(reference.convolve_both(forward, kernel[1, :, h].numpy(), signal))
            else:
                y[row, :, h] = torch.from_numpy(reference.convolve(forward, signal))
    return y


@pytest.mark.parametrize("slice_bytes", [1, 2000, 1 << 22], ids=["by channel", "by row", "at once"])
@pytest.mark.parametrize("length", [1, 2, 3, 17, 40])
@pytest.mark.parametrize("directions", [1, 2])
def test_convolution_is_the_sum(
    backend: str, directions: int, length: int, slice_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(eager._SLICE_BYTES, "cpu", slice_bytes)
    x = torch.randn(3, length, 2, dtype=torch.float64)
    kernel = torch.randn(directions, length, 2, dtype=torch.float64)
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
    monkeypatch.setitem(eager._SLICE_BYTES, "cpu", slice_bytes)
    x = torch.randn(2, length, 2, dtype=torch.float64, requires_grad=True)
    kernel = torch.randn(directions, length, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(convolve, (x, kernel))


#: Lengths on both sides of what a vector, a pass and a transform hold, and any in between.
LENGTHS = st.sampled_from([1, 2, 63, 64, 65, 320, 4096, 4097, 70_000]) | st.integers(1, 700) | st.integers(1, 70_000)


@given(
    length=LENGTHS,
    batch=st.sampled_from([1, 2, 3, 16, 17, 33]),
    width=st.integers(1, 40),
    directions=st.integers(1, 2),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60)
def test_transform_over_channels_equals_torch(
    length: int, batch: int, width: int, directions: int, dtype: torch.dtype, seed: int
) -> None:
    """Outputs and every gradient; the error is that of torch's own transforms in the same precision, or less."""
    torch.manual_seed(seed)
    if length > 700:  # 70,000 x 4 float64 numbers and their gradients are enough
        batch, width = min(batch, 3), min(width, 4)
    x, g = torch.randn(2, batch, length, width, dtype=torch.float64).to(dtype)
    kernel = torch.randn(directions, length, width, dtype=torch.float64).to(dtype)
    exact = [t.double() for t in (x, kernel, g)]
    truth = [eager.convolve(*exact[:2]), *eager.convolve_backward(exact[2], *exact[:2])]
    ours = [numba_cpu.convolve(x, kernel), *numba_cpu.convolve_backward(g, x, kernel)]
    bound = 1e-14 if dtype == torch.float64 else 1e-6
    for result, expected, terms in zip(ours, truth, (length, length, batch * length), strict=True):
        assert result.dtype == dtype
        assert result.is_contiguous()
        # Few sums of random numbers can all be small by chance, which makes them no more accurate.
        size = max(float(expected.square().mean().sqrt()), 0.5 * terms**0.5)
        assert float((result.double() - expected).square().mean().sqrt()) <= bound * size


@pytest.mark.parametrize("batch", [1, 40])
@pytest.mark.parametrize("width", [16, 133])
def test_results_do_not_depend_on_the_number_of_threads(
    batch: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, g = torch.randn(2, batch, 100, width)
    kernel = torch.randn(1, 100, width)
    results = []
    for count in (1, 2, 3, 8):
        monkeypatch.setattr(threads.torch, "get_num_threads", lambda count=count: count)
        monkeypatch.setattr(threads, "_PARALLEL_WORK", 0)
        results.append([numba_cpu.convolve(x, kernel), *numba_cpu.convolve_backward(g, x, kernel)])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_operator_registrations() -> None:
    x, kernel = torch.randn(2, 9, 3, requires_grad=True), torch.randn(1, 9, 3, requires_grad=True)
    torch.library.opcheck(_convolve, (x, kernel))
