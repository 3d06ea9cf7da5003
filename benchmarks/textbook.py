"""DS4D as one would first write it: every mode at every frequency in memory, the whole batch in one FFT."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from delayssm import DelaySSM


def transfer(lam: Tensor, mu: Tensor, w: Tensor, k: Tensor, alpha: Tensor, size: int, rho: float) -> Tensor:
    """K(z_m) on the half grid in complex64: lam, mu, w (H, n) and k, alpha (H,) -> (H, size//2 + 1)."""
    m = torch.arange(size // 2 + 1)
    u = rho * torch.polar(torch.tensor(1.0), -2 * math.pi * m / size)
    phase = -2 * math.pi * (k[:, None] * m % size) / size
    v = torch.polar((rho**k)[:, None].float(), phase) * ((1 - alpha)[:, None] + alpha[:, None] * u)
    lam, mu, w = lam[..., None], mu[..., None], w[..., None]
    K = w / (1 - lam * u - mu * v[:, None]) + w.conj() / (1 - lam.conj() * u - mu.conj() * v[:, None])
    return K.sum(1)


class Textbook(nn.Module):
    """The layer around that kernel, with the setting of the paper's appendix C.3."""

    def __init__(self, d_model: int, d_state: int, max_delay: int) -> None:
        super().__init__()
        self.ssm = DelaySSM(d_model, d_state, max_delay)
        self.linear = nn.Linear(d_model, 2 * d_model)

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, H) -> (B, L, H)."""
        length = x.shape[1]
        size = 1 << (2 * length - 1).bit_length()
        rho = 1e-3 ** (1 / size)
        system = self.ssm.discretize()
        lam, mu, w = (z.to(torch.complex64) for z in (system.lam, system.mu, system.c * system.b))
        K = torch.fft.irfft(transfer(lam, mu, w, system.k, system.alpha.float(), size, rho), n=size)[:, :length]
        K = K * rho ** -torch.arange(length)
        x_time = x.transpose(1, 2)
        y = torch.fft.irfft(torch.fft.rfft(x_time, n=size) * torch.fft.rfft(K, n=size), n=size)[..., :length]
        y = (y + self.ssm.D[:, None] * x_time).transpose(1, 2)
        return F.glu(self.linear(F.gelu(y)))


class TextbookBlock(nn.Module):
    """Residual, pre-norm."""

    def __init__(self, d_model: int, d_state: int, max_delay: int) -> None:
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(d_model), Textbook(d_model, d_state, max_delay)

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, H) -> (B, L, H)."""
        return x + self.layer(self.norm(x))
