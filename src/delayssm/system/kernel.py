"""The convolution kernel of a delay system, from its transfer function on a shifted contour (section 4).

Delayed feedback leaves no closed form in time, but in frequency there is one:

    K(z) = sum_n c_n b_n / (1 - lam_n z^-1 - mu_n z^-k [(1 - alpha) + alpha z^-1]).

Sampled at M points of the circle |z| = 1/rho and transformed back it gives rho^t K_t plus its own echo
rho^(t+M) K_(t+M), ... The echoes are eps = rho^M times smaller than the kernel; dividing by rho^t, on the other
hand, amplifies rounding by up to 1/eps.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from delayssm import backends
from delayssm.system import pairs
from delayssm.system.fft import fast_length
from delayssm.system.parameters import Coefficients


@dataclass(frozen=True)
class Contour:
    """Where and how precisely the transfer function is sampled."""

    dtype: torch.dtype
    eps: float
    grid: Callable[[int], int]
    """Number of points M for a kernel of a given length."""


def _barely_longer(length: int) -> int:
    return fast_length(length + length // 8)


def _four_times(length: int) -> int:
    return fast_length(4 * length)


def _twice_to_a_power_of_two(length: int) -> int:
    return 1 << (2 * length - 1).bit_length()


#: The grid only has to cover the kernel: the shift takes care of what lies beyond. In float64, 1e-8 makes the echo
#: small enough, and an eighth of room at the end, where rounding is amplified the most, keeps that below the echo too.
EXACT = Contour(torch.float64, 1e-8, _barely_longer)

#: For devices where float64 is slow. The wider grid leaves room between an echo and the rounding that is amplified; the
#: relative RMS error of kernels is a few 1e-6.
FLOAT32 = Contour(torch.float32, 1e-5, _four_times)

#: The setting of the paper's appendix C.3.
PAPER = Contour(torch.float32, 1e-3, _twice_to_a_power_of_two)


def kernel(system: Coefficients, length: int, contour: Contour = EXACT) -> Float[Tensor, "D H {length}"]:
    """K_t = 2 Re sum_n c_n h_(t,n) for a unit impulse, t < length, of a system given in pairs; without D."""
    w = pairs.multiply(system.b, system.c)
    # A delay of `length` or more cannot be heard within `length` samples.
    k = torch.where(system.k < length, system.k, 0)
    coefficients = [system.lam, system.mu, w, k, system.alpha]
    result: Tensor = _kernel(coefficients, length, contour.grid(length), contour.eps, contour.dtype)
    return result


@torch.library.custom_op("delayssm::kernel", mutates_args=())
def _kernel(system: Sequence[Tensor], length: int, size: int, eps: float, dtype: torch.dtype) -> Tensor:
    K = backends.active(system[0].device.type).transfer(system, size, eps ** (1 / size), dtype)
    damped: Tensor = torch.fft.irfft(torch.view_as_complex(K), n=size)[..., :length]
    return damped * _restore(length, size, eps, dtype, K.device)


@_kernel.register_fake
def _(system: Sequence[Tensor], length: int, size: int, eps: float, dtype: torch.dtype) -> Tensor:
    w = system[2]
    return w.new_empty(w.shape[0], w.shape[1], length, dtype=dtype)


@torch.library.custom_op("delayssm::kernel_backward", mutates_args=())
def _kernel_backward(grad: Tensor, system: Sequence[Tensor], size: int, eps: float) -> list[Tensor]:
    G = torch.fft.rfft(grad * _restore(grad.shape[-1], size, eps, grad.dtype, grad.device), n=size) / size
    G[..., 1 : (size + 1) // 2] *= 2  # the half grid stands for both halves, save for its ends
    backend = backends.active(grad.device.type)
    return backend.transfer_backward(torch.view_as_real(G), system, size, eps ** (1 / size))


@_kernel_backward.register_fake
def _(grad: Tensor, system: Sequence[Tensor], size: int, eps: float) -> list[Tensor]:
    lam, mu, w, _, alpha = system
    return [torch.empty_like(t) for t in (lam, mu, w, alpha)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    system, _, ctx.size, ctx.eps, _ = inputs
    ctx.save_for_backward(*system)


def _backward(ctx: Any, grad: Tensor) -> tuple[list[Tensor | None], None, None, None, None]:
    lam, mu, w, alpha = _kernel_backward(grad, list(ctx.saved_tensors), ctx.size, ctx.eps)
    return [lam, mu, w, None, alpha], None, None, None, None


_kernel.register_autograd(_backward, setup_context=_save)


@functools.lru_cache(maxsize=32)
def _restore(length: int, size: int, eps: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """rho^-t for t < length, where rho^size = eps."""
    t = torch.arange(length, dtype=torch.float64, device=device)
    return torch.pow(eps, -t / size).to(dtype)
