"""Decoding as the paper describes it, in eager torch: a dense buffer of all states for L_max steps per layer."""

import torch
import torch.nn.functional as F
from torch import Tensor

from delayssm import Stack, TokenModel


class DenseStep:
    """Token by token through a model of DS4D blocks, with its parameters."""

    def __init__(self, model: TokenModel, batch_size: int, max_length: int) -> None:
        self.model, self.t, self.max_length = model, 0, max_length
        self.systems, self.buffers = [], []
        for block in _blocks(model.backbone):
            system = block.layer.ssm.discretize()
            lam, mu, b, c = (z.detach().to(torch.complex64) for z in system[:4])
            self.systems.append((lam, mu, b, c, system.k, system.alpha.detach().float()[:, None]))
            self.buffers.append(torch.zeros(max_length, batch_size, *lam.shape, dtype=torch.complex64))

    @torch.inference_mode()
    def __call__(self, tokens: Tensor) -> Tensor:
        """tokens (B,) -> logits (B, V)."""
        x, t = self.model.embedding.weight[tokens], self.t
        for block, (lam, mu, b, c, k, alpha), buffer in zip(
            _blocks(self.model.backbone), self.systems, self.buffers, strict=True
        ):
            u = block.norm(x)
            channels = torch.arange(len(k))
            anchor = buffer[(t - k) % self.max_length, :, channels].transpose(0, 1)
            older = buffer[(t - k - 1) % self.max_length, :, channels].transpose(0, 1)
            valid = ((t >= k)[:, None], (t > k)[:, None])  # nothing came before the stream
            delayed = (1 - alpha) * torch.where(valid[0], anchor, 0) + alpha * torch.where(valid[1], older, 0)
            h = lam * buffer[(t - 1) % self.max_length] + mu * delayed + b * u[..., None]
            buffer[t % self.max_length] = h
            y = 2 * (c * h).real.sum(-1) + block.layer.ssm.D * u
            x = x + F.glu(block.layer.linear(F.gelu(y)))
        self.t += 1
        return self.model.head(self.model.norm(x))

    @property
    def nbytes(self) -> int:
        """Bytes of state."""
        return sum(buffer.nbytes for buffer in self.buffers)


def _blocks(stack: Stack) -> list:
    return list(stack.blocks)
