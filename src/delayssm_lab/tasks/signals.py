"""Recorded signals: spoken words, and what monitors show beside a bed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from delayssm.layers.inputs import Values
from delayssm.models.pooled import Pooling
from delayssm_lab.data.published.speech_commands import WORDS
from delayssm_lab.tasks.labelled import Classified, Labelled, Numbers, shares
from delayssm_lab.tasks.task import Metric, Score, Split


def thinned(x: Tensor, every: int) -> Tensor:
    """(B, L, F) -> (B, L // every, F): means of `every` samples after one another."""
    batch, length, features = x.shape
    return x[:, : length // every * every].reshape(batch, -1, every, features).mean(2)


@dataclass(frozen=True)
class SpeechCommands(Labelled):
    """One second of a spoken word at 16 kHz; shorter clips end in silence.

    Samples are divided by one constant, the standard deviation of training samples: the reference code standardises
    each time step on its own, which says where in a clip people tend to speak.

    Args:
        words: to tell apart, numbered in this order; clips of other words are left out.
        pooling: what a model answers from, the "mean" over all times or the "last" one.
        every: means of this many samples are what a model hears.
    """

    data: ClassVar[str] = "speech-commands"
    rate: ClassVar[int] = 16000
    scale: ClassVar[float] = 2613.0
    words: tuple[str, ...] = WORDS
    pooling: Pooling = "mean"
    every: int = 1

    @property
    def label(self) -> str:
        return "SC (AR)" if self.pooling == "last" else "SC (Bi.)"

    @property
    def max_length(self) -> int:
        return self.rate // self.every

    @property
    def outputs(self) -> int:
        return len(self.words)

    def inputs(self, width: int) -> Values:
        return Values(1, width)

    def split(self, split: Split) -> Numbers:
        return np.flatnonzero(self._y(split) >= 0)

    def targets(self, split: Split) -> NDArray[np.int64]:
        return self._y(split)[self.split(split)]

    def take(self, split: Split, rows: Numbers) -> Classified:
        x = self.hear(torch.from_numpy(self.prepared()[f"{split.name.lower()}_x"][rows]))
        return Classified(x, None, torch.from_numpy(self._y(split)[rows]))

    def hear(self, samples: Tensor) -> Float[Tensor, "B L 1"]:
        """16-bit samples, (B, samples), as a model hears them."""
        return thinned(samples.float().unsqueeze(-1) / self.scale, self.every)

    def _y(self, split: Split) -> NDArray[np.int64]:
        """The number of the word of each clip that is prepared; -1 if it is none of this task's."""
        data = self.prepared()
        known = data.about["words"]
        if absent := [word for word in self.words if word not in known]:
            raise ValueError(
                f"this task has the words {', '.join(self.words)}, but prepared here are {', '.join(known)}: prepare "
                f"{', '.join(absent)} too, or set words to what is there"
            )
        numbers = np.array([self.words.index(word) if word in self.words else -1 for word in known])
        found: NDArray[np.int64] = numbers[data[f"{split.name.lower()}_y"]]
        return found


@dataclass(frozen=True)
class Regressed:
    """Signals, and a number for each."""

    x: Float[Tensor, "B L F"]
    targets: Float[Tensor, " B"]
    center: float
    scale: float

    def to(self, device: object) -> Regressed:
        """The same on another device."""
        return Regressed(self.x.to(device), self.targets.to(device), self.center, self.scale)  # type: ignore[call-overload]

    def score(self, model: nn.Module) -> Score:
        """Squared errors: in standard deviations for the loss, in the units of the data for the points."""
        answers = model(self.x).squeeze(-1).float()
        loss = (answers - (self.targets - self.center) / self.scale).square().sum()
        return Score(loss, loss.detach() * self.scale**2, self.targets.numel())


@dataclass(frozen=True)
class BIDMC(Labelled):
    """Breathing rate, heart rate or oxygen saturation from 32 s of pulse wave and ECG at 125 Hz.

    Models answer in standard deviations from the mean; errors are in the units of the data.

    Args:
        target: what to tell.
        cut: "windows" are shuffled, 70 / 15 / 15 %, as the benchmark does: windows overlap, so test windows share most
            of their samples with training windows. "patients" are shuffled instead, which is what a new patient meets.
        every: means of this many samples are what a model sees.
    """

    data: ClassVar[str] = "bidmc"
    outputs: ClassVar[int] = 1
    metric: ClassVar[Metric] = Metric.RMSE
    target: Literal["RR", "HR", "SpO2"] = "HR"
    cut: Literal["windows", "patients"] = "windows"
    every: int = 1

    #: Samples of a window.
    window: ClassVar[int] = 4000
    #: Mean and standard deviation of all windows.
    moments: ClassVar[dict[str, tuple[float, float]]] = {
        "RR": (17.57, 3.04),
        "HR": (89.18, 13.20),
        "SpO2": (96.73, 3.27),
    }

    @property
    def label(self) -> str:
        return f"BIDMC-{self.target}"

    @property
    def max_length(self) -> int:
        return self.window // self.every

    def inputs(self, width: int) -> Values:
        return Values(2, width)

    def split(self, split: Split) -> Numbers:
        data = self.prepared()
        usable = np.flatnonzero(data[self.target] > 0)  # the monitor of one patient counted no breath for minutes
        if self.cut == "windows":
            return usable[shares(len(usable), 0.7, 0.15, 0.15)[split]]
        patients = shares(len(data["signals"]), 0.7, 0.15, 0.15)[split]
        return usable[np.isin(data["record"][usable], patients)]

    def targets(self, split: Split) -> NDArray[np.float64]:
        return self.prepared()[self.target][self.split(split)]

    def take(self, split: Split, rows: Numbers) -> Regressed:
        data = self.prepared()
        places = zip(data["record"][rows], data["start"][rows], strict=True)
        windows = [data["signals"][record, start : start + self.window] for record, start in places]
        x = thinned(torch.from_numpy(np.stack(windows)), self.every)
        return Regressed(x, torch.from_numpy(data[self.target][rows]).float(), *self.moments[self.target])

    def guess(self) -> float:
        """What the mean of all windows gets."""
        return float(np.sqrt(np.mean((self.targets(Split.TEST) - self.moments[self.target][0]) ** 2)))
