"""The convolution kernel of a delay system, from its transfer function on a shifted contour (section 4).

Whatever the delay, it has a simple form in frequency:

    K(z) = sum_n c_n b_n / (1 - lam_n z^-1 - mu_n z^-k [(1 - alpha) + alpha z^-1]).

Sampled at M points of the circle |z| = 1/rho and transformed back, it gives rho^t K_t plus its own echoes
rho^(t+M) K_(t+M), ... The echoes are eps = rho^M times smaller than the kernel. Dividing by rho^t, on the other hand,
amplifies rounding errors by up to 1/eps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor

from delayssm import backends
from delayssm.backends import eager
from delayssm.backends.lengths import fast_length
from delayssm.system import pairs, plain
from delayssm.system.parameters import PairedCoefficients

ContourName = Literal["exact", "float32", "paper"]
if TYPE_CHECKING:
    Length = int
else:
    Length = int | torch.SymInt  # in a graph for any length, a symbol stands for the number


@dataclass(frozen=True)
class Contour:
    """Where, and in which precision, the transfer function is sampled.

    Args:
        dtype: Precision of the transfer function and of its transform.
        eps: Size of an echo relative to the kernel.
        grid: Returns the number of points M for a kernel of a given length.
    """

    dtype: torch.dtype
    eps: float
    grid: Callable[[int], int]


def _barely_longer(length: int) -> int:
    return fast_length(length + length // 8)


def _four_times(length: int) -> int:
    return fast_length(4 * length)


def _twice_to_a_power_of_two(length: int) -> int:
    return 1 << (2 * length - 1).bit_length()


CONTOURS: dict[ContourName, Contour] = {
    # The grid only has to cover the kernel: the shift takes care of what lies beyond. In float64, 1e-8 makes the echo
    # small enough, and an eighth of room at the end, where rounding is amplified the most, keeps that below the echo.
    "exact": Contour(torch.float64, 1e-8, _barely_longer),
    # For devices where float64 is slow. The wider grid leaves room between an echo and the rounding that is amplified;
    # the relative RMS error of kernels is a few 1e-6.
    "float32": Contour(torch.float32, 1e-5, _four_times),
    # The setting of the paper's appendix C.3.
    "paper": Contour(torch.float32, 1e-3, _twice_to_a_power_of_two),
}


def kernel(
    system: PairedCoefficients,
    length: Length,
    contour: ContourName = "exact",
    skip: Float[Tensor, " H"] | None = None,
    dtype: torch.dtype = torch.float64,
) -> Float[Tensor, "D L H"]:
    """Return K_t = 2 Re sum_n c_n h_(t,n) for a unit impulse, t < length.

    The skip term D of the output equation, if given, is added to K_0 of the first direction.
    """
    w = pairs.multiply(system.b, system.c)
    # A delay of `length` or more cannot be heard within `length` samples.
    k = torch.where(system.k < length, system.k, 0)
    skip = torch.zeros_like(system.alpha) if skip is None else skip.double()
    operator = _formula if plain.wanted() else _kernel
    K: Tensor = operator(system.lam, system.mu, w, k, system.alpha, skip, length, contour, dtype)
    return K


def _numbers(length: int, contour: str) -> dict[str, Any]:
    """Return the size of the grid and the numerics for a kernel of some length.

    Operators choose them when they run, because the length may be a symbol in a graph that calls them.
    """
    chosen = CONTOURS[cast(ContourName, contour)]
    return {"size": chosen.grid(length), "eps": chosen.eps, "dtype": chosen.dtype}


def _formula(
    lam: Tensor, mu: Tensor, w: Tensor, k: Tensor, alpha: Tensor, skip: Tensor, length: int, contour: str,
    result: torch.dtype,
) -> Tensor:  # fmt: skip
    return eager.kernel(
        lam=lam, mu=mu, w=w, k=k, alpha=alpha, skip=skip, length=length, result=result, **_numbers(length, contour)
    )


@torch.library.custom_op("delayssm::kernel", mutates_args=())
def _kernel(
    lam: Tensor, mu: Tensor, w: Tensor, k: Tensor, alpha: Tensor, skip: Tensor, length: int, contour: str,
    result: torch.dtype,
) -> Tensor:  # fmt: skip
    return backends.active(w.device.type).kernel(
        lam=lam, mu=mu, w=w, k=k, alpha=alpha, skip=skip, length=length, result=result, **_numbers(length, contour)
    )


@_kernel.register_fake
def _(
    lam: Tensor, mu: Tensor, w: Tensor, k: Tensor, alpha: Tensor, skip: Tensor, length: Length,
    contour: str, result: torch.dtype,
) -> Tensor:  # fmt: skip
    return w.new_empty(w.shape[0], length, w.shape[1], dtype=result)


@torch.library.custom_op("delayssm::kernel_backward", mutates_args=())
def _kernel_backward(
    grad: Tensor, lam: Tensor, mu: Tensor, w: Tensor, k: Tensor, alpha: Tensor, contour: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of lam, mu, w and alpha."""
    g = backends.active(grad.device.type).kernel_backward(
        grad=grad, lam=lam, mu=mu, w=w, k=k, alpha=alpha, **_numbers(grad.shape[1], contour)
    )
    return g.lam, g.mu, g.w, g.alpha


@_kernel_backward.register_fake
def _(
    grad: Tensor, lam: Tensor, mu: Tensor, w: Tensor, k: Tensor, alpha: Tensor, contour: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return torch.empty_like(lam), torch.empty_like(mu), torch.empty_like(w), torch.empty_like(alpha)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, _, _, _ = inputs
    ctx.save_for_backward(*tensors)
    ctx.numbers = inputs[len(tensors) :]


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    if plain.in_a_graph():
        tensors = ctx.saved_tensors
        gradients = plain.backward(lambda *tensors: _formula(*tensors, *ctx.numbers), tensors, grad)
        return *gradients, None, None, None
    *system, _ = ctx.saved_tensors
    _, contour, _ = ctx.numbers
    lam, mu, w, alpha = _kernel_backward(grad, *system, contour)
    return lam, mu, w, None, alpha, grad[0, 0].double(), None, None, None


_kernel.register_autograd(_backward, setup_context=_save)
