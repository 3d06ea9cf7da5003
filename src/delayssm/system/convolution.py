"""Causal and bidirectional convolution by FFT, in slices that stay in cache.

A transform of a whole batch spends most of its time moving padded temporaries through memory. Here the batch is
processed in slices. Only x and the kernel are kept for the backward pass, which computes the spectra again.
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from delayssm import backends
from delayssm.system.fft import fast_length

#: Size of one padded slice. A slice has three temporaries of this size.
_SLICE_BYTES = {"cpu": 1 << 22}
_SLICE_BYTES_ELSEWHERE = 1 << 28


def convolve(x: Float[Tensor, "B L H"], kernel: Float[Tensor, "D H L"]) -> Float[Tensor, "B L H"]:
    """Return y_t = sum over s <= t of K_0[t - s] x_s; with a second kernel, + sum over s > t of K_1[s - t - 1] x_s."""
    result: Tensor = _convolve(x, kernel)
    return result


@torch.library.custom_op("delayssm::convolve", mutates_args=())
def _convolve(x: Tensor, kernel: Tensor) -> Tensor:
    size = fast_length(2 * x.shape[1] - 1)
    spectrum = torch.fft.rfft(_circular(kernel, size))
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    padded = _Padded(x, size)
    for rows, channels in _slices(x, size):
        X = padded.spectrum(x, rows, channels)
        X *= spectrum[channels]
        _store(y, X, rows, channels, size)
    return y


@_convolve.register_fake
def _(x: Tensor, kernel: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("delayssm::convolve_backward", mutates_args=())
def _convolve_backward(grad: Tensor, x: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    size = fast_length(2 * x.shape[1] - 1)
    conjugate = torch.fft.rfft(_circular(kernel, size)).conj_physical_()
    g_spectrum = torch.zeros_like(conjugate)
    g_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    padded = _Padded(x, size)
    for rows, channels in _slices(x, size):
        X = padded.spectrum(x, rows, channels)
        G = padded.spectrum(grad, rows, channels)
        for X_row, G_row in zip(X.conj_physical_(), G, strict=True):
            g_spectrum[channels].addcmul_(X_row, G_row)
        G *= conjugate[channels]
        _store(g_x, G, rows, channels, size)
    return g_x, _uncircular(torch.fft.irfft(g_spectrum, n=size), kernel)


@_convolve_backward.register_fake
def _(grad: Tensor, x: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x, memory_format=torch.contiguous_format), torch.empty_like(kernel)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    g_x, g_kernel = _convolve_backward(grad, *ctx.saved_tensors)
    return g_x, g_kernel


_convolve.register_autograd(_backward, setup_context=_save)


def _circular(kernel: Tensor, size: int) -> Tensor:
    """Turn (D, H, L) into (H, size): K_0[t] at lag t, K_1[t] at lag -(t + 1), which is size - 1 - t."""
    _, channels, length = kernel.shape
    full = kernel.new_zeros(channels, size)
    full[:, :length] = kernel[0]
    if len(kernel) == 2 and length > 1:
        full[:, -(length - 1) :] = kernel[1, :, : length - 1].flip(-1)
    return full


def _uncircular(full: Tensor, kernel: Tensor) -> Tensor:
    """Apply the adjoint of `_circular`."""
    length = kernel.shape[-1]
    g = torch.zeros_like(kernel, memory_format=torch.contiguous_format)
    g[0] = full[:, :length]
    if len(kernel) == 2 and length > 1:
        g[1, :, : length - 1] = full[:, -(length - 1) :].flip(-1)
    return g


def _slices(x: Tensor, size: int) -> Iterator[tuple[slice, slice]]:
    """Yield some rows of all channels at a time, or where one row is too much, some channels of one row."""
    batch, _, width = x.shape
    lines = max(1, _SLICE_BYTES.get(x.device.type, _SLICE_BYTES_ELSEWHERE) // (size * x.element_size()))
    channels, rows = min(width, lines), max(1, lines // width)
    for h in range(0, width, channels):
        for i in range(0, batch, rows):
            yield slice(i, min(i + rows, batch)), slice(h, min(h + channels, width))


class _Padded:
    """A buffer for one slice, channels before time, with zeros after the signal that are written only once."""

    def __init__(self, x: Tensor, size: int) -> None:
        rows, channels = next(_slices(x, size))
        # A little more than is used: lines a power of two apart would compete for the same places in the cache.
        self.buffer = x.new_zeros(rows.stop, channels.stop, size + 16)[..., :size]

    def spectrum(self, x: Tensor, rows: slice, channels: slice) -> Tensor:
        signal = x[rows, :, channels]
        buffer = self.buffer[: len(signal), : signal.shape[2]]
        backends.active(x.device.type).transpose(signal, buffer[..., : signal.shape[1]])
        spectrum: Tensor = torch.fft.rfft(buffer)
        return spectrum


def _store(y: Tensor, spectrum: Tensor, rows: slice, channels: slice, size: int) -> None:
    signal = torch.fft.irfft(spectrum, n=size)[..., : y.shape[1]]
    backends.active(y.device.type).transpose(signal, y[rows, :, channels])
