"""Everything a Pathfinder image is put together from, drawn once: paddles at every angle, discs, and tables of turns.

A paddle starts a contour in one of 360 directions, one per degree, or goes on to one of the few pixels on a circle
around the end of the gap before it. So there are some four hundred paddles in all, and placing one needs no geometry.
Paddle k < 360 points along k - 180 degrees; paddle 360 + j comes back from pixel j of the circle.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

DIRECTIONS = 360
#: A chance of 1. Chances are whole numbers, so that every machine draws the same.
CHANCES = 1 << 20


class Stamps(NamedTuple):
    """For P paddles, C pixels on the circle; coordinates are (y, x), relative to where a paddle starts."""

    paddle: Bytes  #: (P, width, width), what is seen
    mask: Bytes  #: (P, width, width), the room it takes
    step: Floats  #: (P, 2), from its pivot to the next one's
    head: Floats  #: (360, 2), from the start of a first paddle to its other end
    back: Floats  #: (360, 2), from there to its pivot
    reach: Integers  #: (360, R, 2), what must be free around a first paddle
    seeds: NDArray[np.bool_]  #: (360,), the directions a contour may begin in
    seconds: Integers  #: (360, 2), from the start of one target contour to that of the other
    turn: Integers  #: (P, C), the chance of each pixel after each paddle
    circle: Integers  #: (C, 2), from the pivot
    near: Integers  #: (N, 2), the pixels within the margin
    disc: Bytes  #: (n, n, n, n), a marker at (y, x) of an n x n picture


def stamps(
    length: int, thickness: float, margin: int, continuity: float, seed_distance: int, radius: float, scale: int
) -> Stamps:
    """The stamps of one level and margin; `scale` is how much finer things are drawn before they are reduced."""
    degrees = np.deg2rad(np.arange(-180, 180))
    circle = _circle(length + margin)
    turned = np.arctan2(circle[:, 0], circle[:, 1])
    along = np.concatenate([degrees, turned])
    drawn = [_paddle(angle, length, thickness, margin, scale) for angle in np.concatenate([degrees, _opposite(turned)])]
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
    """The offsets of a disc, (N, 2)."""
    grid = np.arange(-radius, radius + 1)
    y, x = np.meshgrid(grid, grid, indexing="ij")
    inside = y**2 + x**2 <= radius**2
    return np.stack([y[inside], x[inside]], axis=1)


def _circle(radius: int) -> Integers:
    """The pixels that points one pixel apart on a circle fall into, (C, 2)."""
    angle = np.arange(0, 2 * np.pi, 1 / radius)
    return np.unique(np.floor(radius * _unit(angle)).astype(np.int64), axis=0)


def _turns(before: Floats, after: Floats, continuity: float) -> Integers:
    """Chances cos^2(continuity * angle between the two), 0 from a right angle on."""
    angle = np.abs(after - before[:, None])
    angle = np.minimum(angle, 2 * np.pi - angle)
    chance = np.cos(np.minimum(continuity * angle, np.pi / 2)) ** 2
    return np.asarray(np.rint(CHANCES * chance), np.int64)


def _paddle(angle: float, length: int, thickness: float, margin: int, scale: int) -> tuple[Bytes, Bytes]:
    """A bar that starts in the middle of the picture, and the same with a margin all around."""
    from PIL import Image, ImageDraw

    half = length + int(np.ceil(thickness)) + margin
    fine = Image.new("L", (2 * half * scale + 1, 2 * half * scale + 1))
    middle = half * scale
    y, x = np.ceil(middle + length * scale * _unit(np.array(angle))).astype(int).tolist()
    ImageDraw.Draw(fine).line([(middle, middle), (x, y)], fill=255, width=round(thickness * scale))
    bar = np.asarray(fine)
    return _reduced(bar, 2 * half + 1), _reduced(_dilated(bar, margin * scale), 2 * half + 1)


def _dilated(image: Bytes, radius: int) -> Bytes:
    padded = np.pad(image, radius)
    height, width = image.shape
    shifted = [padded[y : y + height, x : x + width] for y, x in _within(radius) + radius]
    return np.asarray(np.max(shifted, axis=0))


def _reduced(image: Bytes, size: int) -> Bytes:
    """Lanczos, to size x size. Pillow's, for it rounds as the published images were rounded."""
    from PIL import Image

    return np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.LANCZOS))


def _reach(mask: Bytes, half: int) -> Integers:
    """Per direction the offsets where a mask is full, (360, R, 2); rows with fewer repeat theirs.

    Through a window that reaches `half` pixels from the start, and one pixel off, down and to the right: so it is in
    the published images.
    """
    middle = mask.shape[1] // 2
    offsets = [np.argwhere(one == 255) - middle + 1 for one in mask]
    found = [each[(np.abs(each) <= half).all(axis=1)] for each in offsets]
    longest = max(map(len, found))
    return np.stack([np.resize(each, (longest, 2)) for each in found])


def _seeds(reach: Integers) -> NDArray[np.bool_]:
    """Some of the reach must lie inside the image even in its corners: so it is in the published images. (360,)."""
    corners = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    inside = (reach * corners[:, None, None] >= 0).all(axis=-1)
    return np.asarray(inside.any(axis=-1).all(axis=0))


def picture(radius: float) -> int:
    """The side of the smallest picture in whose middle a disc is drawn as it is far from any edge.

    Reducing spreads a disc by three pixels, and is different in the three at an edge.
    """
    return 2 * (int(np.ceil(radius)) + 7) + 1


def _discs(radius: float, scale: int) -> Bytes:
    """A disc at every pixel of a picture of n x n, (n, n, n, n)."""
    n = picture(radius)
    away = (np.arange(n * scale) - scale * np.arange(n)[:, None]) ** 2
    disc = np.where(away[:, None, :, None] + away[None, :, None, :] <= (radius * scale) ** 2, 255, 0).astype(np.uint8)
    return np.stack([[_reduced(one, n) for one in row] for row in disc])
