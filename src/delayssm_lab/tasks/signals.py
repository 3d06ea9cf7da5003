"""Tasks on recorded signals: spoken words, and vital signs from a bedside monitor."""

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
from delayssm_lab.tasks.labelled import ClassificationBatch, Indices, LabelledTask, split_shares
from delayssm_lab.tasks.task import Metric, Score, Split


def averaged(x: Tensor, every: int) -> Tensor:
    """Return the means of `every` consecutive samples, (B, L, F) -> (B, L // every, F)."""
    batch, length, features = x.shape
    return x[:, : length // every * every].reshape(batch, -1, every, features).mean(2)


@dataclass(frozen=True)
class SpeechCommands(LabelledTask):
    """One second of a spoken word at 16 kHz; shorter clips end in silence.

    Samples are divided by one constant, the standard deviation of the training samples. The reference code standardises
    each time step separately, which reveals where in a clip people tend to speak.

    Args:
        words: Words to distinguish. Classes are numbered in this order. Clips of other words are left out.
        pooling: Pooling over time: the "mean" over all times, or the "last" one.
        every: Number of consecutive samples that are averaged into one input of the model.
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

    def split(self, split: Split) -> Indices:
        return np.flatnonzero(self._classes(split) >= 0)

    def targets(self, split: Split) -> NDArray[np.int64]:
        return self._classes(split)[self.split(split)]

    def take(self, split: Split, rows: Indices) -> ClassificationBatch:
        x = self.hear(torch.from_numpy(self.prepared()[f"{split.name.lower()}_x"][rows]))
        return ClassificationBatch(x, None, torch.from_numpy(self._classes(split)[rows]))

    def hear(self, samples: Tensor) -> Float[Tensor, "B L 1"]:
        """Return 16-bit samples, (B, samples), as the input of a model."""
        return averaged(samples.float().unsqueeze(-1) / self.scale, self.every)

    def _classes(self, split: Split) -> NDArray[np.int64]:
        """Return the class of each prepared clip; -1 for words that do not belong to this task."""
        data = self.prepared()
        prepared_words = data.about["words"]
        if missing := [word for word in self.words if word not in prepared_words]:
            raise ValueError(
                f"this task has the words {', '.join(self.words)}, but prepared here are {', '.join(prepared_words)}; "
                f"prepare {', '.join(missing)} too, or set words to some of the prepared ones"
            )
        numbers = np.array([self.words.index(word) if word in self.words else -1 for word in prepared_words])
        classes: NDArray[np.int64] = numbers[data[f"{split.name.lower()}_y"]]
        return classes


@dataclass(frozen=True)
class RegressionBatch:
    """Signals, and a number to estimate from each.

    Models are trained to return (target - center) / scale.
    """

    x: Float[Tensor, "B L F"]
    targets: Float[Tensor, " B"]
    center: float
    scale: float

    def to(self, device: object) -> RegressionBatch:
        """Return the batch on another device."""
        return RegressionBatch(self.x.to(device), self.targets.to(device), self.center, self.scale)  # type: ignore[call-overload]

    def score(self, model: nn.Module) -> Score:
        """Return squared errors: in standard deviations for the loss, in the units of the data for the points."""
        answers = model(self.x).squeeze(-1).float()
        loss = (answers - (self.targets - self.center) / self.scale).square().sum()
        return Score(loss, loss.detach() * self.scale**2, self.targets.numel())


@dataclass(frozen=True)
class BIDMC(LabelledTask):
    """Breathing rate, heart rate or oxygen saturation from 32 s of pulse wave and ECG at 125 Hz.

    Models answer in standard deviations from the mean. Errors are reported in the units of the data.

    Args:
        vital_sign: Vital sign to estimate: breathing rate, heart rate or oxygen saturation.
        cut: What the splits, 70 / 15 / 15 %, consist of. "windows" is what the benchmark does. Its windows overlap, so
            that test windows share most of their samples with training windows. "patients" tests on patients that were
            not seen in training.
        every: Number of consecutive samples that are averaged into one input of the model.
    """

    data: ClassVar[str] = "bidmc"
    outputs: ClassVar[int] = 1
    metric: ClassVar[Metric] = Metric.RMSE
    vital_sign: Literal["RR", "HR", "SpO2"] = "HR"
    cut: Literal["windows", "patients"] = "windows"
    every: int = 1

    #: Number of samples in a window.
    window: ClassVar[int] = 4000
    #: Mean and standard deviation over all windows.
    moments: ClassVar[dict[str, tuple[float, float]]] = {
        "RR": (17.57, 3.04),
        "HR": (89.18, 13.20),
        "SpO2": (96.73, 3.27),
    }

    @property
    def label(self) -> str:
        return f"BIDMC-{self.vital_sign}"

    @property
    def max_length(self) -> int:
        return self.window // self.every

    def inputs(self, width: int) -> Values:
        return Values(2, width)

    def split(self, split: Split) -> Indices:
        data = self.prepared()
        usable = np.flatnonzero(data[self.vital_sign] > 0)  # the monitor of one patient counted no breath for minutes
        if self.cut == "windows":
            return usable[split_shares(len(usable), 0.7, 0.15, 0.15)[split]]
        patients = split_shares(len(data["signals"]), 0.7, 0.15, 0.15)[split]
        return usable[np.isin(data["record"][usable], patients)]

    def targets(self, split: Split) -> NDArray[np.float64]:
        return self.prepared()[self.vital_sign][self.split(split)]

    def take(self, split: Split, rows: Indices) -> RegressionBatch:
        data = self.prepared()
        starts = zip(data["record"][rows], data["start"][rows], strict=True)
        windows = [data["signals"][record, start : start + self.window] for record, start in starts]
        x = averaged(torch.from_numpy(np.stack(windows)), self.every)
        return RegressionBatch(x, torch.from_numpy(data[self.vital_sign][rows]).float(), *self.moments[self.vital_sign])

    def chance_level(self) -> float:
        """Return the error of always answering with the mean over all windows."""
        return float(np.sqrt(np.mean((self.targets(Split.TEST) - self.moments[self.vital_sign][0]) ** 2)))
