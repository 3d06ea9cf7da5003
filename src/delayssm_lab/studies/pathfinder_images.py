"""What the generator of Pathfinder draws, beside what the original drew."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from delayssm_lab.data.generate.pathfinder import Size, pathfinder_generator
from delayssm_lab.report.drawing import png
from delayssm_lab.report.montage import samples_figure
from delayssm_lab.studies.study import Computed, File


@dataclass(frozen=True)
class Samples(Computed):
    """Images of each label, in as many rows as there are labels; the original's come with this package."""

    name = "pathfinder-images"
    title = "Generated images of Pathfinder and Path-X beside those of the original generator"

    seed: int = 0

    def files(self, work: Path) -> Iterable[File]:
        official = original_images()
        half = len(official) // 2
        yield "pathfinder.png", png(samples_figure(self._ours(32, half), official))
        yield "path-x.png", png(samples_figure(self._ours(128, 4), None))

    def _ours(self, size: Size, each: int) -> NDArray[np.uint8]:
        """The first images of either label, joined ones first."""
        x, y = pathfinder_generator(size, 14).images(8 * each, self.seed)
        return np.concatenate([x[y == label][:each] for label in (1, 0)]).reshape(-1, size, size)


def original_images() -> NDArray[np.uint8]:
    """(32, 32, 32): 16 joined and 16 not, drawn by the original generator (MIT licence), hard level."""
    with resources.files("delayssm_lab.studies").joinpath("official/pathfinder32.npz").open("rb") as file:
        x: NDArray[np.uint8] = np.load(file, allow_pickle=False)["x"]
    return x.reshape(-1, 32, 32)
