"""Retrieval of the Long Range Arena: pairs of papers of the ACL Anthology Network; does one cite the other?

Rows of new_aan_pairs.{train,eval,test}.tsv are label, two numbers and two texts, between tabs, without a header. Texts
may be in double quotes. In the release they are bytes as Python writes them, b'...', and public loaders take that as
text: what is not ASCII is spelled out, and few characters are left.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from delayssm_lab.data.errors import DataError
from delayssm_lab.data.prepared.writer import Output
from delayssm_lab.data.published import lra
from delayssm_lab.data.published.characters import Counter, Encoder
from delayssm_lab.data.published.dataset import DataSet, Download, Reading

#: Two texts, and whether one cites the other.
Pair = tuple[str, str, int]
#: What models see of a text, without the token for its end.
_HEAD = 3999
_LABELS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1}
_FILES = {
    f"new_aan_pairs.{part}.tsv": split
    for part, split in {"train": "train", "eval": "validation", "test": "test"}.items()
}


def write_splits(out: Output, splits: Mapping[str, Iterable[Pair]]) -> dict[str, int]:
    """Pairs by split: arrays {split}_a_tokens and _b_tokens, ragged, and _y. Gives how many there are.

    `train` is gone through twice, first to count characters.
    """
    counter = Counter(_HEAD)
    for a, b, _ in splits.get("train", ()):
        counter.add(a)
        counter.add(b)
    characters = counter.frequent()
    out.about(characters=characters)
    encode, counts = Encoder(characters), {}
    for split, pairs in splits.items():
        first, second, labels = out.ragged(f"{split}_a_tokens"), out.ragged(f"{split}_b_tokens"), []
        for a, b, label in pairs:
            first.append(encode(a))
            second.append(encode(b))
            labels.append(label)
        out.put(f"{split}_y", np.array(labels, np.uint8))
        counts[split] = len(labels)
    return counts


@dataclass(frozen=True, kw_only=True)
class Aan(DataSet):
    """Arrays: {train,validation,test}_a_tokens and _b_tokens, ragged, and _y uint8.

    about["characters"] are the tokens in order.
    """

    name: str = "aan"
    title: str = "Retrieval of the Long Range Arena (ACL Anthology Network)"
    licence: str = lra.LICENCE
    page: str = lra.PAGE
    size: int = lra.SIZE
    downloads: tuple[Download, ...] = lra.DOWNLOADS
    counts: Mapping[str, int] = field(default_factory=lambda: {"train": 147_086, "validation": 18_090, "test": 17_437})
    landmark: str = r"new_aan_pairs\.(train|eval|test)\.tsv"
    release: str = lra.FOLDER
    generated: bool = True

    def _read(self, reading: Reading) -> dict[str, int]:
        here = {name: split for name, split in _FILES.items() if name in reading.tree.names}
        reading.lacks(name for name in _FILES if name not in here)
        reading.total = sum(self.counts.values()) + self.counts["train"]
        return write_splits(reading.out, {split: _Rows(reading, name) for name, split in here.items()})


@dataclass(frozen=True)
class _Rows:
    """The pairs of a file, read anew each time."""

    reading: Reading
    name: str

    def __iter__(self) -> Iterator[Pair]:
        where = self.reading.tree.where(self.name)
        csv.field_size_limit(sys.maxsize >> 32)  # papers are longer than what csv expects of a field
        with self.reading.tree.open(self.name) as file:
            rows = csv.reader(io.TextIOWrapper(file, "utf-8", newline=""), delimiter="\t", strict=True)
            try:
                for row in rows:
                    if len(row) != 5 or row[0] not in _LABELS:
                        raise DataError(f"{where}, line {rows.line_num}: no label of 0 or 1, two numbers and two texts")
                    yield row[3], row[4], _LABELS[row[0]]
                    self.reading.step()
            except UnicodeDecodeError as error:
                raise DataError(f"{where}, after line {rows.line_num}: not UTF-8 text; get it again") from error
            except csv.Error as error:
                raise DataError(f"{where}, line {rows.line_num}: {error}; get it again") from error
