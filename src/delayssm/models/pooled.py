"""One answer for a whole sequence."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from delayssm.layers.inputs import Tokens, Values
from delayssm.layers.stack import Stack
from delayssm.layers.streaming import Lengths, check_lengths
from delayssm.system.padding import without_padding

Pooling = Literal["mean", "last"]


class PooledModel(nn.Module):
    """Input layer, backbone, layer norm, pooling over time, linear head: logits of classes, or values to regress.

    Args:
        inputs: `Tokens` or `Values`.
        backbone: blocks of any kind.
        outputs: numbers in an answer.
        pooling: "mean" over the valid times, or the "last" of them.
    """

    def __init__(self, inputs: Tokens | Values, backbone: Stack, outputs: int, pooling: Pooling = "mean") -> None:
        super().__init__()
        if outputs < 1:
            raise ValueError(f"outputs must be at least 1, not {outputs}")
        if pooling not in ("mean", "last"):
            raise ValueError(f'pooling must be "mean" or "last", not {pooling!r}')
        width = inputs.embedding_dim if isinstance(inputs, Tokens) else inputs.out_features
        if width != backbone.d_model:
            raise ValueError(f"the input layer has width {width}, but the backbone has {backbone.d_model}")
        self.inputs = inputs
        self.backbone = backbone
        self.norm = nn.LayerNorm(backbone.d_model)
        self.head = nn.Linear(backbone.d_model, outputs)
        self.pooling = pooling

    def forward(self, x: Tensor, lengths: Lengths = None) -> Float[Tensor, "B O"]:
        """x is (batch, length) tokens or (batch, length, features) values."""
        u = self.inputs(x, lengths)
        valid = check_lengths(lengths, x)
        if valid is None:
            valid = torch.full((len(u),), u.shape[1], device=u.device)
        last = (valid - 1).clamp(min=0).unsqueeze(1) if self.pooling == "last" else None
        y = without_padding(self.norm(self.backbone(u, lengths, last)), valid, last)
        pooled = y.sum(1) if self.pooling == "last" else y.sum(1) / valid.clamp(min=1).unsqueeze(-1)
        answer: Tensor = self.head(pooled)
        return answer

    def extra_repr(self) -> str:
        return f"pooling={self.pooling!r}"
