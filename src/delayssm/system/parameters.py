"""From unconstrained parameters to the stable discrete system (sections 3.2 and 3.3 of the paper).

Symbols: H channels, N state modes of which the n = N/2 with non-negative index are stored (the rest
are their conjugates), D directions (1, or 2 when bidirectional). Names follow the paper without bars:
`lam`, `mu`, `b`, `c` are the discrete coefficients of

    h_t = lam h_(t-1) + mu [(1 - alpha) h_(t-k) + alpha h_(t-k-1)] + b x_t,    y_t = 2 Re(c . h_t).

The base dynamics and B may be shared: with G of them, channel h has number h mod G.

Everything here is float64 whatever the parameters are: a slow mode is a number like 1 - 1e-4, whose
distance from 1 float32 would round away.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from delayssm.system import pairs

#: Unconstrained parameters act within +-BOUND only: e^-60 is already nothing beside 1 in float64, and
#: inside this range neither a value nor a gradient can overflow.
BOUND = 60.0

#: No mode decays slower than this per step (a memory of a million steps). It keeps |lam| + |mu| below 1
#: even after rounding to float32.
MIN_DECAY = 1e-6

#: Frequencies beyond this are not distinguishable from noise, but must stay finite.
MAX_FREQUENCY = 1e30


class Coefficients(NamedTuple):
    """One discrete system per channel, in complex numbers. k = 0 marks a channel without a delayed branch."""

    lam: Tensor  # (H, n) complex128
    mu: Tensor  # (H, n) complex128
    b: Tensor  # (H, n) complex128
    c: Tensor  # (H, n) complex128, or (2, H, n) if bidirectional
    k: Tensor  # (H,) int64
    alpha: Tensor  # (H,) float64, in [0, 1)


class PairedCoefficients(NamedTuple):
    """The same in real pairs, as operators take them."""

    lam: Tensor  # (H, n, 2) float64
    mu: Tensor  # (H, n, 2) float64
    b: Tensor  # (H, n, 2) float64
    c: Tensor  # (D, H, n, 2) float64
    k: Tensor  # (H,) int64
    alpha: Tensor  # (H,) float64, in [0, 1)

    def to_complex(self) -> Coefficients:
        """Return the same numbers as complex tensors."""
        lam, mu, b, c = (torch.view_as_complex(z.contiguous()) for z in (self.lam, self.mu, self.b, self.c))
        return Coefficients(lam, mu, b, c if len(c) == 2 else c[0], self.k, self.alpha)


def step_size(nu_dt: Float[Tensor, " H"]) -> Float[Tensor, " H"]:
    """Return dt = softplus(nu_dt) > 0."""
    return F.softplus(_bounded(nu_dt))


def delay(nu_tau: Float[Tensor, " H"], max_delay: int) -> Float[Tensor, " H"]:
    """Return tau / dt = 1 + q (L_max - 2) with q = sigmoid(nu_tau): between 1 and L_max - 1 steps."""
    return 1 + torch.sigmoid(_bounded(nu_tau)) * (max_delay - 2)


def for_channels(shared: Tensor, channels: int) -> Tensor:
    """Return rows that channels share, (G, ...), as one for each channel."""
    return shared if len(shared) == channels else shared.repeat(channels // len(shared), *[1] * (shared.ndim - 1))


def diagonal(
    nu_dt: Float[Tensor, " H"],
    nu_re: Float[Tensor, "G n"],
    nu_im: Float[Tensor, "G n"],
    B: Float[Tensor, "G n 2"] | None,
    C: Float[Tensor, "D H n 2"],
) -> PairedCoefficients:
    """Return the coefficients of S4D: lam = exp(zeta dt), b = (lam - 1) / zeta * B."""
    dt = step_size(nu_dt).unsqueeze(-1)
    decay, angle = _base(nu_re, nu_im, dt)
    lam = pairs.polar(torch.exp(-decay), angle)
    b = _zero_order_hold(-decay, angle, dt, B)
    none = torch.zeros_like(nu_dt, dtype=torch.float64)
    return PairedCoefficients(lam, torch.zeros_like(lam), b, C.double(), none.long(), none)


def delayed(
    nu_dt: Float[Tensor, " H"],
    nu_re: Float[Tensor, "G n"],
    nu_im: Float[Tensor, "G n"],
    r: Float[Tensor, "H n"],
    theta: Float[Tensor, "H n"],
    nu_tau: Float[Tensor, " H"],
    B: Float[Tensor, "G n 2"] | None,
    C: Float[Tensor, "D H n 2"],
    max_delay: int,
) -> PairedCoefficients:
    """Return the coefficients of DS4D: p = sigmoid(r) shares the budget |exp(zeta dt)| < 1 between the branches.

    lam = (1 - p) exp(zeta dt),   mu = p |exp(zeta dt)| e^(i theta),   so |lam| + |mu| < 1 (Prop. 1);
    b   = (lam - 1) / lambda * B  with the effective  lambda = zeta + log(1 - p) / dt.

    B = None is the absorbed form, B = 1. The delay tau / dt = k + alpha has its gradient through alpha.
    """
    dt = step_size(nu_dt).unsqueeze(-1)
    decay, angle = _base(nu_re, nu_im, dt)
    budget = torch.exp(-decay)
    r = _bounded(r)
    lam = pairs.polar(torch.sigmoid(-r) * budget, angle)
    mu = pairs.polar(torch.sigmoid(r) * budget, theta.double())
    b = _zero_order_hold(F.logsigmoid(-r) - decay, angle, dt, B)
    steps = delay(nu_tau, max_delay)
    k = steps.detach().floor()
    return PairedCoefficients(lam, mu, b, C.double(), k.long(), steps - k)


def _base(nu_re: Tensor, nu_im: Tensor, dt: Tensor) -> tuple[Tensor, Tensor]:
    """Return -Re and Im of zeta dt, where zeta = -exp(nu_re) + i nu_im."""
    nu_re, nu_im = (for_channels(nu, len(dt)) for nu in (nu_re, nu_im))
    decay = (_bounded(nu_re).exp() * dt).clamp(MIN_DECAY, BOUND)
    return decay, nu_im.double().clamp(-MAX_FREQUENCY, MAX_FREQUENCY) * dt


def _zero_order_hold(re: Tensor, im: Tensor, dt: Tensor, B: Tensor | None) -> Tensor:
    """Return b = (e^w - 1) / (w / dt) * B for w = re + i im, the discrete exponent of the main branch."""
    b = dt.unsqueeze(-1) * pairs.expm1_over(re, im)
    return b if B is None else pairs.multiply(b, for_channels(B, len(dt)).double())


def _bounded(nu: Tensor) -> Tensor:
    return nu.double().clamp(-BOUND, BOUND)
