"""CIFAR-10, the binary version: records of one label byte and 32 x 32 pixels in red, then green, then blue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from delayssm_lab.data.errors import DataError
from delayssm_lab.data.published.dataset import DataSet, Download, Reading

_PIXELS = 32 * 32
_RECORD = 1 + 3 * _PIXELS
_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))


@dataclass(frozen=True, kw_only=True)
class Cifar10(DataSet):
    """Arrays: {train,test}_x uint8 (n, 1024), gray, row by row, and _y uint8 (n,)."""

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
    landmark: str = r"(data_batch_[1-5]|test_batch)\.bin"

    def _read(self, reading: Reading) -> dict[str, int]:
        splits = {"train": _TRAIN, "test": ("test_batch.bin",)}
        wanted = [name for names in splits.values() for name in names]
        here = [name for name in wanted if name in reading.tree.names]
        reading.lacks(name for name in wanted if name not in here)
        reading.total = len(here)
        batches = {}
        for name, content in reading.tree.each(here):
            batches[name] = _batch(reading.tree.where(name), content)
            reading.step()
        found = {}
        for split, names in splits.items():
            parts = [batches[name] for name in names if name in batches]
            if parts:
                reading.out.put(f"{split}_x", np.concatenate([x for x, _ in parts]))
                reading.out.put(f"{split}_y", np.concatenate([y for _, y in parts]))
                found[split] = sum(len(x) for x, _ in parts)
        return found


def gray(red: NDArray[np.uint8], green: NDArray[np.uint8], blue: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """0.299 red + 0.587 green + 0.114 blue, rounded as image libraries do: in parts of 2^16."""
    r, g, b = (colour.astype(np.uint32) for colour in (red, green, blue))
    return ((19595 * r + 38470 * g + 7471 * b + 32768) >> 16).astype(np.uint8)


def _batch(where: str, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    if not content or len(content) % _RECORD:
        raise DataError(f"{where}: {len(content):,} bytes are no whole number of records of {_RECORD}; get it again")
    records = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    labels = records[:, 0]
    if labels.max() > 9:
        raise DataError(f"{where}: the label {labels.max()} is not one of 0 to 9; get it again")
    colours = records[:, 1:].reshape(-1, 3, _PIXELS)
    return gray(colours[:, 0], colours[:, 1], colours[:, 2]), labels
