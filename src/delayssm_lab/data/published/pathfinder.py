"""Pathfinder of the Long Range Arena: images, labelled by whether two discs are the ends of one contour.

For each image size and contour length, the release has images imgs/K/sample_I.png and lists metadata/K.npy. Despite
their suffix, the lists are text. Each line describes one image: folder, file, number, label and drawing parameters.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from delayssm_lab.data import limits
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.published import lra
from delayssm_lab.data.published.dataset import DataSet, Download, ReadContext, decode_utf8
from delayssm_lab.data.published.file_trees import FileTree

_FOLDERS = {6: "curv_baseline", 9: "curv_contour_length_9", 14: "curv_contour_length_14"}
_LIST = re.compile(r"metadata/(\d+)\.npy")
_IMAGE = re.compile(r"imgs/\d+/sample_\d+\.png")
#: Image that is an empty file in the release, by level. Other readers skip it, too.
_EMPTY = {"pathfinder32/curv_baseline": "imgs/0/sample_172.png"}
_PUBLISHED = 200_000
#: Modes of Pillow that have a brightness: no palettes, and no numbers of more than a byte.
_MODES = ("1", "L", "LA", "RGB", "RGBA")
_PNG_END = b"IEND\xae\x42\x60\x82"


@dataclass(frozen=True, kw_only=True)
class PublishedPathfinder(DataSet):
    """Published files of one level of Pathfinder.

    Arrays: x uint8 (n, side^2), row by row, and y uint8 (n,), in the order of the lists.

    Args:
        side: Height and width of each image in pixels.
        level: Folder of the level in the release.
        empty: Name of an image that is an empty file, to be skipped.
    """

    licence: str = lra.LICENCE
    page: str = lra.PAGE
    size: int = lra.SIZE
    downloads: tuple[Download, ...] = lra.DOWNLOADS
    release: str = lra.FOLDER
    can_generate: bool = True
    side: int
    level: str
    empty: str | None = None

    def _read(self, context: ReadContext) -> dict[str, int]:
        tree = context.tree = context.tree.subtree(f"{self.level}/")
        labels = {name: label for name, label in _read_labels(context).items() if name != self.empty}
        images = [name for name in labels if name in tree.names]
        unlisted = {name for name in tree.names if _IMAGE.fullmatch(name)} - labels.keys() - {self.empty}
        context.report_missing(_summarise("images", [name for name in labels if name not in tree.names]))
        context.report_missing(_summarise("labels of images", sorted(unlisted)))
        rows = {name: row for row, name in enumerate(images)}
        x = context.out.array("x", (len(images), self.side**2), np.uint8)
        context.total = len(images)
        for name, content in tree.read_each(images, limits.IMAGE_BYTES):
            x[rows[name]] = _read_pixels(tree.path_of(name), content, self.side)
            context.advance()
        context.out.put("y", np.array([labels[name] for name in images], np.uint8))
        return {"all": len(images)}


@dataclass(frozen=True, kw_only=True)
class UnpublishedPathfinder(DataSet):
    """A small level of Pathfinder that is not published and can only be generated."""

    name: str = "pathfinder20-3"
    title: str = "Pathfinder, 20 x 20 pixels, contours of 3 paddles"
    licence: str = "-"
    page: str = "not published; generate it"
    size: int = 0
    downloads: tuple[Download, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    file_pattern: str = "pathfinder20-3"
    can_generate: bool = True

    def require_files(self, root: Path) -> FileTree:
        """Raise DataError, because there are no published files."""
        raise DataError(f"{self.name} is not published; run: delayssm data generate {self.name}")

    def _read(self, context: ReadContext) -> dict[str, int]:
        return {}


def published_pathfinder(side: int, contour_length: int) -> PublishedPathfinder:
    """Return one level of the release: images of side x side pixels with contours of `contour_length` paddles."""
    level = f"pathfinder{side}/{_FOLDERS[contour_length]}"
    empty = _EMPTY.get(level)
    return PublishedPathfinder(
        name=f"pathfinder{side}-{contour_length}",
        title=f"Pathfinder, {side} x {side} pixels, contours of {contour_length} paddles",
        counts={"all": _PUBLISHED - (empty is not None)},
        file_pattern=rf"{level}/(imgs/\d+/sample_\d+\.png|metadata/\d+\.npy)",
        side=side,
        level=level,
        empty=empty,
    )


def _read_labels(context: ReadContext) -> dict[str, int]:
    """Return the labels of all listed images by name, in the order of the numbers of the lists."""
    tree, labels = context.tree, dict[str, tuple[int, int]]()
    lists = {name: int(match[1]) for name in tree.names if (match := _LIST.fullmatch(name))}
    for name, content in tree.read_each(lists, limits.LIST_BYTES):
        path = tree.path_of(name)
        for number, line in enumerate(decode_utf8(path, content).splitlines(), 1):
            fields = line.split()
            if len(fields) < 4 or fields[3] not in ("0", "1") or not _IMAGE.fullmatch(f"{fields[0]}/{fields[1]}"):
                raise DataError(f"{path}, line {number}: not a folder, file, number and label; download it again")
            image = f"{fields[0]}/{fields[1]}"
            if image in labels:
                raise DataError(f"{path}, line {number}: {image} is listed twice; download it again")
            labels[image] = lists[name], int(fields[3])
        context.check_counts({"all": len(labels) - 1})  # one listed image may be an empty file
    ordered = sorted(labels.items(), key=lambda item: item[1][0])
    return {image: label for image, (_, label) in ordered}


def _summarise(what: str, names: list[str]) -> list[str]:
    return [f"{len(names):,} {what}, such as {names[0]}"] if names else []


def _read_pixels(path: str, content: bytes, side: int) -> NDArray[np.uint8]:
    from PIL import Image

    # The size is checked before Pillow allocates memory for it.
    width, height = struct.unpack(">2I", content[16:24]) if len(content) >= 24 else (side, side)
    if (width, height) != (side, side):
        raise DataError(f"{path}: {width} x {height} pixels instead of {side} x {side}; download it again")
    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            if image.mode not in _MODES:
                raise ValueError(f"its mode is {image.mode}")
            pixels = np.asarray(image.convert("L"))
        if _PNG_END not in content:  # Pillow may decode a truncated file without an error
            raise ValueError("truncated")
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{path}: not a complete image ({error}); download it again") from error
    return pixels.reshape(-1)
