"""The residual block."""

from jaxtyping import Float
from torch import Tensor

from delayssm.layers.norms import Norm, make_norm, normalise, require_streamable
from delayssm.layers.streaming import Lengths, Positions, Streaming, check_lengths, check_positions, check_sequence
from delayssm.system.padding import take, without_padding
from delayssm.system.state import State


class Block(Streaming[State]):
    """x + layer(norm(x)) with pre-norm, norm(x + layer(x)) without.

    Args:
        layer: `DS4D`, `S4D`, or anything that keeps the `Streaming` contract.
        norm: "layer" or "batch".
        prenorm: where the norm stands.
    """

    def __init__(self, layer: Streaming[State], *, norm: Norm = "layer", prenorm: bool = True) -> None:
        super().__init__()
        self.d_model = layer.d_model
        self.prenorm = prenorm
        self.layer = layer
        self.norm = make_norm(norm, self.d_model)

    def forward(
        self, x: Float[Tensor, "B L H"], lengths: Lengths = None, at: Positions = None
    ) -> Float[Tensor, "B T H"]:
        """The whole sequence by FFT."""
        check_sequence(x, self.d_model, self.norm.weight.dtype)
        check_positions(at, x)
        lengths = check_lengths(lengths, x)
        x = without_padding(x, lengths)
        if self.prenorm:
            y: Tensor = self.layer(normalise(self.norm, x, lengths), lengths, at)
            return take(x, at) + y
        # Batch statistics are over all positions, so none can be left out before the norm.
        y = without_padding(normalise(self.norm, x + self.layer(x, lengths), lengths), lengths)
        return take(y, at)

    def stream(
        self, x: Float[Tensor, "B L H"], state: State, lengths: Lengths = None
    ) -> tuple[Float[Tensor, "B L H"], State]:
        """A chunk by recurrence."""
        require_streamable(self.norm)
        check_sequence(x, self.d_model, self.norm.weight.dtype)
        lengths = check_lengths(lengths, x)
        x = without_padding(x, lengths)
        if self.prenorm:
            y, state = self.layer.stream(normalise(self.norm, x, lengths), state, lengths)
            return x + y, state
        y, state = self.layer.stream(x, state, lengths)
        return without_padding(normalise(self.norm, x + y, lengths), lengths), state

    def extra_repr(self) -> str:
        return f"prenorm={self.prenorm}"

    def _first_state(self, batch_size: int, max_length: int | None) -> State:
        return self.layer.init_state(batch_size, max_length)
