"""Pathfinder images: are two discs joined by one of two long dashed contours?

Two target contours start side by side and wander off; shorter ones distract. One disc marks the beginning of a target
contour, the other the end of the same (label 1) or of the other (label 0). The rules, their oddities included, are
those of the published generator (Linsley et al. 2018; Kim et al. 2020), so that images are distributed as the published
ones are; Long Range Arena's levels are here as `pathfinder(size, contour_length)`.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from delayssm_lab.data.generate.pathfinder_stamps import CHANCES, Stamps, picture, stamps

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]

#: Images a thread draws at a time.
_CHUNK = 16
#: Attempts at the target contours, of which one in 400 or more succeeds at the published levels.
_RESTARTS = 100_000


class Placed(NamedTuple):
    """What is where. A paddle is (y, x, stamp) and lies from (y, x) on; a marker is around its (y, x)."""

    targets: Integers  #: (images, 2, contour_length, 3)
    distractors: Integers  #: (images, distractors, distractor_length, 3), -1 for one that fitted nowhere
    markers: Integers  #: (images, 2, 2)
    layers: Bytes  #: (images, 3, size, size), the targets, distractors and markers alone
    labels: Integers  #: (images,)


@dataclass(frozen=True, kw_only=True)
class Pathfinder:
    """One level. Lengths are in pixels.

    Args:
        size: of the image, which is square.
        padding: pixels at the edge that count as taken.
        margins: room around a paddle; each image draws one of these.
        paddle_length: of each dash.
        paddle_thickness: of each dash.
        marker_radius: of each disc.
        contour_length: paddles of a target contour.
        seed_distance: between the beginnings of both.
        continuity: the larger, the straighter; 1 allows turns up to a right angle.
        distractor_length: paddles of a distractor.
        distractors: how many are tried. One that fits nowhere is left out.
        snake_contrast: brightness of contours; a marker has 1.
        paddle_contrast: times this in target contours alone.
        antialias: how much finer things are drawn before they are reduced.
        paddle_retries: how often another turn is tried before a contour fails.
        distractor_retries: how often a distractor that fails is begun again. Targets are until they fit.
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
        needed = max(4 * self.seed_distance + 1, picture(self.marker_radius))
        if not self.margins or min(counts) < 1:
            raise ValueError(f"padding, margins, lengths of paddles and contours must be 1 or more: {self}")
        if fine < 1 or fine != round(fine):
            raise ValueError(f"paddle_thickness * antialias must be a whole number of pixels, not {fine}")
        if self.size < needed:
            raise ValueError(f"this seed_distance and marker_radius need a size of {needed} or more, not {self.size}")

    def images(self, count: int, seed: int, first: int = 0) -> tuple[Bytes, Bytes]:
        """Images first .. first + count - 1, (count, size * size), and labels, (count,).

        Each is made from (seed, its number) alone.
        """
        images = np.empty((count, self.size * self.size), np.uint8)
        labels = np.empty(count, np.uint8)

        def fill(start: int) -> None:
            stop = min(start + _CHUNK, count)
            placed = self.placed(stop - start, seed, first + start)
            images[start:stop], labels[start:stop] = self._shine(placed.layers), placed.labels

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(fill, range(0, count, _CHUNK)))
        return images, labels

    def placed(self, count: int, seed: int, first: int = 0) -> Placed:
        """The same images before they are put together."""
        from delayssm_lab.data.generate.pathfinder_numba import Rules, draw

        keys = _keys(seed, first, count)
        placed = Placed(
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
            restarts=_RESTARTS,
            least_chance=CHANCES // 10_000,
        )
        for choice, margin in enumerate(self.margins):
            rows = np.flatnonzero(keys % np.uint64(len(self.margins)) == choice)
            draw(self._stamps(margin), rules, keys, rows, tuple(placed))
        if (placed.labels < 0).any():
            raise ValueError(
                f"two contours of {self.contour_length} paddles did not fit into {self.size} x {self.size} pixels in "
                f"{_RESTARTS} attempts; take a larger size, or fewer or shorter paddles"
            )
        return placed

    def _stamps(self, margin: int) -> Stamps:
        return _stamps(
            self.paddle_length,
            self.paddle_thickness,
            margin,
            self.continuity,
            self.seed_distance,
            self.marker_radius,
            self.antialias,
        )

    def _shine(self, layers: Bytes) -> Bytes:
        """The brightest of each pixel, then the brightest pixel of each image to 255. (images, size * size)."""
        contrast = np.array([self.snake_contrast * self.paddle_contrast, self.snake_contrast, 1.0], np.float32)
        single = (layers / np.float32(255) * contrast[:, None, None]).max(axis=1).reshape(len(layers), -1)
        light = single.astype(np.float64)  # in single precision up to here: so halves round as in the published images
        image: Bytes = (light * (255 / light.max(axis=1, keepdims=True)) + 0.5).astype(np.uint8)
        return image


_stamps = cache(stamps)

Size = Literal[20, 32, 128]
ContourLength = Literal[3, 6, 9, 14]
LEVELS: tuple[tuple[Size, ContourLength], ...] = ((20, 3), (32, 6), (32, 9), (32, 14), (128, 6), (128, 9), (128, 14))


def _keys(seed: int, first: int, count: int) -> NDArray[np.uint64]:
    """One for each image, far from each other: the finaliser of splitmix64, over the seed and then the number."""
    numbers = np.arange(first, first + count, dtype=np.uint64)
    return _mixed(_mixed(np.array([seed], np.uint64)) + numbers)


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def pathfinder(size: Size, contour_length: ContourLength) -> Pathfinder:
    """The levels of Long Range Arena: 6 paddles are easy, 9 intermediate, 14 hard; hard at 128 is Path-X.

    All distractors together have 20 paddles, or 35 at 128, as far as that divides. Contours of 3 in 20 x 20 pixels are
    none of these: a level that a small model learns in minutes, drawn like those at 32, with fewer distractors.
    """
    if (size, contour_length) not in LEVELS:
        raise ValueError(f"there is no level of size {size} with contours of {contour_length}; there are {LEVELS}")
    distractor_length = contour_length // 3
    if size != 128:
        return Pathfinder(
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
    return Pathfinder(
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
