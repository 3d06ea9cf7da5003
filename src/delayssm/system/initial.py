"""Where training starts (section 3.4 of the paper). Each function returns unconstrained parameters.

H channels, n = N/2 stored modes.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from delayssm.system.parameters import BOUND

#: Half-width of the margin that the delay grid leaves at both ends of (0, 1).
GRID_MARGIN = 1e-3

#: Standard deviation of the phase around its centre.
PHASE_NOISE = 0.01

Spectrum = Literal["lin", "inv"]
Fraction = float | tuple[float, float] | Tensor
Delays = Literal["grid"] | float | Sequence[float] | Tensor


def base(H: int, N: int, spectrum: Spectrum) -> tuple[Float[Tensor, "H n"], Float[Tensor, "H n"]]:
    """(nu_re, nu_im) of zeta_n = -1/2 + i pi n (S4D-Lin) or -1/2 + i N/pi (N/(2n+1) - 1) (S4D-Inv)."""
    mode = torch.arange(N // 2, dtype=torch.float64)
    match spectrum:
        case "lin":
            frequency = math.pi * mode
        case "inv":
            frequency = N / math.pi * (N / (2 * mode + 1) - 1)
        case _:
            raise ValueError(f'init must be "lin" (S4D-Lin) or "inv" (S4D-Inv), not {spectrum!r}')
    nu_re = torch.full((H, N // 2), math.log(0.5))
    return nu_re, frequency.float().expand(H, -1).clone()


def step_sizes(H: int, dt_min: float, dt_max: float) -> Float[Tensor, " H"]:
    """nu_dt for dt log-uniform in [dt_min, dt_max]."""
    if not 0 < dt_min <= dt_max < BOUND:
        raise ValueError(f"step sizes need 0 < dt_min <= dt_max < {BOUND:g}, not {dt_min} and {dt_max}")
    log_dt = torch.empty(H, dtype=torch.float64).uniform_(math.log(dt_min), math.log(dt_max))
    return log_dt.exp().expm1().log().float()  # the inverse of softplus


def branch(H: int, n: int, fraction: Fraction) -> Float[Tensor, "H n"]:
    """r = logit(p): one fraction p for all modes; or (first, last), spread geometrically over the modes; or
    a tensor of shape (n,) or (H, n). p = 0 switches the delayed branch off for good.
    """
    if isinstance(fraction, Tensor):
        if fraction.shape not in ((n,), (H, n)):
            raise ValueError(
                f"branch_fraction per mode must have shape ({n},) or ({H}, {n}), not {tuple(fraction.shape)}"
            )
        p = fraction.detach().cpu().double()
    elif isinstance(fraction, tuple):
        first, last = fraction
        if not 0 < min(first, last) <= max(first, last) < 1:
            raise ValueError(f"branch_fraction is spread between two values inside (0, 1), not {fraction}")
        p = torch.logspace(math.log10(first), math.log10(last), n, dtype=torch.float64, device="cpu")
    else:
        p = torch.tensor(float(fraction), dtype=torch.float64, device="cpu")
    if not bool(((p >= 0) & (p < 1)).all()):
        raise ValueError(f"branch_fraction must lie in [0, 1), not {fraction}")
    return torch.logit(p).clamp(-BOUND, BOUND).float().expand(H, n).clone().to(torch.get_default_device())


def phases(H: int, n: int, centre: float) -> Float[Tensor, "H n"]:
    """theta: near `centre` (omega), with a little noise."""
    if not math.isfinite(centre):
        raise ValueError(f"phase must be a finite angle in radians, not {centre}")
    return centre + PHASE_NOISE * torch.randn(H, n)


def delay_locations(H: int, max_delay: int, delays: Delays) -> Float[Tensor, " H"]:
    """nu_tau = logit(q): delays on an even grid in random order, one for all channels, or one per channel.

    The grid is q_j = e + (j - 1/2) / H (1 - 2e), j = 1..H. Given delays are in steps, within
    [1, max_delay - 1]; at either end the sigmoid is flat, so a delay placed exactly there stays there.
    """
    if isinstance(delays, str):
        if delays != "grid":
            raise ValueError(f'delays must be "grid", a number of steps, or one number per channel, not {delays!r}')
        j = torch.randperm(H).double() + 1
        q = GRID_MARGIN + (j - 0.5) / H * (1 - 2 * GRID_MARGIN)
    else:
        steps = torch.as_tensor(delays, dtype=torch.float64, device="cpu").detach()
        if steps.shape not in ((), (H,)):
            raise ValueError(f"delays must be one number or one per channel ({H}), not shape {tuple(steps.shape)}")
        outside = ~((steps >= 1) & (steps <= max_delay - 1))
        if bool(outside.any()):
            worst = steps[outside].flatten()[0].item()
            raise ValueError(
                f"a delay of {worst:g} steps is outside [1, {max_delay - 1}]; raise max_delay (now {max_delay}) "
                "or move the delay"
            )
        q = ((steps - 1) / (max_delay - 2)).expand(H)
    return torch.logit(q).clamp(-BOUND, BOUND).float().to(torch.get_default_device())


def output(D: int, H: int, n: int) -> Float[Tensor, "D H n 2"]:
    """C: complex standard normal."""
    return torch.randn(D, H, n, 2) * math.sqrt(0.5)


def ones(H: int, n: int) -> Float[Tensor, "H n 2"]:
    """B = 1."""
    return torch.tensor([1.0, 0.0]).expand(H, n, 2).clone()
