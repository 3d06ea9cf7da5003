"""Stamps from which Pathfinder images are composed, drawn once: paddles at every angle, discs, and tables of turns.

The first paddle of a contour has one of 360 directions, one per degree. Every further paddle starts at one of the few
pixels on a circle around the pivot, the end of the gap after the previous paddle. There are about four hundred paddles
in all, so placing one needs no trigonometry. Paddle k < 360 points along k - 180 degrees. Paddle 360 + j starts at
pixel j of the circle and points back to the pivot.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

DIRECTIONS = 360
#: The probability 1. Probabilities are integers, so that all machines draw the same images.
PROBABILITY_ONE = 1 << 20


class Stamps(NamedTuple):
    """Stamps and tables for P paddles and C pixels on the circle.

    Coordinates are (y, x), relative to the start of a paddle unless stated otherwise.
    """

    paddle: Bytes  #: (P, width, width), drawing of each paddle
    mask: Bytes  #: (P, width, width), area that each paddle occupies, with its margin
    step: Floats  #: (P, 2), from the pivot of a paddle to the pivot of the next one
    head: Floats  #: (360, 2), from the start of a first paddle to its other end
    back: Floats  #: (360, 2), from that end of a first paddle to its pivot
    reach: Integers  #: (360, R, 2), pixels that must be free around a first paddle
    seeds: NDArray[np.bool_]  #: (360,), whether a contour may start in a direction
    seconds: Integers  #: (360, 2), from the start of one target contour to the start of the other
    turn: Integers  #: (P, C), probability of each pixel of the circle after each paddle
    circle: Integers  #: (C, 2), pixels of the circle, relative to the pivot
    near: Integers  #: (N, 2), pixels within the margin
    disc: Bytes  #: (n, n, n, n), patch of n x n pixels with a marker at (y, x)


def make_stamps(
    length: int, thickness: float, margin: int, continuity: float, seed_distance: int, radius: float, scale: int
) -> Stamps:
    """Draw the stamps of one level and margin.

    Args:
        length: Length of a paddle.
        thickness: Thickness of a paddle.
        margin: Width of the free space around a paddle.
        continuity: Straightness of contours.
        seed_distance: Distance between the starts of the two target contours.
        radius: Radius of a disc.
        scale: Factor by which the resolution is increased for drawing.
    """
    degrees = np.deg2rad(np.arange(-180, 180))
    circle = _circle(length + margin)
    turned = np.arctan2(circle[:, 0], circle[:, 1])
    along = np.concatenate([degrees, turned])
    angles = np.concatenate([degrees, _opposite(turned)])
    drawn = [_draw_paddle(angle, length, thickness, margin, scale) for angle in angles]
    mask = np.stack([mask for _, mask in drawn])
    reach = _reach(mask[:DIRECTIONS], length + margin)
    return Stamps(
        paddle=np.stack([paddle for paddle, _ in drawn]),
        mask=mask,
        step=(length + 2 * margin) * _unit(along),
        head=length * _unit(degrees),
        back=(length + margin) * _unit(_opposite(degrees)),
        reach=reach,
        seeds=_seeds(reach),
        seconds=np.rint(seed_distance * _unit(np.deg2rad(np.arange(360)))).astype(np.int64),
        turn=_turns(along, turned, continuity),
        circle=circle,
        near=_within(margin),
        disc=_discs(radius, scale),
    )


def _unit(angle: Floats) -> Floats:
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1)


def _opposite(angle: Floats) -> Floats:
    return np.where(angle < 0, angle + np.pi, angle - np.pi)


def _within(radius: int) -> Integers:
    """Return the offsets of the pixels of a disc, (N, 2)."""
    grid = np.arange(-radius, radius + 1)
    y, x = np.meshgrid(grid, grid, indexing="ij")
    inside = y**2 + x**2 <= radius**2
    return np.stack([y[inside], x[inside]], axis=1)


def _circle(radius: int) -> Integers:
    """Return the pixels of a circle, found from points one pixel apart, (C, 2)."""
    angle = np.arange(0, 2 * np.pi, 1 / radius)
    return np.unique(np.floor(radius * _unit(angle)).astype(np.int64), axis=0)


def _turns(before: Floats, after: Floats, continuity: float) -> Integers:
    """Return the probabilities of turns, in units of 1 / PROBABILITY_ONE.

    p = cos^2(continuity * angle between the two), and 0 if continuity * angle is a right angle or more.
    """
    angle = np.abs(after - before[:, None])
    angle = np.minimum(angle, 2 * np.pi - angle)
    probability = np.cos(np.minimum(continuity * angle, np.pi / 2)) ** 2
    return np.asarray(np.rint(PROBABILITY_ONE * probability), np.int64)


def _draw_paddle(angle: float, length: int, thickness: float, margin: int, scale: int) -> tuple[Bytes, Bytes]:
    """Draw a bar that starts in the middle of the patch, and its mask, the bar with a margin all around."""
    from PIL import Image, ImageDraw

    half = length + int(np.ceil(thickness)) + margin
    canvas = Image.new("L", (2 * half * scale + 1, 2 * half * scale + 1))
    middle = half * scale
    y, x = np.ceil(middle + length * scale * _unit(np.array(angle))).astype(int).tolist()
    ImageDraw.Draw(canvas).line([(middle, middle), (x, y)], fill=255, width=round(thickness * scale))
    bar = np.asarray(canvas)
    return _downsampled(bar, 2 * half + 1), _downsampled(_dilated(bar, margin * scale), 2 * half + 1)


def _dilated(image: Bytes, radius: int) -> Bytes:
    padded = np.pad(image, radius)
    height, width = image.shape
    shifted = [padded[y : y + height, x : x + width] for y, x in _within(radius) + radius]
    return np.asarray(np.max(shifted, axis=0))


def _downsampled(image: Bytes, size: int) -> Bytes:
    """Downsample to size x size with Pillow's Lanczos filter, whose rounding is that of the published images."""
    from PIL import Image

    return np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.LANCZOS))


def _reach(mask: Bytes, half: int) -> Integers:
    """Return the offsets at which each mask is full, (360, R, 2). Shorter rows repeat their entries.

    As in the published generator, offsets are one pixel too far down and to the right, and only those up to `half`
    pixels from the start count.
    """
    middle = mask.shape[1] // 2
    offsets = [np.argwhere(one == 255) - middle + 1 for one in mask]
    inside = [each[(np.abs(each) <= half).all(axis=1)] for each in offsets]
    longest = max(map(len, inside))
    return np.stack([np.resize(each, (longest, 2)) for each in inside])


def _seeds(reach: Integers) -> NDArray[np.bool_]:
    """Return the directions in which a contour may start, (360,).

    As in the published generator, some pixels of the reach must be inside the image even in its corners.
    """
    corners = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    inside = (reach * corners[:, None, None] >= 0).all(axis=-1)
    return np.asarray(inside.any(axis=-1).all(axis=0))


def disc_patch_size(radius: float) -> int:
    """Return the size of the smallest patch in whose middle the edges do not affect the drawing of a disc.

    Downsampling spreads a disc by three pixels, and is different in the three pixels at an edge.
    """
    return 2 * (int(np.ceil(radius)) + 7) + 1


def _discs(radius: float, scale: int) -> Bytes:
    """Draw a disc at every pixel of a patch of n x n pixels, (n, n, n, n)."""
    n = disc_patch_size(radius)
    square = (np.arange(n * scale) - scale * np.arange(n)[:, None]) ** 2
    inside = square[:, None, :, None] + square[None, :, None, :] <= (radius * scale) ** 2
    discs = np.where(inside, 255, 0).astype(np.uint8)
    return np.stack([[_downsampled(disc, n) for disc in row] for row in discs])
