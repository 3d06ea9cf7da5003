"""The layer of the S4D backbone: SSM, GELU, dropout tied over time, linear to 2H, GLU."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from delayssm.config import Device, Factory, constructor
from delayssm.layers.checks import Lengths, Positions, check_lengths
from delayssm.layers.delay_ssm import DelaySSM, DelaySSMConfig
from delayssm.layers.diagonal_ssm import DiagonalSSM, DiagonalSSMConfig
from delayssm.layers.streaming import Streaming
from delayssm.system import plain
from delayssm.system.mixing import mix
from delayssm.system.spans import without_padding
from delayssm.system.state import State


@dataclass(frozen=True, kw_only=True)
class LayerOptions:
    """Options of the layer around an SSM.

    Args:
        dropout: Probability that a channel is dropped in training, with one mask for all times.
    """

    dropout: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), not {self.dropout}")


@dataclass(frozen=True)
class S4DConfig(LayerOptions, DiagonalSSMConfig):
    """Configuration of `S4D`."""

    def __post_init__(self) -> None:
        DiagonalSSMConfig.__post_init__(self)
        LayerOptions.__post_init__(self)

    def build(self, device: Device = None, dtype: torch.dtype | None = None) -> "S4D":
        return S4D(self, device=device, dtype=dtype)  # type: ignore[arg-type]


@dataclass(frozen=True)
class DS4DConfig(LayerOptions, DelaySSMConfig):
    """Configuration of `DS4D`."""

    def __post_init__(self) -> None:
        DelaySSMConfig.__post_init__(self)
        LayerOptions.__post_init__(self)

    def build(self, device: Device = None, dtype: torch.dtype | None = None) -> "DS4D":
        return DS4D(self, device=device, dtype=dtype)  # type: ignore[arg-type]


class Layer(Streaming[State]):
    """Everything around the SSM that S4D and DS4D share. The SSM is at `ssm`."""

    def __init__(self, ssm: DiagonalSSM, config: S4DConfig | DS4DConfig) -> None:
        super().__init__()
        self._config = config
        self.d_model = config.d_model
        self.ssm = ssm
        self.linear = nn.Linear(self.d_model, 2 * self.d_model, device=ssm.D.device, dtype=ssm.D.dtype)

    @property
    def config(self) -> S4DConfig | DS4DConfig:
        return self._config

    @property
    def dropout(self) -> float:
        """Probability that a channel is dropped in training."""
        return self._config.dropout

    def forward(
        self, x: Float[Tensor, "B L H"], lengths: Lengths = None, at: Positions = None
    ) -> Float[Tensor, "B T H"]:
        """Return the outputs for a whole sequence, by FFT."""
        spans = check_lengths(lengths, x)
        return without_padding(self._mix(self.ssm(x, spans, at)), spans, at)

    def stream(
        self, x: Float[Tensor, "B L H"], state: State, lengths: Lengths = None
    ) -> tuple[Float[Tensor, "B L H"], State]:
        """Return the outputs for a chunk, by recurrence, and the state after it."""
        if self.training and self.dropout:
            raise RuntimeError("dropout would differ from chunk to chunk; call .eval() before streaming")
        spans = check_lengths(lengths, x)
        y, state = self.ssm.stream(x, state, spans)
        return without_padding(self._mix(y), spans), state

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}"

    def _first_state(self, batch_size: int, max_length: int | None) -> State:
        return self.ssm.init_state(batch_size, max_length)

    def _mix(self, y: Tensor) -> Tensor:
        mask = None
        if self.training and self.dropout:  # one mask for all times
            mask = F.dropout(y.new_ones(len(y), 1, self.d_model), self.dropout)
        if y.numel() and y.requires_grad and _nothing_to_see(self.linear, y):
            return mix(y, self.linear.weight, self.linear.bias, mask)
        y = F.gelu(y)
        return plain.glu(self.linear(y if mask is None else y * mask))


def _nothing_to_see(linear: nn.Module, y: Tensor) -> bool:
    """Return whether a module is the linear map that it was made as, and nobody watches or changes what it does."""
    return (
        type(linear) is nn.Linear
        and linear.bias is not None
        and linear.weight.dtype == y.dtype
        and not any(
            (linear._forward_hooks, linear._forward_pre_hooks, linear._backward_hooks, linear._backward_pre_hooks)
        )
        and not torch.is_autocast_enabled(y.device.type)
        and not torch.compiler.is_compiling()
    )


@dataclass(frozen=True)
class _S4DArguments(S4DConfig, Factory): ...


class S4D(Layer):
    """The S4D layer: `DiagonalSSM`, GELU, dropout, linear, GLU."""

    @constructor(_S4DArguments)
    def __init__(self, config: S4DConfig, device: Device, dtype: torch.dtype | None) -> None:
        ssm = DiagonalSSM(config.narrow(DiagonalSSMConfig), device=device, dtype=dtype)  # type: ignore[arg-type]
        super().__init__(ssm, config)


@dataclass(frozen=True)
class _DS4DArguments(DS4DConfig, Factory): ...


class DS4D(Layer):
    """The DS4D layer: `DelaySSM`, GELU, dropout, linear, GLU."""

    ssm: DelaySSM

    @constructor(_DS4DArguments)
    def __init__(self, config: DS4DConfig, device: Device, dtype: torch.dtype | None) -> None:
        ssm = DelaySSM(config.narrow(DelaySSMConfig), device=device, dtype=dtype)  # type: ignore[arg-type]
        super().__init__(ssm, config)
