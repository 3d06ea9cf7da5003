"""AAN retrieval of the Long Range Arena: pairs of papers, labelled by whether one cites the other.

The files new_aan_pairs.{train,eval,test}.tsv have no header. Each row is a label, two numbers and two texts, separated
by tabs; texts may be in double quotes. The texts of the release are Python literals of bytes, b'...', with escapes for
everything outside ASCII. Like other loaders, this one does not decode the literals, so the alphabet is small.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from delayssm_lab.data import limits
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.prepared.writer import Output
from delayssm_lab.data.published import lra
from delayssm_lab.data.published.characters import CharacterCounter, CharacterEncoder
from delayssm_lab.data.published.dataset import DataSet, Download, ReadContext
from delayssm_lab.data.published.streams import bounded_lines

#: Two texts, and 1 if one cites the other, else 0.
Pair = tuple[str, str, int]
#: Characters of a text that models see, without the end token.
_HEAD = 3999
_LABELS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1}
_FILES = {
    "new_aan_pairs.train.tsv": "train",
    "new_aan_pairs.eval.tsv": "validation",
    "new_aan_pairs.test.tsv": "test",
}


def write_pairs(out: Output, splits: Mapping[str, Iterable[Pair]], source: str) -> dict[str, int]:
    """Write pairs of texts by split, and return their numbers. `source` names their origin in messages.

    Arrays: {split}_a_tokens and _b_tokens, ragged, and _y uint8. The training pairs are iterated twice, first to count
    characters.
    """
    counter = CharacterCounter(_HEAD, source)
    for a, b, _ in splits.get("train", ()):
        counter.add(a)
        counter.add(b)
    characters = counter.vocabulary()
    out.about(characters=characters)
    encode, counts = CharacterEncoder(characters), {}
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
class PublishedAan(DataSet):
    """Published files of AAN, the ACL Anthology Network.

    Arrays: {train,validation,test}_a_tokens and _b_tokens, ragged, and _y uint8. about["characters"] lists the tokens
    in order.
    """

    name: str = "aan"
    title: str = "AAN retrieval of the Long Range Arena (ACL Anthology Network)"
    licence: str = lra.LICENCE
    page: str = lra.PAGE
    size: int = lra.SIZE
    downloads: tuple[Download, ...] = lra.DOWNLOADS
    counts: Mapping[str, int] = field(default_factory=lambda: {"train": 147_086, "validation": 18_090, "test": 17_437})
    file_pattern: str = r"new_aan_pairs\.(train|eval|test)\.tsv"
    release: str = lra.FOLDER
    can_generate: bool = True

    def _read(self, context: ReadContext) -> dict[str, int]:
        present = {name: split for name, split in _FILES.items() if name in context.tree.names}
        context.report_missing(name for name in _FILES if name not in present)
        context.total = sum(self.counts.values()) + self.counts["train"]  # training pairs are read twice
        splits = {split: _Pairs(context, name, split) for name, split in present.items()}
        return write_pairs(context.out, splits, str(context.tree.path))


@dataclass(frozen=True)
class _Pairs:
    """Iterable over the pairs of a file. Each iteration reads the file again."""

    context: ReadContext
    name: str
    split: str

    def __iter__(self) -> Iterator[Pair]:
        return self.context.count(self.split, self._read())

    def _read(self) -> Iterator[Pair]:
        path = self.context.tree.path_of(self.name)
        csv.field_size_limit(limits.PAPER_CHARACTERS)  # papers exceed the default limit
        with self.context.tree.open(self.name, limits.STREAM_BYTES) as file:
            used = 0  # characters of the current row, which may span lines

            def lines() -> Iterator[str]:
                nonlocal used
                for line in bounded_lines(path, io.TextIOWrapper(file, "utf-8", newline=""), limits.PAPER_CHARACTERS):
                    used += len(line)
                    if used > limits.PAPER_CHARACTERS:
                        raise DataError(
                            f"{path}: a row is longer than the limit of {limits.PAPER_CHARACTERS:,} characters; "
                            "download it again"
                        )
                    yield line

            rows = csv.reader(lines(), delimiter="\t", strict=True)
            try:
                for row in rows:
                    used = 0
                    if len(row) != 5 or row[0] not in _LABELS:
                        raise DataError(
                            f"{path}, line {rows.line_num}: not a label of 0 or 1, two numbers and two texts; "
                            "download it again"
                        )
                    yield row[3], row[4], _LABELS[row[0]]
            except UnicodeDecodeError as error:
                raise DataError(f"{path}, after line {rows.line_num}: not UTF-8 text; download it again") from error
            except csv.Error as error:
                raise DataError(f"{path}, line {rows.line_num}: {error}; download it again") from error
