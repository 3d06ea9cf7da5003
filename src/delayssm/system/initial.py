"""Where training starts (section 3.4 of the paper). Each function returns unconstrained parameters.

H channels, n = N/2 stored modes. `device` and `dtype` are those of the parameters.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from delayssm.system.parameters import BOUND, for_channels, step_size

#: Half-width of the margin that the delay grid leaves at both ends of (0, 1).
GRID_MARGIN = 1e-3

#: Standard deviation of the phase around its centre.
PHASE_NOISE = 0.01

Spectrum = Literal["lin", "inv"]
if TYPE_CHECKING:  # what users may pass; configurations keep it as numbers and tuples
    Fraction = float | Sequence[float] | Sequence[Sequence[float]] | Tensor
    Delays = Literal["grid"] | float | Sequence[float] | Tensor
else:
    #: One fraction p for all modes; or (first, last), spread geometrically over the modes; or rows of one fraction, or
    #: one per mode, one row for each channel or one for all.
    Fraction = float | tuple[float, float] | tuple[tuple[float, ...], ...]
    #: An even grid; or steps, one number for all channels or one for each.
    Delays = Literal["grid"] | float | tuple[float, ...]


def base(H: int, N: int, spectrum: Spectrum) -> tuple[Float[Tensor, "H n"], Float[Tensor, "H n"]]:
    """Return nu_re and nu_im of zeta_n = -1/2 + i pi n (S4D-Lin) or -1/2 + i N/pi (N/(2n+1) - 1) (S4D-Inv)."""
    mode = torch.arange(N // 2, dtype=torch.float64, device="cpu")
    frequency = math.pi * mode if spectrum == "lin" else N / math.pi * (N / (2 * mode + 1) - 1)
    nu_re = torch.full((H, N // 2), math.log(0.5), dtype=torch.float64, device="cpu")
    return nu_re, frequency.expand(H, -1)


def step_sizes(H: int, dt_min: float, dt_max: float, device: torch.device) -> Float[Tensor, " H"]:
    """Return nu_dt for dt log-uniform in [dt_min, dt_max]."""
    log_dt = torch.empty(H, dtype=torch.float64, device=device).uniform_(math.log(dt_min), math.log(dt_max))
    return inverse_step_size(log_dt.exp())


def inverse_step_size(dt: Float[Tensor, " H"]) -> Float[Tensor, " H"]:
    """Return nu_dt with softplus(nu_dt) = dt."""
    return torch.where(dt > 20, dt, dt.clamp(max=20).expm1().log())  # beyond 20 they are equal to 2e-9


def branch(H: int, n: int, fraction: Fraction) -> Float[Tensor, "H n"]:
    """Return r = logit(p). p = 0 switches the delayed branch off for good."""
    if isinstance(fraction, tuple) and not isinstance(fraction[0], tuple):
        first, last = map(float, fraction)
        p = torch.logspace(math.log10(first), math.log10(last), n, dtype=torch.float64, device="cpu")
    else:
        p = torch.tensor(fraction, dtype=torch.float64, device="cpu")
    return torch.logit(p).clamp(-BOUND, BOUND).expand(H, n)


def echoes(
    nu_dt: Float[Tensor, " H"], nu_re: Float[Tensor, "G n"], share: float
) -> tuple[Float[Tensor, "G n"], Float[Tensor, "H n"]]:
    """Return nu_re and r of a delay system that has the main branch of a given S4D system.

    A mode that decays by d = -Re(zeta dt) per step gives the share f of it to the delayed branch: with zeta' such that
    d' = (1 - f) d, and 1 - p = e^(-f d), lam = (1 - p) exp(zeta' dt) = exp(zeta dt) and b are unchanged. What is new is
    mu, with |mu| / (1 - |lam|) = (e^(f d) - 1) / (e^d - 1) <= f. So the transfer function of each mode changes by at
    most f / (1 - f) of itself, at every frequency.
    """
    decay = for_channels(nu_re.double(), len(nu_dt)).exp() * step_size(nu_dt).unsqueeze(-1)
    return nu_re.double() + math.log1p(-share), torch.expm1(share * decay).log().clamp(-BOUND, BOUND)


def phases(H: int, n: int, centre: float, device: torch.device, dtype: torch.dtype) -> Float[Tensor, "H n"]:
    """Return theta near `centre` (omega), with a little noise."""
    return centre + PHASE_NOISE * torch.randn(H, n, device=device, dtype=dtype)


def delay_locations(H: int, max_delay: int, delays: Delays, device: torch.device) -> Float[Tensor, " H"]:
    """Return nu_tau = logit(q) for delays on an even grid in random order, or for given delays in steps.

    The grid is q_j = e + (j - 1/2) / H (1 - 2e), j = 1..H. Given delays lie within [1, max_delay - 1]; at either end
    the sigmoid is flat, so a delay placed exactly there stays there.
    """
    if delays == "grid":
        j = torch.randperm(H, device=device).double() + 1
        q = GRID_MARGIN + (j - 0.5) / H * (1 - 2 * GRID_MARGIN)
    else:
        q = ((torch.tensor(delays, dtype=torch.float64, device="cpu") - 1) / (max_delay - 2)).expand(H)
    return torch.logit(q).clamp(-BOUND, BOUND)


def output(D: int, H: int, n: int, device: torch.device, dtype: torch.dtype) -> Float[Tensor, "D H n 2"]:
    """Return C, complex standard normal."""
    return torch.randn(D, H, n, 2, device=device, dtype=dtype) * math.sqrt(0.5)


def ones(H: int, n: int) -> Float[Tensor, "H n 2"]:
    """Return B = 1."""
    return torch.tensor([1.0, 0.0], dtype=torch.float64, device="cpu").expand(H, n, 2)
