"""The residual block."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from delayssm.config import Config, Device
from delayssm.layers.checks import Lengths, Positions, check_lengths, check_module, check_positions, check_sequence
from delayssm.layers.norms import Norm, check_norm, make_norm, name_of, normalise, require_streamable
from delayssm.layers.streaming import Streaming
from delayssm.system.spans import take, without_padding
from delayssm.system.state import State


@dataclass(frozen=True, kw_only=True)
class BlockConfig(Config):
    """Configuration of `Block`.

    Args:
        layer: Layer inside the block.
        norm: Kind of norm, "layer" or "batch".
        prenorm: Whether the norm stands before the layer; otherwise after the sum with its input.
    """

    layer: Config
    norm: Norm = "layer"
    prenorm: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_norm(self.norm)

    def build(self, device: Device = None, dtype: torch.dtype | None = None) -> "Block":
        layer = self.layer.build(device, dtype)
        assert isinstance(layer, Streaming)
        return Block(layer, norm=self.norm, prenorm=self.prenorm)


class Block(Streaming[State]):
    """x + layer(norm(x)) with pre-norm, norm(x + layer(x)) without.

    >>> block = Block(DS4D(8, 16, max_delay=100), norm="layer")
    >>> block(torch.randn(2, 300, 8)).shape
    torch.Size([2, 300, 8])

    Args:
        layer: `DS4D`, `S4D`, or any other module that keeps the `Streaming` contract.
        norm: Kind of norm, "layer" or "batch".
        prenorm: Whether the norm stands before the layer.
    """

    def __init__(
        self, layer: Streaming[State], *, norm: Norm = BlockConfig.norm, prenorm: bool = BlockConfig.prenorm
    ) -> None:
        super().__init__()
        check_module("layer", layer, Streaming)
        self.d_model = layer.d_model
        self.prenorm = prenorm
        self.layer = layer
        like = next(layer.parameters(), None)
        place = (None, None) if like is None else (like.device, layer.dtype)
        self.norm = make_norm(norm, self.d_model, *place)
        self._write_options()

    @property
    def config(self) -> BlockConfig:
        norm = name_of(self.norm, self.d_model)
        return BlockConfig(layer=self.layer.config, norm=norm, prenorm=self.prenorm)

    def forward(
        self, x: Float[Tensor, "B L H"], lengths: Lengths = None, at: Positions = None
    ) -> Float[Tensor, "B T H"]:
        """Return the outputs for a whole sequence."""
        check_sequence(x, self.d_model, self.dtype)
        check_positions(at, x)
        spans = check_lengths(lengths, x)
        x = without_padding(x, spans)
        if self.prenorm:
            y: Tensor = self.layer(normalise(self.norm, x, spans), spans, at)
            return take(x, at) + y
        # Batch statistics are over all positions, so none can be left out before the norm.
        y = without_padding(normalise(self.norm, x + self.layer(x, spans), spans), spans)
        return take(y, at)

    def stream(
        self, x: Float[Tensor, "B L H"], state: State, lengths: Lengths = None
    ) -> tuple[Float[Tensor, "B L H"], State]:
        """Return the outputs for a chunk, and the state after it."""
        require_streamable(self.norm)
        check_sequence(x, self.d_model, self.dtype)
        spans = check_lengths(lengths, x)
        x = without_padding(x, spans)
        if self.prenorm:
            y, state = self.layer.stream(normalise(self.norm, x, spans), state, spans)
            return x + y, state
        y, state = self.layer.stream(x, state, spans)
        return without_padding(normalise(self.norm, x + y, spans), spans), state

    @property
    def dtype(self) -> torch.dtype:
        return self.layer.dtype  # a norm may have no parameters of its own

    def extra_repr(self) -> str:
        return f"prenorm={self.prenorm}"

    def _options(self) -> dict[str, int]:
        return {"prenorm": int(self.prenorm)}

    def _first_state(self, batch_size: int, max_length: int | None) -> State:
        return self.layer.init_state(batch_size, max_length)
