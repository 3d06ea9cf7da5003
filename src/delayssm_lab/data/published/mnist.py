"""MNIST: 28 x 28 images of handwritten digits, in four idx files."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from delayssm_lab.data import limits
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.published.dataset import DataSet, Download, ReadContext, verify_checksum
from delayssm_lab.data.published.file_trees import FileTree

_PIXELS = 28 * 28
_MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist"
_COMPRESSED_CHECKSUMS = {
    "train-images-idx3-ubyte": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte": "md5:d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte": "md5:9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte": "md5:ec29112dd5afa0611ce80d1b7f02629c",
}
_CHECKSUMS = {
    "train-images-idx3-ubyte": "md5:6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "md5:a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "md5:2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "md5:27ae3e4e09519cfbb04c329615203637",
}


@dataclass(frozen=True, kw_only=True)
class PublishedMnist(DataSet):
    """Published files of MNIST.

    Arrays: {train,test}_x uint8 (n, 784), row by row, and _y uint8 (n,).

    Args:
        checksums: Checksums of the uncompressed files by name.
    """

    name: str = "mnist"
    title: str = "MNIST handwritten digits"
    licence: str = "CC BY-SA 3.0"
    page: str = "http://yann.lecun.com/exdb/mnist"
    size: int = 11_594_722
    downloads: tuple[Download, ...] = tuple(
        Download(f"{name}.gz", f"{_MIRROR}/{name}.gz", checksum) for name, checksum in _COMPRESSED_CHECKSUMS.items()
    )
    counts: Mapping[str, int] = field(default_factory=lambda: {"train": 60_000, "test": 10_000})
    file_pattern: str = r"(train|t10k)-(images-idx3|labels-idx1)-ubyte"
    checksums: Mapping[str, str] = field(default_factory=lambda: MappingProxyType(_CHECKSUMS))

    def _read(self, context: ReadContext) -> dict[str, int]:
        tree, counts = context.tree, {}
        context.report_missing(name for name in self.checksums if name not in tree.names)
        context.total = 2
        for split, stem in {"train": "train", "test": "t10k"}.items():
            names = f"{stem}-images-idx3-ubyte", f"{stem}-labels-idx1-ubyte"
            if not all(name in tree.names for name in names):
                continue
            x, y = (self._read_idx(tree, name, split) for name in names)
            images, labels = map(tree.path_of, names)
            if x.shape[1:] != (28, 28):
                raise DataError(f"{images}: images of {x.shape[1:]} pixels instead of 28 x 28; download it again")
            if len(x) != len(y):
                raise DataError(f"{labels}: {len(y):,} labels for {len(x):,} images; download it again")
            if y.max(initial=0) > 9:
                raise DataError(f"{labels}: the label {y.max()} is not a digit; download it again")
            context.out.put(f"{split}_x", x.reshape(-1, _PIXELS))
            context.out.put(f"{split}_y", y)
            counts[split] = len(x)
            context.advance()
        return counts

    def _read_idx(self, tree: FileTree, name: str, split: str) -> NDArray[np.uint8]:
        """Return the array of an idx file.

        The file holds two zero bytes, the type (8 for uint8), the number of dimensions, the shape and the values.
        """
        path, content = tree.path_of(name), tree.read(name, limits.IDX_BYTES)
        dimensions = 3 if "idx3" in name else 1
        begin = 4 + 4 * dimensions
        magic = bytes([0, 0, 8, dimensions])
        if len(content) < begin or content[:4] != magic:
            raise DataError(f"{path}: begins with {content[:4].hex()} instead of {magic.hex()}; download it again")
        shape = struct.unpack(f">{dimensions}I", content[4:begin])
        if len(content) - begin != math.prod(shape):
            raise DataError(f"{path}: {len(content) - begin:,} values for the shape {shape}; download it again")
        if shape[0] == self.counts[split]:  # there are checksums of complete files only
            verify_checksum(path, [content], self.checksums[name])
        return np.frombuffer(content, np.uint8, offset=begin).reshape(shape)
