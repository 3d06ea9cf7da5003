"""Norms of sequences (B, L, H), for which padding does not exist."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from delayssm.system.padding import padding

Norm = Literal["layer", "batch"]


class BatchNorm(nn.BatchNorm1d):
    """Batch norm over rows and times of (B, L, H); padded positions neither count nor change."""

    def forward(self, x: Float[Tensor, "B L H"], lengths: Tensor | None = None) -> Float[Tensor, "B L H"]:
        """Normalise each channel."""
        if lengths is None or not self.training:
            return super().forward(x.reshape(-1, x.shape[-1])).view_as(x)
        valid = ~padding(lengths, x.shape[1]).squeeze(-1)
        return x.masked_scatter(valid.unsqueeze(-1), super().forward(x[valid]))


def make_norm(norm: Norm, width: int) -> nn.LayerNorm | BatchNorm:
    """The norm of this name."""
    match norm:
        case "layer":
            return nn.LayerNorm(width)
        case "batch":
            return BatchNorm(width)
        case _:
            raise ValueError(f'norm must be "layer" or "batch", not {norm!r}')


def normalise(norm: nn.LayerNorm | BatchNorm, x: Tensor, lengths: Tensor | None) -> Tensor:
    """x, normalised as if there were no padding."""
    y: Tensor = norm(x, lengths) if isinstance(norm, BatchNorm) else norm(x)
    return y


def require_streamable(norm: nn.LayerNorm | BatchNorm) -> None:
    """Raise if chunks would be normalised in another way than the whole."""
    if norm.training and isinstance(norm, BatchNorm):
        raise RuntimeError("batch statistics would differ from chunk to chunk; call .eval() before streaming")
