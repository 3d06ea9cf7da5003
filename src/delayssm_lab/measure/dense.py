"""Decoding as the paper describes it, in plain torch: a dense buffer of the last L_max states in every layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from delayssm.layers.block import Block
from delayssm.layers.layer import DS4D
from delayssm.layers.stack import Stack


class DenseStep:
    """A decoder for stacks of pre-norm DS4D blocks that keeps all states of the last `max_length` tokens."""

    def __init__(self, stack: Stack, batch_size: int, max_length: int) -> None:
        self.t, self.max_length = 0, max_length
        self.blocks = []
        for block in stack.blocks:
            assert isinstance(block, Block)
            assert isinstance(block.layer, DS4D)
            system = block.layer.ssm.discretize()
            lam, mu, b, c = (z.detach().to(torch.complex64) for z in system[:4])
            shape = (max_length, batch_size, *lam.shape)
            buffer = torch.zeros(shape, dtype=torch.complex64, device=lam.device)
            coefficients = lam, mu, b, c, system.k, system.alpha.detach().float()[:, None]
            self.blocks.append((block.norm, block.layer, coefficients, buffer))

    @torch.inference_mode()
    def __call__(self, x: Tensor) -> Tensor:
        """Return the outputs (B, H) of one token per row, x (B, H)."""
        t = self.t
        for norm, layer, (lam, mu, b, c, k, alpha), buffer in self.blocks:
            u = norm(x)
            channels = torch.arange(len(k), device=k.device)
            anchor = buffer[(t - k) % self.max_length, :, channels].transpose(0, 1)
            older = buffer[(t - k - 1) % self.max_length, :, channels].transpose(0, 1)
            valid = ((t >= k)[:, None], (t > k)[:, None])  # states before the stream are 0
            delayed = (1 - alpha) * torch.where(valid[0], anchor, 0) + alpha * torch.where(valid[1], older, 0)
            h = lam * buffer[(t - 1) % self.max_length] + mu * delayed + b * u[..., None]
            buffer[t % self.max_length] = h
            y = 2 * (c * h).real.sum(-1) + layer.ssm.D * u
            x = x + F.glu(layer.linear(F.gelu(y)))
        self.t += 1
        return x

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers of all layers."""
        return sum(buffer.nbytes for *_, buffer in self.blocks)
