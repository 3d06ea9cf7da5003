"""Images read pixel by pixel, row after row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from delayssm.layers.inputs import Values
from delayssm_lab.data.generate.pathfinder import ContourLength, Size
from delayssm_lab.tasks.labelled import Classified, Labelled, Numbers, shares
from delayssm_lab.tasks.task import Split


class Pixels(Labelled):
    """A class for each image; every pixel is one time."""

    #: Subtracted from pixels of 0 to 255, and what they are then divided by.
    center: ClassVar[float] = 0.0
    scale: ClassVar[float] = 255.0

    def inputs(self, width: int) -> Values:
        return Values(1, width)

    def _taken(self, x: NDArray[np.uint8], y: NDArray[np.uint8], rows: Numbers) -> Classified:
        values = (torch.from_numpy(x[rows]).float() - self.center) / self.scale
        return Classified(values.unsqueeze(-1), None, torch.from_numpy(y[rows]).long())


class TrainTest(Pixels):
    """A published test set; a tenth of the training images, always the same, is held out for validation."""

    def split(self, split: Split) -> Numbers:
        data = self.prepared()
        if split is Split.TEST:
            return np.arange(len(data["test_y"]))
        return shares(len(data["train_y"]), 0.9, 0.1)[split]

    def targets(self, split: Split) -> NDArray[np.uint8]:
        part = "test" if split is Split.TEST else "train"
        return self.prepared()[f"{part}_y"][self.split(split)]

    def take(self, split: Split, rows: Numbers) -> Classified:
        data, part = self.prepared(), "test" if split is Split.TEST else "train"
        return self._taken(data[f"{part}_x"], data[f"{part}_y"], rows)


@dataclass(frozen=True)
class SequentialMNIST(TrainTest):
    """sMNIST: ten digits, 784 pixels from 0 to 1."""

    label: ClassVar[str] = "sMNIST"
    data: ClassVar[str] = "mnist"
    max_length: ClassVar[int] = 784
    outputs: ClassVar[int] = 10


@dataclass(frozen=True)
class GrayCIFAR(TrainTest):
    """Image of Long Range Arena: CIFAR-10 in gray, 1,024 pixels of about zero mean and unit variance."""

    label: ClassVar[str] = "Image"
    data: ClassVar[str] = "cifar10"
    max_length: ClassVar[int] = 1024
    outputs: ClassVar[int] = 10
    center: ClassVar[float] = 122.6
    scale: ClassVar[float] = 61.0


@dataclass(frozen=True)
class Pathfinder(Pixels):
    """Are two discs joined by a dashed path? 80 / 10 / 10 % of the images train, validate and test.

    Args:
        side: 32, or 128 for Path-X, or 20.
        contour_length: dashes of a path: 14 is the level called hard, which the benchmark has; 6 and 9 are easier, and
            3, with a side of 20, is not published.
    """

    outputs: ClassVar[int] = 2
    side: Size = 32
    contour_length: ContourLength = 14

    @property
    def label(self) -> str:
        return "Path-X" if self.side == 128 else "Pathfinder"

    @property
    def data(self) -> str:
        return f"pathfinder{self.side}-{self.contour_length}"

    @property
    def max_length(self) -> int:
        return self.side**2

    def split(self, split: Split) -> Numbers:
        return shares(len(self.prepared()["y"]), 0.8, 0.1, 0.1)[split]

    def targets(self, split: Split) -> NDArray[np.uint8]:
        return self.prepared()["y"][self.split(split)]

    def take(self, split: Split, rows: Numbers) -> Classified:
        data = self.prepared()
        return self._taken(data["x"], data["y"], rows)
