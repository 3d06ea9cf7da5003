"""Generator of Pathfinder images, labelled by whether two discs are the ends of one dashed contour.

Each image has two long target contours, which start near each other, and shorter distractor contours. One disc marks
the start of a target contour. The other marks the end of the same contour (label 1) or of the other one (label 0).

The rules, including their peculiarities, are those of the published generator (Linsley et al. 2018; Kim et al. 2020),
so the images have the distribution of the published ones. `pathfinder_generator(size, contour_length)` returns the
levels of the Long Range Arena.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from delayssm_lab.data.generate.pathfinder_stamps import PROBABILITY_ONE, Stamps, disc_patch_size, make_stamps

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]

#: Number of images that a thread draws at a time.
_CHUNK = 16
#: Maximum number of attempts at the target contours. At the hard levels, one in several hundred succeeds.
_MAX_ATTEMPTS = 100_000


class Placements(NamedTuple):
    """Positions of the contours and markers in a batch of images.

    A paddle, one dash of a contour, is (y, x, stamp) and starts at (y, x). A marker, a disc, is (y, x), its centre.
    """

    targets: Integers  #: (images, 2, contour_length, 3)
    distractors: Integers  #: (images, distractors, distractor_length, 3), -1 for a distractor that did not fit
    markers: Integers  #: (images, 2, 2)
    layers: Bytes  #: (images, 3, size, size), drawings of only the targets, the distractors and the markers
    labels: Integers  #: (images,)


@dataclass(frozen=True, kw_only=True)
class PathfinderGenerator:
    """Generator of the images of one level. Lengths are in pixels.

    Args:
        size: Height and width of an image.
        padding: Width of the border that counts as occupied.
        margins: Widths of the free space around a paddle. One of them is drawn for each image.
        paddle_length: Length of a paddle, one dash of a contour.
        paddle_thickness: Thickness of a paddle.
        marker_radius: Radius of a disc.
        contour_length: Number of paddles of a target contour.
        seed_distance: Distance between the starts of the two target contours.
        continuity: Straightness of contours. 1 allows turns up to a right angle; larger values allow smaller turns.
        distractor_length: Number of paddles of a distractor.
        distractors: Number of distractors that are attempted. A distractor that does not fit is left out.
        snake_contrast: Brightness of contours, relative to the markers.
        paddle_contrast: Additional factor for the brightness of target contours.
        antialias: Factor by which the resolution is increased for drawing.
        paddle_retries: Number of further attempts at a paddle before its contour fails.
        distractor_retries: Number of further attempts at a failed distractor. Targets are attempted until they fit.
    """

    size: int
    padding: int = 1
    margins: tuple[int, ...]
    paddle_length: int
    paddle_thickness: float
    marker_radius: float
    contour_length: int
    seed_distance: int
    continuity: float
    distractor_length: int
    distractors: int
    snake_contrast: float
    paddle_contrast: float
    antialias: int = 2
    paddle_retries: int = 2
    distractor_retries: int = 4

    def __post_init__(self) -> None:
        counts = self.padding, *self.margins, self.paddle_length, self.contour_length, self.distractor_length
        fine = self.paddle_thickness * self.antialias
        min_size = max(4 * self.seed_distance + 1, disc_patch_size(self.marker_radius))
        if not self.margins or min(counts) < 1:
            raise ValueError(f"padding, margins, lengths of paddles and contours must be at least 1: {self}")
        if fine < 1 or fine != round(fine):
            raise ValueError(f"paddle_thickness * antialias must be a whole number of pixels, not {fine}")
        if self.size < min_size:
            raise ValueError(
                f"seed_distance {self.seed_distance} and marker_radius {self.marker_radius} need a size of at least "
                f"{min_size}, not {self.size}"
            )

    def images(self, count: int, seed: int, first: int = 0) -> tuple[Bytes, Bytes]:
        """Return the images with numbers first to first + count - 1, and their labels.

        Shapes: images (count, size * size), labels (count,). An image depends only on the seed and its number.
        """
        images = np.empty((count, self.size * self.size), np.uint8)
        labels = np.empty(count, np.uint8)

        def fill(start: int) -> None:
            stop = min(start + _CHUNK, count)
            placements = self.placements(stop - start, seed, first + start)
            images[start:stop], labels[start:stop] = self._blend(placements.layers), placements.labels

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(fill, range(0, count, _CHUNK)))
        return images, labels

    def placements(self, count: int, seed: int, first: int = 0) -> Placements:
        """Return the positions of the contours and markers of the same images, and the layers before blending."""
        from delayssm_lab.data.generate.pathfinder_numba import Rules, draw

        keys = _keys(seed, first, count)
        placements = Placements(
            targets=np.zeros((count, 2, self.contour_length, 3), np.int64),
            distractors=np.zeros((count, self.distractors, self.distractor_length, 3), np.int64),
            markers=np.zeros((count, 2, 2), np.int64),
            layers=np.zeros((count, 3, self.size, self.size), np.uint8),
            labels=np.zeros(count, np.int64),
        )
        rules = Rules(
            size=self.size,
            padding=self.padding,
            seed_distance=self.seed_distance,
            paddle_retries=self.paddle_retries,
            distractor_retries=self.distractor_retries,
            max_attempts=_MAX_ATTEMPTS,
            min_total_probability=PROBABILITY_ONE // 10_000,
        )
        for choice, margin in enumerate(self.margins):
            rows = np.flatnonzero(keys % np.uint64(len(self.margins)) == choice)
            draw(self._stamps(margin), rules, keys, rows, tuple(placements))
        if (placements.labels < 0).any():
            raise ValueError(
                f"two contours of {self.contour_length} paddles did not fit into {self.size} x {self.size} pixels in "
                f"{_MAX_ATTEMPTS} attempts; choose a larger size, or fewer or shorter paddles"
            )
        return placements

    def _stamps(self, margin: int) -> Stamps:
        return _make_stamps(
            self.paddle_length,
            self.paddle_thickness,
            margin,
            self.continuity,
            self.seed_distance,
            self.marker_radius,
            self.antialias,
        )

    def _blend(self, layers: Bytes) -> Bytes:
        """Take the maximum over the layers, and scale the brightest pixel of each image to 255.

        Shape: (images, size * size).
        """
        contrast = np.array([self.snake_contrast * self.paddle_contrast, self.snake_contrast, 1.0], np.float32)
        single = (layers / np.float32(255) * contrast[:, None, None]).max(axis=1).reshape(len(layers), -1)
        # Single precision up to here makes halves round as in the published images.
        double = single.astype(np.float64)
        images: Bytes = (double * (255 / double.max(axis=1, keepdims=True)) + 0.5).astype(np.uint8)
        return images


_make_stamps = cache(make_stamps)

Size = Literal[20, 32, 128]
ContourLength = Literal[3, 6, 9, 14]
LEVELS: tuple[tuple[Size, ContourLength], ...] = ((20, 3), (32, 6), (32, 9), (32, 14), (128, 6), (128, 9), (128, 14))


def _keys(seed: int, first: int, count: int) -> NDArray[np.uint64]:
    """Return one random key per image: the finaliser of splitmix64, applied to the seed and then to the number."""
    numbers = np.arange(first, first + count, dtype=np.uint64)
    return _mixed(_mixed(np.array([seed], np.uint64)) + numbers)


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def pathfinder_generator(size: Size, contour_length: ContourLength) -> PathfinderGenerator:
    """Return the generator of one level.

    The levels of the Long Range Arena have contours of 6 (easy), 9 (intermediate) or 14 (hard) paddles in images of 32
    or 128 pixels. The hard level at 128 pixels is Path-X. All distractors of an image have about 20 paddles in total,
    or 35 at 128 pixels.

    The level with contours of 3 paddles in 20 x 20 pixels is not published. It is drawn like those of 32 pixels, with
    fewer distractors, and a small model learns it in minutes.
    """
    if (size, contour_length) not in LEVELS:
        raise ValueError(f"there is no level of size {size} with contours of {contour_length}; choose one of {LEVELS}")
    distractor_length = contour_length // 3
    if size != 128:
        return PathfinderGenerator(
            size=size,
            margins=(1,),
            paddle_length=2,
            paddle_thickness=0.5,
            marker_radius=1.5,
            contour_length=contour_length,
            seed_distance=7 if size == 32 else 4,
            continuity=1.0,
            distractor_length=distractor_length,
            distractors=20 // distractor_length if size == 32 else 2,
            snake_contrast=2.0,
            paddle_contrast=0.75,
        )
    return PathfinderGenerator(
        size=128,
        margins=(2, 3),
        paddle_length=5,
        paddle_thickness=1.5,
        marker_radius=3.0,
        contour_length=contour_length,
        seed_distance=20,
        continuity=1.8,
        distractor_length=distractor_length,
        distractors=35 // distractor_length,
        snake_contrast=0.9,
        paddle_contrast=1.0,
    )
