"""Pathfinder of the Long Range Arena: are the two dots ends of one curve?

For each size and length of curves, the release has images imgs/K/sample_I.png and lists metadata/K.npy. In spite of
their name, these are text, with a line for each image: folder, file, number, label, and how it was drawn.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from delayssm_lab.data.errors import DataError
from delayssm_lab.data.published import lra
from delayssm_lab.data.published.dataset import DataSet, Download, Reading, text
from delayssm_lab.data.published.trees import Tree

_FOLDERS = {6: "curv_baseline", 9: "curv_contour_length_9", 14: "curv_contour_length_14"}
_LIST = re.compile(r"metadata/(\d+)\.npy")
_IMAGE = re.compile(r"imgs/\d+/sample_\d+\.png")
#: An empty file in the release, which its readers leave out.
_EMPTY = {"pathfinder32/curv_baseline": "imgs/0/sample_172.png"}
_PUBLISHED = 200_000
_END = b"IEND\xae\x42\x60\x82"  # of every PNG


@dataclass(frozen=True, kw_only=True)
class Pathfinder(DataSet):
    """Arrays: x uint8 (n, side^2), row by row, and y uint8 (n,), in the order of the lists.

    Args:
        side: of each image, in pixels.
        level: the folder of the release.
        empty: an image without content, to be left out.
    """

    licence: str = lra.LICENCE
    page: str = lra.PAGE
    size: int = lra.SIZE
    downloads: tuple[Download, ...] = lra.DOWNLOADS
    release: str = lra.FOLDER
    generated: bool = True
    side: int
    level: str
    empty: str | None = None

    def _read(self, reading: Reading) -> dict[str, int]:
        reading.tree = reading.tree.below(f"{self.level}/")
        labels = {name: label for name, label in _labels(reading).items() if name != self.empty}
        images = [name for name in labels if name in reading.tree.names]
        unlisted = {name for name in reading.tree.names if _IMAGE.fullmatch(name)} - labels.keys() - {self.empty}
        reading.lacks(_examples("images", [name for name in labels if name not in reading.tree.names]))
        reading.lacks(_examples("labels of images", sorted(unlisted)))
        row = {name: number for number, name in enumerate(images)}
        x = reading.out.array("x", (len(images), self.side**2), np.uint8)
        reading.total = len(images)
        for name, content in reading.tree.each(images):
            x[row[name]] = _pixels(reading.tree.where(name), content, self.side)
            reading.step()
        reading.out.put("y", np.array([labels[name] for name in images], np.uint8))
        return {"all": len(images)}


@dataclass(frozen=True, kw_only=True)
class Unpublished(DataSet):
    """A level that is only generated."""

    name: str = "pathfinder20-3"
    title: str = "Pathfinder, 20 x 20 pixels, curves of 3"
    licence: str = "-"
    page: str = "nowhere; it is generated"
    size: int = 0
    downloads: tuple[Download, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    landmark: str = "pathfinder20-3"
    generated: bool = True

    def find(self, place: Path) -> Tree:
        raise DataError(f"{self.name} is not published; make it: delayssm data generate {self.name}")

    def _read(self, reading: Reading) -> dict[str, int]:
        return {}


def pathfinder(side: int, contour_length: int) -> Pathfinder:
    """One level of the release: curves of so many pieces, in images of so many pixels."""
    level = f"pathfinder{side}/{_FOLDERS[contour_length]}"
    empty = _EMPTY.get(level)
    return Pathfinder(
        name=f"pathfinder{side}-{contour_length}",
        title=f"Pathfinder, {side} x {side} pixels, curves of {contour_length}",
        counts={"all": _PUBLISHED - (empty is not None)},
        landmark=rf"{level}/(imgs/\d+/sample_\d+\.png|metadata/\d+\.npy)",
        side=side,
        level=level,
        empty=empty,
    )


def _labels(reading: Reading) -> dict[str, int]:
    """Of all listed images, by name."""
    found = {}
    lists = {int(match[1]): name for name in reading.tree.names if (match := _LIST.fullmatch(name))}
    contents = dict(reading.tree.each(lists.values()))
    for _, name in sorted(lists.items()):
        where = reading.tree.where(name)
        for number, line in enumerate(text(where, contents[name]).splitlines(), 1):
            fields = line.split()
            if len(fields) < 4 or fields[3] not in ("0", "1") or not _IMAGE.fullmatch(f"{fields[0]}/{fields[1]}"):
                raise DataError(f"{where}, line {number}: no folder, file, number and label; get it again")
            found[f"{fields[0]}/{fields[1]}"] = int(fields[3])
    return found


def _examples(what: str, names: list[str]) -> list[str]:
    return [f"{len(names):,} {what}, such as {names[0]}"] if names else []


def _pixels(where: str, content: bytes, side: int) -> NDArray[np.uint8]:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            pixels = np.asarray(image.convert("L"))
        if _END not in content:  # pixels may be whole all the same
            raise ValueError("cut off")
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{where}: no whole image ({error}); get it again") from error
    if pixels.shape != (side, side):
        raise DataError(f"{where}: {pixels.shape[1]} x {pixels.shape[0]} pixels instead of {side} x {side}")
    return pixels.reshape(-1)
