"""Delay layers with what they may lack for recall: experiments, which know whole sequences only.

A layer whose kernel does not depend on its input cannot decide by content what to keep. Two additions, which can be
combined:

    short convolution    z_t = sum over i < taps of w_i x_(t-i) before the layer: a token meets the ones before it
    gate, H3's form      q_t * SSM(SSM(k) * v)_t instead of the layer, with q, k, v = linear(x): products of tokens

Both systems of the gate are delay systems and are computed by FFT. A third addition is part of the library:
`delayssm.DeltaMemory`.
"""

from __future__ import annotations

from collections.abc import Iterable

from jaxtyping import Float, Int
from torch import Tensor, nn

from delayssm.layers.checks import Positions, check_positions
from delayssm.layers.delay_ssm import DelaySSM, DelaySSMConfig
from delayssm.layers.inputs import Tokens
from delayssm.layers.layer import DS4DConfig
from delayssm.system.spans import take


class ShortConvolution(nn.Module):
    """A causal convolution of each channel with its own few taps."""

    def __init__(self, d_model: int, taps: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(d_model, d_model, taps, padding=taps - 1, groups=d_model)

    def forward(self, x: Float[Tensor, "B L H"]) -> Float[Tensor, "B L H"]:
        """Return the convolution of a whole sequence."""
        y: Tensor = self.convolution(x.mT)
        return y[..., : x.shape[1]].mT


class GatedDelay(nn.Module):
    """Two delay systems with products before and after the second: out(q * SSM(SSM(k) * v))."""

    def __init__(self, config: DelaySSMConfig) -> None:
        super().__init__()
        H = config.d_model
        self.qkv = nn.Linear(H, 3 * H)
        self.keys, self.memory = DelaySSM(config), DelaySSM(config)  # type: ignore[arg-type]
        self.out = nn.Linear(H, H)

    def forward(self, x: Float[Tensor, "B L H"]) -> Float[Tensor, "B L H"]:
        """Return the outputs for a whole sequence, by FFT."""
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        y: Tensor = self.out(q * self.memory(self.keys(k.contiguous()) * v))
        return y


class HybridBlock(nn.Module):
    """x + layer(z), where z is the norm of x after the short convolution."""

    def __init__(self, layer: DS4DConfig, taps: int, gated: bool) -> None:
        super().__init__()
        H = layer.d_model
        self.norm = nn.LayerNorm(H)
        self.convolution = ShortConvolution(H, taps) if taps > 1 else nn.Identity()
        self.layer = GatedDelay(layer.narrow(DelaySSMConfig)) if gated else layer.build()

    def forward(self, x: Float[Tensor, "B L H"]) -> Float[Tensor, "B L H"]:
        """Return the outputs for a whole sequence."""
        y: Tensor = x + self.layer(self.convolution(self.norm(x)))
        return y


class HybridModel(nn.Module):
    """Embedding, blocks, layer norm, head: as `TokenModel`, but for whole sequences only."""

    def __init__(self, vocab_size: int, d_model: int, blocks: Iterable[HybridBlock]) -> None:
        super().__init__()
        self.embedding = Tokens(vocab_size, d_model)
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, x: Int[Tensor, "B L"], at: Positions = None) -> Float[Tensor, "B T V"]:
        """Return logits after each token, or only after those at the positions `at` of each row."""
        check_positions(at, x)
        y = self.blocks(self.embedding(x))
        logits: Tensor = self.head(self.norm(take(y, at)))
        return logits
