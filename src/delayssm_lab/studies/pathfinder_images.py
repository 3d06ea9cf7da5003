"""Images of the Pathfinder generator beside those of the original one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from delayssm_lab.data.generate.pathfinder import Size, pathfinder_generator
from delayssm_lab.report.drawing import panels, png
from delayssm_lab.study import Computed, File, Places

Images = NDArray[np.uint8]


@dataclass(frozen=True)
class PathfinderImages(Computed):
    """Images with connected ends in the upper rows, the others below; the original ones come with this package."""

    name = "pathfinder-images"
    title = "Generated images of Pathfinder and Path-X beside those of the original generator"

    seed: int = 0

    def files(self, places: Places) -> Iterable[File]:
        original = original_images()
        yield "pathfinder.png", png(images_figure(self._generate(32, len(original) // 2), original))
        yield "path-x.png", png(images_figure(self._generate(128, 4), None, columns=4))

    def _generate(self, size: Size, per_label: int) -> Images:
        """Return the first generated images of each label, connected ones first, (2 per_label, size, size)."""
        x, y = pathfinder_generator(size, 14).images(8 * per_label, self.seed)
        return np.concatenate([x[y == label][:per_label] for label in (1, 0)]).reshape(-1, size, size)


def original_images() -> Images:
    """Return 16 connected and 16 other images, (32, 32, 32), of the original generator (MIT licence), hard level."""
    with resources.files("delayssm_lab.studies").joinpath("official/pathfinder32.npz").open("rb") as file:
        x: Images = np.load(file, allow_pickle=False)["x"]
    return x.reshape(-1, 32, 32)


def images_figure(generated: Images, original: Images | None, columns: int = 8) -> Figure:
    """Return a figure of generated images, (images, size, size), with original ones, if any, on the left."""
    sets = {"original generator": original, "our generator": generated}
    present = {title: images for title, images in sets.items() if images is not None}
    rows = -(-max(map(len, present.values())) // columns)
    inches = 0.025 * generated.shape[1]
    figure, axes = panels(len(present), inches * columns, inches * rows)
    for axis, (title, images) in zip(axes, present.items(), strict=True):
        axis.imshow(montage(images, columns), cmap="gray", interpolation="nearest")
        axis.set_title(title)
        axis.set_axis_off()
    return figure


def montage(images: Images, columns: int) -> Images:
    """Return all images as one, row by row, with grey lines between them."""
    framed = np.pad(images, ((0, -len(images) % columns), (1, 1), (1, 1)), constant_values=96)
    _, height, width = framed.shape
    return framed.reshape(-1, columns, height, width).swapaxes(1, 2).reshape(-1, columns * width)
