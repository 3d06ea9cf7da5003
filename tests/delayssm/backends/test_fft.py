"""The transform over channels, from its butterflies up."""

import math
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayssm.backends import numba_convolution, numba_fft
from delayssm.backends.butterflies import dft, inverse_dft
from delayssm.backends.numba_vectors import VECTOR_BYTES
from delayssm.backends.ring import Ring


@numba.njit
def _transform(work: np.ndarray, m: int, ring: Any) -> None:
    numba_fft.transform(work, m, ring)


@numba.njit
def _transform_back(work: np.ndarray, m: int, ring: Any) -> None:
    numba_fft.transform_back(work, m, ring)


@pytest.mark.parametrize("radix", [2, 3, 4, 5, 8])
def test_butterflies(radix: int) -> None:
    x = [complex(a, b) for a, b in np.random.default_rng(radix).normal(size=(radix, 2))]
    truth = [sum(x[k] * np.exp(2j * math.pi * j * k / radix) for k in range(radix)) for j in range(radix)]
    np.testing.assert_allclose(dft(x), truth, atol=1e-14)
    np.testing.assert_allclose(inverse_dft(dft(x)), [radix * z for z in x], atol=1e-14)


@given(st.integers(1, 100_000))
def test_sizes_are_near(length: int) -> None:
    """Products of 64 and small primes are at most a third apart, and closer the longer they are."""
    ring = Ring.at_least(length)
    assert length <= ring.size < max(65, (4 if length < 10_000 else 3.4) / 3 * length + 64)
    assert math.prod(ring.radices) * 8 == ring.size


@pytest.mark.parametrize("length", [1, 64, 65, 128, 192, 256, 320, 384, 512, 960, 1024, 2048, 8192])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_transform_evaluates_at_the_points_of_the_ring(length: int, dtype: type) -> None:
    ring, lanes = Ring.at_least(length), VECTOR_BYTES // np.dtype(dtype).itemsize
    m = ring.size
    signal = np.random.default_rng(length).normal(size=(m, 2, lanes)).astype(dtype)
    work = signal.reshape(-1).copy()
    _transform(work, m, ring.parts(dtype))
    spectrum = work.reshape(m, 2, lanes)
    # Points are e^(2 pi i angle): turned by a quarter of a turn over m, they are the points of an ordinary transform.
    z = (signal[:, 0] + 1j * signal[:, 1]) * np.exp(2j * math.pi * np.arange(m) / (4 * m))[:, None]
    order = np.rint(ring.angles * m - 0.25).astype(int)
    truth = (np.fft.ifft(z, axis=0) * m)[order]
    tolerance = {np.float32: 5e-7, np.float64: 1e-15}[dtype]
    error = np.linalg.norm(spectrum[:, 0] + 1j * spectrum[:, 1] - truth) / np.linalg.norm(truth)
    assert error <= tolerance
    _transform_back(work, m, ring.parts(dtype))
    np.testing.assert_allclose(work.reshape(m, 2, lanes) / m, signal, atol=20 * tolerance)


@pytest.mark.parametrize("length", [1, 32, 64, 100, 320, 1024, 4000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_transform_of_real_signals(length: int, dtype: type) -> None:
    """It begins with a pass of its own, and is that of complex numbers whose imaginary parts are 0."""
    ring, lanes, rows = Ring.at_least(length), VECTOR_BYTES // np.dtype(dtype).itemsize, 3
    m, parts = ring.size, ring.parts(dtype)
    x = np.random.default_rng(length).normal(size=(rows, length, lanes)).astype(dtype)
    work = np.full((rows, 2 * m * lanes), np.nan, dtype)
    numba_convolution.transform_rows(x.reshape(-1), length, m, parts, work)
    numbers = np.zeros((rows, m, 2, lanes), dtype)
    numbers[:, :length, 0] = x
    for signal, spectrum in zip(numbers.reshape(rows, -1), work, strict=True):
        _transform(signal, m, parts)
        assert np.linalg.norm(spectrum - signal) <= np.finfo(dtype).eps * np.linalg.norm(signal)
