"""The layer of the S4D backbone: SSM, GELU, dropout tied over time, linear to 2H, GLU."""

from typing import Literal, TypedDict, Unpack

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from delayssm.layers.ssm import DelaySSM, DiagonalSSM
from delayssm.layers.streaming import Lengths, Positions, Streaming, check_lengths
from delayssm.system import initial
from delayssm.system.padding import without_padding
from delayssm.system.state import State


class DiagonalOptions(TypedDict, total=False):
    """The keyword arguments of `DiagonalSSM`."""

    init: initial.Spectrum
    dt_min: float
    dt_max: float
    input: Literal["explicit", "absorbed"]
    bidirectional: bool


class DelayOptions(DiagonalOptions, total=False):
    """The keyword arguments of `DelaySSM`."""

    branch_fraction: initial.Fraction
    phase: float
    delays: initial.Delays


class Layer(Streaming[State]):
    """What S4D and DS4D share: everything around the SSM."""

    def __init__(self, ssm: DiagonalSSM, dropout: float) -> None:
        super().__init__()
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), not {dropout}")
        self.d_model = ssm.d_model
        self.dropout = dropout
        self.ssm = ssm
        self.linear = nn.Linear(self.d_model, 2 * self.d_model)

    def forward(
        self, x: Float[Tensor, "B L H"], lengths: Lengths = None, at: Positions = None
    ) -> Float[Tensor, "B T H"]:
        """The whole sequence by FFT."""
        return without_padding(self._mix(self.ssm(x, lengths, at)), check_lengths(lengths, x), at)

    def stream(
        self, x: Float[Tensor, "B L H"], state: State, lengths: Lengths = None
    ) -> tuple[Float[Tensor, "B L H"], State]:
        """A chunk by recurrence."""
        if self.training and self.dropout:
            raise RuntimeError("dropout would differ from chunk to chunk; call .eval() before streaming")
        y, state = self.ssm.stream(x, state, lengths)
        return without_padding(self._mix(y), check_lengths(lengths, y)), state

    def _first_state(self, batch_size: int, max_length: int | None) -> State:
        return self.ssm.init_state(batch_size, max_length)

    def _mix(self, y: Tensor) -> Tensor:
        y = F.gelu(y)
        if self.training and self.dropout:
            y = y * F.dropout(y.new_ones(len(y), 1, self.d_model), self.dropout)  # one mask for all times
        return F.glu(self.linear(y))


class S4D(Layer):
    """The S4D layer; options are those of `DiagonalSSM`, which is at `.ssm`."""

    def __init__(
        self, d_model: int, d_state: int = 64, *, dropout: float = 0.0, **options: Unpack[DiagonalOptions]
    ) -> None:
        super().__init__(DiagonalSSM(d_model, d_state, **options), dropout)


class DS4D(Layer):
    """The DS4D layer; options are those of `DelaySSM`, which is at `.ssm`."""

    ssm: DelaySSM

    def __init__(
        self,
        d_model: int,
        d_state: int = 64,
        max_delay: int = 1024,
        *,
        dropout: float = 0.0,
        **options: Unpack[DelayOptions],
    ) -> None:
        super().__init__(DelaySSM(d_model, d_state, max_delay, **options), dropout)
