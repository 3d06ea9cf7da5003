"""The models of the studies of delay equations, as values that tell their sizes and build them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from delayssm.layers.block import Block
from delayssm.layers.inputs import Values
from delayssm.layers.layer import DS4D, S4D
from delayssm.layers.stack import Stack
from delayssm.models.series import SeriesModel
from delayssm_lab.models.baselines import LSTMSeries

#: A model of series: values (B, L, features) to answers (B, L, outputs).
Series = SeriesModel | LSTMSeries


@dataclass(frozen=True)
class DelaySpec:
    """Blocks of `DS4D`, with delays on an even grid.

    Args:
        width: Number of channels.
        states: State size of each channel.
        depth: Number of blocks.
        max_delay: Longest delay in steps.
        dt_min: Smallest initial step size.
        dt_max: Largest initial step size.
        branch_fraction: Share of the memory of each mode that is given to the delayed branch.
    """

    family: ClassVar[str] = "DS4D"
    width: int = 32
    states: int = 16
    depth: int = 4
    max_delay: int = 64
    dt_min: float = 1e-2
    dt_max: float = 0.5
    branch_fraction: float = 0.1

    @property
    def settings(self) -> str:
        """Settings that differ between trials."""
        return f"delays below {self.max_delay}, dt {self.dt_min:g} to {self.dt_max:g}, p {self.branch_fraction:g}"

    def build(self) -> SeriesModel:
        """Return the model, freshly initialised."""
        layers = (
            DS4D(
                self.width,
                self.states,
                self.max_delay,
                dt_min=self.dt_min,
                dt_max=self.dt_max,
                branch_fraction=self.branch_fraction,
            )
            for _ in range(self.depth)
        )
        return SeriesModel(Values(1, self.width), Stack(map(Block, layers)), 1)


@dataclass(frozen=True)
class DiagonalSpec:
    """Blocks of `S4D`. The arguments are those of `DelaySpec`."""

    family: ClassVar[str] = "S4D"
    width: int = 35
    states: int = 16
    depth: int = 4
    dt_min: float = 1e-2
    dt_max: float = 0.5

    @property
    def settings(self) -> str:
        """Settings that differ between trials."""
        return f"N {self.states}, dt {self.dt_min:g} to {self.dt_max:g}"

    def build(self) -> SeriesModel:
        """Return the model, freshly initialised."""
        layers = (S4D(self.width, self.states, dt_min=self.dt_min, dt_max=self.dt_max) for _ in range(self.depth))
        return SeriesModel(Values(1, self.width), Stack(map(Block, layers)), 1)


@dataclass(frozen=True)
class RecurrentSpec:
    """Layers of torch's LSTM, with the input layer, norm and head of the other models.

    Args:
        width: Number of channels.
        depth: Number of layers.
    """

    family: ClassVar[str] = "LSTM"
    width: int
    depth: int

    @property
    def settings(self) -> str:
        """Settings that differ between trials."""
        return f"{self.depth} layer{'s' * (self.depth > 1)} of {self.width}"

    def build(self) -> LSTMSeries:
        """Return the model, freshly initialised."""
        return LSTMSeries(1, self.width, self.depth, 1)


#: A model as a value: its name in tables (`family`), its settings in a few words, and how it is built.
SeriesSpec = DelaySpec | DiagonalSpec | RecurrentSpec


def parameters(model: nn.Module) -> int:
    """Return the number of trainable parameters."""
    return sum(weights.numel() for weights in model.parameters())


def delays(model: nn.Module) -> list[Tensor]:
    """Return the delays of each layer that has some, in steps."""
    return [layer.ssm.delays().detach() for layer in model.modules() if isinstance(layer, DS4D)]
