"""MNIST: 28 x 28 handwritten digits, in four idx files."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from delayssm_lab.data.errors import DataError
from delayssm_lab.data.published.dataset import DataSet, Download, Reading, verify

_PIXELS = 28 * 28
_MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist"
_COMPRESSED = {
    "train-images-idx3-ubyte": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte": "md5:d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte": "md5:9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte": "md5:ec29112dd5afa0611ce80d1b7f02629c",
}
_CONTENT = {
    "train-images-idx3-ubyte": "md5:6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "md5:a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "md5:2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "md5:27ae3e4e09519cfbb04c329615203637",
}


@dataclass(frozen=True, kw_only=True)
class Mnist(DataSet):
    """Arrays: {train,test}_x uint8 (n, 784), row by row, and _y uint8 (n,).

    Args:
        checksums: of the files when they are not compressed; how they were compressed does not matter.
    """

    name: str = "mnist"
    title: str = "MNIST handwritten digits"
    licence: str = "CC BY-SA 3.0"
    page: str = "http://yann.lecun.com/exdb/mnist"
    size: int = 11_594_722
    downloads: tuple[Download, ...] = tuple(
        Download(f"{name}.gz", f"{_MIRROR}/{name}.gz", checksum) for name, checksum in _COMPRESSED.items()
    )
    counts: Mapping[str, int] = field(default_factory=lambda: {"train": 60_000, "test": 10_000})
    landmark: str = r"(train|t10k)-(images-idx3|labels-idx1)-ubyte"
    checksums: Mapping[str, str] = field(default_factory=lambda: MappingProxyType(_CONTENT))

    def _read(self, reading: Reading) -> dict[str, int]:
        found = {}
        reading.lacks(name for name in self.checksums if name not in reading.tree.names)
        reading.total = 2
        for split, stem in {"train": "train", "test": "t10k"}.items():
            names = f"{stem}-images-idx3-ubyte", f"{stem}-labels-idx1-ubyte"
            if not all(name in reading.tree.names for name in names):
                continue
            x, y = (self._array(reading, name, split) for name in names)
            where = reading.tree.where(names[1])
            if x.shape[1:] != (28, 28):
                raise DataError(f"{reading.tree.where(names[0])}: images of {x.shape[1:]} pixels instead of 28 x 28")
            if len(x) != len(y):
                raise DataError(f"{where}: {len(y):,} labels for {len(x):,} images")
            if y.max(initial=0) > 9:
                raise DataError(f"{where}: the label {y.max()} is not a digit")
            reading.out.put(f"{split}_x", x.reshape(-1, _PIXELS))
            reading.out.put(f"{split}_y", y)
            found[split] = len(x)
            reading.step()
        return found

    def _array(self, reading: Reading, name: str, split: str) -> NDArray[np.uint8]:
        """An idx file: two zeros, the type (8: uint8), the number of sizes, the sizes, the values."""
        where, content = reading.tree.where(name), reading.tree.read(name)
        dimensions = 3 if "idx3" in name else 1
        begin = 4 + 4 * dimensions
        if len(content) < begin or content[:4] != bytes([0, 0, 8, dimensions]):
            raise DataError(f"{where}: begins with {content[:4].hex()}, not with 000008{dimensions:02x}")
        shape = struct.unpack(f">{dimensions}I", content[4:begin])
        if len(content) - begin != math.prod(shape):
            raise DataError(f"{where}: {len(content) - begin:,} values, but its sizes are {shape}")
        if shape[0] == self.counts[split]:  # a smaller file is a part, and has no checksum
            verify(where, content, self.checksums[name])
        return np.frombuffer(content, np.uint8, offset=begin).reshape(shape)
