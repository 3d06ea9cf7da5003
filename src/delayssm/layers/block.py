"""The residual block."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from delayssm.layers.streaming import Lengths, Positions, Streaming, check_lengths, check_positions, check_sequence
from delayssm.system.padding import padding, take, without_padding
from delayssm.system.state import State


class BatchNorm(nn.BatchNorm1d):
    """Batch norm over rows and times of (B, L, H); padded positions neither count nor change."""

    def forward(self, x: Float[Tensor, "B L H"], lengths: Tensor | None = None) -> Float[Tensor, "B L H"]:
        """Normalise each channel."""
        if lengths is None or not self.training:
            return super().forward(x.reshape(-1, x.shape[-1])).view_as(x)
        valid = ~padding(lengths, x.shape[1]).squeeze(-1)
        return x.masked_scatter(valid.unsqueeze(-1), super().forward(x[valid]))


class Block(Streaming[State]):
    """x + layer(norm(x)) with pre-norm, norm(x + layer(x)) without.

    Args:
        layer: `DS4D`, `S4D`, or anything that keeps the `Streaming` contract.
        norm: "layer" or "batch".
        prenorm: where the norm stands.
    """

    def __init__(
        self, layer: Streaming[State], *, norm: Literal["layer", "batch"] = "layer", prenorm: bool = True
    ) -> None:
        super().__init__()
        self.d_model = layer.d_model
        self.prenorm = prenorm
        self.layer = layer
        self.norm: nn.LayerNorm | BatchNorm
        match norm:
            case "layer":
                self.norm = nn.LayerNorm(self.d_model)
            case "batch":
                self.norm = BatchNorm(self.d_model)
            case _:
                raise ValueError(f'norm must be "layer" or "batch", not {norm!r}')

    def forward(
        self, x: Float[Tensor, "B L H"], lengths: Lengths = None, at: Positions = None
    ) -> Float[Tensor, "B T H"]:
        """The whole sequence by FFT."""
        check_sequence(x, self.d_model, self.norm.weight.dtype)
        check_positions(at, x)
        lengths = check_lengths(lengths, x)
        x = without_padding(x, lengths)
        if self.prenorm:
            y: Tensor = self.layer(self._normalise(x, lengths), lengths, at)
            return take(x, at) + y
        # Batch statistics are over all positions, so none can be left out before the norm.
        y = without_padding(self._normalise(x + self.layer(x, lengths), lengths), lengths)
        return take(y, at)

    def stream(
        self, x: Float[Tensor, "B L H"], state: State, lengths: Lengths = None
    ) -> tuple[Float[Tensor, "B L H"], State]:
        """A chunk by recurrence."""
        if self.training and isinstance(self.norm, BatchNorm):
            raise RuntimeError("batch statistics would differ from chunk to chunk; call .eval() before streaming")
        check_sequence(x, self.d_model, self.norm.weight.dtype)
        lengths = check_lengths(lengths, x)
        x = without_padding(x, lengths)
        if self.prenorm:
            y, state = self.layer.stream(self._normalise(x, lengths), state, lengths)
            return x + y, state
        y, state = self.layer.stream(x, state, lengths)
        return without_padding(self._normalise(x + y, lengths), lengths), state

    def extra_repr(self) -> str:
        return f"prenorm={self.prenorm}"

    def _first_state(self, batch_size: int, max_length: int | None) -> State:
        return self.layer.init_state(batch_size, max_length)

    def _normalise(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        y: Tensor = self.norm(x, lengths) if isinstance(self.norm, BatchNorm) else self.norm(x)
        return y
