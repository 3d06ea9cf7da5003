"""The layer of the S4D backbone: SSM, GELU, dropout tied over time, linear to 2H, GLU."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from delayssm.config import Device, Factory, constructor
from delayssm.layers import official
from delayssm.layers.checks import Lengths, Positions, check_lengths, check_module, check_sequence
from delayssm.layers.delay_ssm import DelaySSM, DelaySSMConfig
from delayssm.layers.diagonal_ssm import DiagonalSSM, DiagonalSSMConfig
from delayssm.layers.streaming import Streaming
from delayssm.system import initial, plain
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

    def __init__(self, ssm: DiagonalSSM, config: S4DConfig | DS4DConfig, dtype: torch.dtype | None) -> None:
        super().__init__()
        self._config = config
        self.d_model = config.d_model
        self.ssm = ssm
        self.linear = nn.Linear(self.d_model, 2 * self.d_model, device=ssm.D.device, dtype=dtype)

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
        check_sequence(x, self.d_model, self.dtype)
        spans = check_lengths(lengths, x)
        return without_padding(self._mix(self.ssm(x, spans, at)), spans, at)

    def stream(
        self, x: Float[Tensor, "B L H"], state: State, lengths: Lengths = None
    ) -> tuple[Float[Tensor, "B L H"], State]:
        """Return the outputs for a chunk, and the state after it."""
        if self.training and self.dropout:
            raise RuntimeError("dropout would differ from chunk to chunk; call .eval() before streaming")
        check_sequence(x, self.d_model, self.dtype)
        spans = check_lengths(lengths, x)
        y, state = self.ssm.stream(x, state, spans)
        return without_padding(self._mix(y), spans), state

    @property
    def dtype(self) -> torch.dtype:
        weight = next(self.linear.parameters(), None)  # None for a quantised map in the place of this one
        return self.ssm.D.dtype if weight is None else weight.dtype

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
    """The S4D layer: `DiagonalSSM`, GELU, dropout, linear, GLU.

    >>> layer = S4D(d_model=8, d_state=16)
    >>> layer(torch.randn(2, 300, 8)).shape  # (batch, length, channels)
    torch.Size([2, 300, 8])
    """

    @constructor(_S4DArguments)
    def __init__(self, config: S4DConfig, device: Device, dtype: torch.dtype | None) -> None:
        ssm = DiagonalSSM(config.narrow(DiagonalSSMConfig), device=device, dtype=dtype)  # type: ignore[arg-type]
        super().__init__(ssm, config, dtype)

    @classmethod
    def from_official(cls, weights: Mapping[str, Tensor], prefix: str = "", *, dropout: float = 0.0) -> "S4D":
        """Return the layer that weights of the class `S4D` in models/s4/s4d.py of state-spaces/s4 describe.

        Its sequences have channels last, (B, L, H), where the official layer has (B, H, L).

        Args:
            weights: State dict of the official layer, or of a model that contains it.
            prefix: What the names of its tensors begin with, such as "s4_layers.0."; others are left alone.
            dropout: Probability that a channel is dropped in training, which the weights do not tell.
        """
        own = official.translate(weights, prefix)
        (H, n), like = own["ssm.nu_re"].shape, own["ssm.D"]
        layer = cls(H, 2 * n, input="absorbed", dropout=dropout, device=like.device, dtype=like.dtype)
        layer.load_state_dict(own)
        return layer


@dataclass(frozen=True)
class _DS4DArguments(DS4DConfig, Factory): ...


class DS4D(Layer):
    """The DS4D layer: `DelaySSM`, GELU, dropout, linear, GLU.

    >>> layer = DS4D(d_model=8, d_state=16, max_delay=100)
    >>> layer(torch.randn(2, 300, 8)).shape  # (batch, length, channels)
    torch.Size([2, 300, 8])
    >>> layer.ssm.delays().shape  # one learnable delay for each channel, in steps
    torch.Size([8])
    """

    ssm: DelaySSM

    @constructor(_DS4DArguments)
    def __init__(self, config: DS4DConfig, device: Device, dtype: torch.dtype | None) -> None:
        ssm = DelaySSM(config.narrow(DelaySSMConfig), device=device, dtype=dtype)  # type: ignore[arg-type]
        super().__init__(ssm, config, dtype)

    @classmethod
    @torch.no_grad()
    def from_s4d(
        cls,
        layer: S4D,
        *,
        max_delay: int,
        echo: float = 0.1,
        phase: float = DS4DConfig.phase,
        delays: initial.Delays = "grid",
    ) -> "DS4D":
        """Return a trained S4D layer with delayed feedback added to it, to be trained further.

        Everything that the layer has learned stays: its recurrence, input and output are unchanged. The feedback
        changes the transfer function of each mode by at most echo / (1 - echo) of itself, at every frequency. The
        gradient of the feedback vanishes with `echo`, too, so that feedback that is very small hardly learns.

        >>> delayed = DS4D.from_s4d(S4D(8, 16), max_delay=100, echo=0.1)

        Args:
            layer: The S4D layer.
            max_delay: L_max, at least 3; delays stay between 1 and L_max - 1 steps.
            echo: Share of the decay of each mode that is given to the delayed feedback, inside (0, 1).
            phase: Where the angle of the feedback starts: pi emphasises change, 0 reinforces what repeats.
            delays: Initial delays: "grid" (evenly spaced, in random order), or steps, one number or one per channel.
        """
        check_module("layer", layer, S4D)
        if not 0 < echo < 1:
            raise ValueError(f"echo must lie inside (0, 1), not {echo}")
        options = {field.name: getattr(layer.config, field.name) for field in fields(S4DConfig)}
        config = DS4DConfig(**options, max_delay=max_delay, phase=phase, delays=delays)
        new = config.build(layer.ssm.D.device, layer.dtype)
        new.load_state_dict({**new.state_dict(), **layer.state_dict()})
        nu_re, r = initial.echoes(layer.ssm.nu_dt, layer.ssm.nu_re, echo)
        new.ssm.nu_re.copy_(nu_re)
        new.ssm.r.copy_(r)
        return new.train(layer.training)
