"""Pictures of a data set's images, for looking at."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from delayssm_lab.report.drawing import panels

Images = NDArray[np.uint8]


def samples_figure(ours: Images, official: Images | None, columns: int = 8) -> Figure:
    """Our images, (images, size, size), and the published ones beside them, row by row."""
    sets = {"published": official, "ours": ours}
    shown = {title: images for title, images in sets.items() if images is not None}
    rows = -(-max(map(len, shown.values())) // columns)
    inches = 0.025 * ours.shape[1]
    figure, axes = panels(len(shown), inches * columns, inches * rows)
    for axis, (title, images) in zip(axes, shown.items(), strict=True):
        axis.imshow(montage(images, columns), cmap="gray", interpolation="nearest")
        axis.set_title(title)
        axis.set_axis_off()
    return figure


def montage(images: Images, columns: int) -> Images:
    """One image of all, with a grey line between neighbours."""
    framed = np.pad(images, ((0, -len(images) % columns), (1, 1), (1, 1)), constant_values=96)
    _, height, width = framed.shape
    return framed.reshape(-1, columns, height, width).swapaxes(1, 2).reshape(-1, columns * width)
