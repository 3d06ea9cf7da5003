"""DS4D as one would first write it: every mode at every frequency in memory, the whole batch in one FFT."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from delayssm import DelaySSM

#: The shift of the paper's appendix C.3: rho^size for a grid of `size` points.
EPS = 1e-3


def grid_size(length: int) -> int:
    """Return the grid of the paper's appendix C.3: the power of two that holds twice the length."""
    return 1 << (2 * length - 1).bit_length()


def transfer(lam: Tensor, mu: Tensor, w: Tensor, k: Tensor, alpha: Tensor, size: int, rho: float) -> Tensor:
    """Return the transfer function on the half grid in complex64.

    lam, mu, w (H, n) and k, alpha (H,) -> K(z_m) (H, size//2 + 1).
    """
    m = torch.arange(size // 2 + 1, device=k.device)
    u = rho * torch.polar(torch.ones((), device=k.device), -2 * math.pi * m / size)
    phase = -2 * math.pi * (k[:, None] * m % size) / size
    v = torch.polar((rho**k)[:, None].float(), phase) * ((1 - alpha)[:, None] + alpha[:, None] * u)
    lam, mu, w = lam[..., None], mu[..., None], w[..., None]
    K = w / (1 - lam * u - mu * v[:, None]) + w.conj() / (1 - lam.conj() * u - mu.conj() * v[:, None])
    return K.sum(1)


def kernel(ssm: DelaySSM, length: int) -> Tensor:
    """Return the impulse response (H, length) of a module, without D."""
    size = grid_size(length)
    rho = EPS ** (1 / size)
    system = ssm.discretize()
    lam, mu, w = (z.to(torch.complex64) for z in (system.lam, system.mu, system.c * system.b))
    K = torch.fft.irfft(transfer(lam, mu, w, system.k, system.alpha.float(), size, rho), n=size)[:, :length]
    restored: Tensor = K * rho ** -torch.arange(length, device=K.device)
    return restored


class TextbookBlock(nn.Module):
    """A residual pre-norm block of DS4D with that kernel."""

    def __init__(self, d_model: int, d_state: int, max_delay: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.ssm = DelaySSM(d_model, d_state, max_delay)
        self.linear = nn.Linear(d_model, 2 * d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs (B, L, H) of inputs (B, L, H)."""
        size = grid_size(x.shape[1])
        u = self.norm(x).transpose(1, 2)
        spectrum = torch.fft.rfft(u, n=size) * torch.fft.rfft(kernel(self.ssm, x.shape[1]), n=size)
        y = torch.fft.irfft(spectrum, n=size)[..., : x.shape[1]] + self.ssm.D[:, None] * u
        return x + F.glu(self.linear(F.gelu(y.transpose(1, 2))))
