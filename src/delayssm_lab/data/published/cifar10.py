"""CIFAR-10, binary version: records of a label byte, then 32 x 32 red, 32 x 32 green and 32 x 32 blue values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from delayssm_lab.data import limits
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.published.dataset import DataSet, Download, ReadContext

_PIXELS = 32 * 32
_RECORD = 1 + 3 * _PIXELS
_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))


@dataclass(frozen=True, kw_only=True)
class PublishedCifar10(DataSet):
    """Published files of CIFAR-10.

    Arrays: {train,test}_x uint8 (n, 1024), greyscale, row by row, and _y uint8 (n,).
    """

    name: str = "cifar10"
    title: str = "CIFAR-10 images"
    licence: str = "none stated; cite Krizhevsky 2009"
    page: str = "https://www.cs.toronto.edu/~kriz/cifar.html"
    size: int = 170_052_171
    downloads: tuple[Download, ...] = (
        Download(
            "cifar-10-binary.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "md5:c32a1d4ab5d03f1284b67883e8d87530",
        ),
    )
    counts: Mapping[str, int] = field(default_factory=lambda: {"train": 50_000, "test": 10_000})
    file_pattern: str = r"(data_batch_[1-5]|test_batch)\.bin"

    def _read(self, context: ReadContext) -> dict[str, int]:
        splits = {"train": _TRAIN, "test": ("test_batch.bin",)}
        files = [name for names in splits.values() for name in names]
        present = [name for name in files if name in context.tree.names]
        context.report_missing(name for name in files if name not in present)
        context.total = len(present)
        batches = {}
        for name, content in context.tree.read_each(present, limits.BATCH_BYTES):
            batches[name] = _read_batch(context.tree.path_of(name), content)
            context.advance()
        counts = {}
        for split, names in splits.items():
            if arrays := [batches[name] for name in names if name in batches]:
                context.out.put(f"{split}_x", np.concatenate([x for x, _ in arrays]))
                context.out.put(f"{split}_y", np.concatenate([y for _, y in arrays]))
                counts[split] = sum(len(x) for x, _ in arrays)
        return counts


def gray(red: NDArray[np.uint8], green: NDArray[np.uint8], blue: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return greyscale values, rounded as Pillow does.

    gray = 0.299 red + 0.587 green + 0.114 blue, with coefficients in units of 2^-16.
    """
    r, g, b = (colour.astype(np.uint32) for colour in (red, green, blue))
    return ((19595 * r + 38470 * g + 7471 * b + 32768) >> 16).astype(np.uint8)


def _read_batch(path: str, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    if not content or len(content) % _RECORD:
        raise DataError(
            f"{path}: {len(content):,} bytes are not a multiple of the record size {_RECORD}; download it again"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    labels = records[:, 0]
    if labels.max() > 9:
        raise DataError(f"{path}: the label {labels.max()} is not in 0 to 9; download it again")
    colours = records[:, 1:].reshape(-1, 3, _PIXELS)
    return gray(colours[:, 0], colours[:, 1], colours[:, 2]), labels
