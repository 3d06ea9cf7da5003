"""Norms of sequences (B, L, H) that ignore padding."""

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from delayssm.config import Device
from delayssm.system.spans import Spans

Norm = Literal["layer", "batch"]


class BatchNorm(nn.BatchNorm1d):
    """Batch norm over rows and times of (B, L, H); padded positions neither count nor change.

    Where `everywhere` is set, a batch is what all processes have together, and all must call it at the same time.
    """

    everywhere: bool = False

    def forward(self, x: Float[Tensor, "B L H"], spans: Spans | None = None) -> Float[Tensor, "B L H"]:
        """Normalise each channel."""
        if spans is None or not self.training:
            return self._normalise(x.reshape(-1, x.shape[-1])).view_as(x)
        valid = ~spans.padding(x.shape[1]).squeeze(-1)
        return x.masked_scatter(valid.unsqueeze(-1), self._normalise(x[valid]))

    def _normalise(self, x: Float[Tensor, "P H"]) -> Float[Tensor, "P H"]:
        if not (self.training and self.everywhere):
            return super().forward(x)
        count = _total(x.new_tensor(float(len(x))))
        mean = _total(x.sum(0)) / count
        variance = _total((x - mean).square().sum(0)) / count  # after the mean, so nothing cancels
        with torch.no_grad():
            assert self.running_mean is not None
            assert self.running_var is not None
            assert self.num_batches_tracked is not None
            assert self.momentum is not None
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * count / (count - 1), self.momentum)
            self.num_batches_tracked.add_(1)
        y: Tensor = (x - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias
        return y


def _total(x: Tensor) -> Tensor:
    """Return the sum over all processes, gradients included."""
    from torch.distributed.nn.functional import all_reduce  # not in every build of torch

    total: Tensor = all_reduce(x)  # type: ignore[no-untyped-call]
    return total


def check_norm(norm: Norm) -> None:
    """Raise unless there is such a norm."""
    if norm not in get_args(Norm):
        raise ValueError(f'norm must be "layer" or "batch", not {norm!r}')


def make_norm(norm: Norm, width: int, device: Device, dtype: torch.dtype | None) -> nn.LayerNorm | BatchNorm:
    """Return the norm with this name."""
    check_norm(norm)
    return (nn.LayerNorm if norm == "layer" else BatchNorm)(width, device=device, dtype=dtype)


def name_of(norm: nn.LayerNorm | BatchNorm, width: int) -> Norm:
    """Return the name of a norm; raise if `make_norm` makes another one by this name, as it would be when loaded."""
    name: Norm = "batch" if isinstance(norm, BatchNorm) else "layer"
    made = make_norm(name, width, "meta", None)
    same = isinstance(norm, type(made)) and norm.extra_repr() == made.extra_repr()
    if not same or norm.state_dict().keys() != made.state_dict().keys():
        raise ValueError(f"a configuration can have the norms {made} and no other settings, but this norm is {norm}")
    return name


def normalise(norm: nn.LayerNorm | BatchNorm, x: Tensor, spans: Spans | None) -> Tensor:
    """Return x, normalised as if there were no padding."""
    y: Tensor = norm(x, spans) if isinstance(norm, BatchNorm) else norm(x)
    return y


def require_streamable(norm: nn.LayerNorm | BatchNorm) -> None:
    """Raise if chunks would be normalised differently from the whole sequence."""
    if norm.training and isinstance(norm, BatchNorm):
        raise RuntimeError("batch statistics would differ from chunk to chunk; call .eval() before streaming")
