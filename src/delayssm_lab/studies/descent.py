"""Training single channels from a wrong delay to the right one, by plain and by widened interpolation.

A delay has its gradient through the interpolation between two neighbouring lags, so that it sees no further than its
inputs are correlated. A kernel that is wide at first, and narrows in training, sees further: the idea is that of
dilated convolutions with learnable spacings. This is an experiment; no layer of the library has such a kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from delayssm.backends.lengths import fast_length
from delayssm.layers.delay_ssm import DelaySSM
from delayssm.layers.optim import param_groups
from delayssm.system import plain
from delayssm.system.kernel import CONTOURS
from delayssm_lab.study import Readings

#: Length of the series.
LENGTH = 512
#: Series that each channel sees in one step of training.
ROWS = 4
#: A lag counts as found when the delay has come this near to it, in steps.
NEAR = 1.0


@dataclass(frozen=True)
class Descent:
    """Training of single channels, each to delay its own input by a lag, from a wrong delay on."""

    lag: int
    offset: float  #: delay at the start, less the lag
    correlation: float  #: correlation of the inputs with themselves one step later
    width: float  #: half-width of the interpolation kernel at the start; 1 is that of the library
    steps: int
    channels: int
    max_delay: int


def descend(point: Descent) -> Readings:
    """Train channels side by side; they are independent, so that each is one trial."""
    random = np.random.default_rng(0)
    torch.manual_seed(0)
    start = point.lag + point.offset
    layer = DelaySSM(point.channels, 8, point.max_delay, delays=start, branch_fraction=0.5, phase=0.0)
    optimiser = torch.optim.AdamW(param_groups(layer, lr=1e-2))
    for step in range(point.steps):
        x = correlated(random, point.correlation, ROWS * point.channels)
        inputs, targets = (
            torch.from_numpy(series).float().view(ROWS, point.channels, -1).mT for series in (x, delayed(x, point.lag))
        )
        loss = (respond(layer, inputs, width_at(step, point)) - targets).square().mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    delays = layer.delays().detach().double()
    return {
        "median distance at the end": float((delays - point.lag).abs().median()),
        "at the lag": _share_near(delays, point.lag),
        "at half of the lag": _share_near(delays, point.lag / 2),
    }


def _share_near(delays: Float[Tensor, " H"], lag: float) -> float:
    return float(((delays - lag).abs() < NEAR).double().mean())


def width_at(step: int, point: Descent) -> float:
    """Return the half-width at a step: it shrinks geometrically to 1 in the first half of training."""
    return float(point.width ** max(0.0, 1 - 2 * step / point.steps))


def respond(layer: DelaySSM, x: Float[Tensor, "B L H"], width: float) -> Float[Tensor, "B L H"]:
    """Return the outputs of a layer whose delayed branch reads a triangle of a half-width of `width` steps."""
    if width == 1:
        y: Tensor = layer(x)
        return y
    K = wide_kernel(layer, x.shape[1], width)
    return plain.convolve(x, K.to(x.dtype)[None]) + layer.D * x


def wide_kernel(layer: DelaySSM, length: int, width: float) -> Float[Tensor, "L H"]:
    """Return the impulse response, without D, of a layer whose delayed branch reads more than two neighbouring lags.

        K(z) = sum over n of  c_n b_n / (1 - lam_n z^-1 - mu_n W(z)),    W(z) = sum over lags j of w_j z^-j,
        w_j  = max(0, 1 - |j - tau| / width), divided by their sum, for lags j of at least 1.

    A half-width of 1 gives w_k = 1 - alpha and w_(k+1) = alpha, the interpolation of the library. |W| is at most 1 on
    the unit circle, so that the condition of stability stays the same. As in `delayssm.system.kernel`, the transfer
    function is sampled on a circle on which its echoes are small.
    """
    contour = CONTOURS["exact"]
    size = fast_length(length + length // 8)
    lam, mu, b, c, _, _ = layer.discretize()
    rho = contour.eps ** (1 / size)
    lags = torch.arange(1, layer.max_delay + math.ceil(width), dtype=torch.float64)
    triangle = (1 - (lags - layer.delays().double()[:, None]).abs() / width).clamp(min=0)
    damped = triangle / triangle.sum(1, keepdim=True) * rho**lags
    W = torch.fft.rfft(torch.nn.functional.pad(damped, (1, 0)), n=size)[:, None]  # lags of `size` or more are not heard
    u = rho * torch.exp(-2j * math.pi * torch.arange(size // 2 + 1, dtype=torch.float64) / size)
    w, lam, mu = ((c * b)[..., None], lam[..., None], mu[..., None])
    K = (w / (1 - lam * u - mu * W) + w.conj() / (1 - lam.conj() * u - mu.conj() * W)).sum(1)
    impulse: Tensor = torch.fft.irfft(K, n=size)[:, :length] * rho ** -torch.arange(length, dtype=torch.float64)
    return impulse.T


def correlated(random: np.random.Generator, correlation: float, rows: int) -> NDArray[np.float64]:
    """Return series of variance 1 that are autoregressive of first order, (rows, LENGTH)."""
    x = random.normal(size=(LENGTH, rows))
    x[1:] *= math.sqrt(1 - correlation**2)
    if correlation:
        for t in range(1, LENGTH):
            x[t] += correlation * x[t - 1]
    return x.T.copy()


def delayed(x: NDArray[np.float64], lag: int) -> NDArray[np.float64]:
    """Return series some steps later, after zeros."""
    return np.concatenate([np.zeros_like(x[:, :lag]), x[:, : x.shape[1] - lag]], axis=1)
