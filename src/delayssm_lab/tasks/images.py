"""Tasks on images, read pixel by pixel, row after row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from delayssm.layers.inputs import Values
from delayssm_lab.data.generate.pathfinder import ContourLength, Size
from delayssm_lab.tasks.labelled import ClassificationBatch, Indices, LabelledTask, split_shares
from delayssm_lab.tasks.task import Split


class ImageTask(LabelledTask):
    """Classification of images. Each pixel is one time step."""

    #: Inputs are (pixel - center) / scale, for pixels from 0 to 255.
    center: ClassVar[float] = 0.0
    scale: ClassVar[float] = 255.0

    def inputs(self, width: int) -> Values:
        return Values(1, width)

    def _normalised(self, x: NDArray[np.uint8], y: NDArray[np.uint8]) -> ClassificationBatch:
        values = (torch.from_numpy(x).float() - self.center) / self.scale
        return ClassificationBatch(values.unsqueeze(-1), None, torch.from_numpy(y).long())


class TrainTestImageTask(ImageTask):
    """Images with a published test set. A fixed tenth of the training images is held out for validation."""

    def split(self, split: Split) -> Indices:
        data = self.prepared()
        if split is Split.TEST:
            return np.arange(len(data["test_y"]))
        return split_shares(len(data["train_y"]), 0.9, 0.1)[split]

    def targets(self, split: Split) -> NDArray[np.uint8]:
        return self.prepared()[f"{_prefix(split)}_y"][self.split(split)]

    def take(self, split: Split, rows: Indices) -> ClassificationBatch:
        data, prefix = self.prepared(), _prefix(split)
        return self._normalised(data[f"{prefix}_x"][rows], data[f"{prefix}_y"][rows])


def _prefix(split: Split) -> str:
    return "test" if split is Split.TEST else "train"


@dataclass(frozen=True)
class SequentialMNIST(TrainTestImageTask):
    """sMNIST: ten digits, 784 pixels from 0 to 1."""

    label: ClassVar[str] = "sMNIST"
    data: ClassVar[str] = "mnist"
    max_length: ClassVar[int] = 784
    outputs: ClassVar[int] = 10


@dataclass(frozen=True)
class GrayCIFAR(TrainTestImageTask):
    """Image of Long Range Arena: CIFAR-10 in gray, 1,024 pixels of about zero mean and unit variance."""

    label: ClassVar[str] = "Image"
    data: ClassVar[str] = "cifar10"
    max_length: ClassVar[int] = 1024
    outputs: ClassVar[int] = 10
    center: ClassVar[float] = 122.6
    scale: ClassVar[float] = 61.0


@dataclass(frozen=True)
class Pathfinder(ImageTask):
    """Pathfinder: whether a dashed path joins two discs. The splits are 80 / 10 / 10 % of the images.

    Args:
        side: Side of the images in pixels: 32, or 128 for Path-X, or 20.
        contour_length: Number of paddles of a path. The benchmark has 14, the level called hard. 6 and 9 are easier. 3,
            with a side of 20, is not published.
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

    def split(self, split: Split) -> Indices:
        return split_shares(len(self.prepared()["y"]), 0.8, 0.1, 0.1)[split]

    def targets(self, split: Split) -> NDArray[np.uint8]:
        return self.prepared()["y"][self.split(split)]

    def take(self, split: Split, rows: Indices) -> ClassificationBatch:
        data = self.prepared()
        return self._normalised(data["x"][rows], data["y"][rows])
