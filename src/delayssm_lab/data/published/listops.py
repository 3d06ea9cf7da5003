"""ListOps of the Long Range Arena: nested lists, one per line with its value.

Source                                    Target    tokens
( ( ( [MAX 4 ) ( ( [MIN 7 ) ] ) ) ] )     7         [MAX 4 [MIN 7 X X
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from delayssm_lab.data.errors import DataError
from delayssm_lab.data.prepared.writer import Output
from delayssm_lab.data.published import lra
from delayssm_lab.data.published.dataset import DataSet, Download, Reading, text

#: In order. X closes a list.
TOKENS = ("<pad>", "<unk>", "<eos>", *"0123456789", "[MAX", "[MED", "[MIN", "[SM", "X")
_WORDS = {"]" if token == "X" else token: number for number, token in enumerate(TOKENS) if number > 2}
_FILES = {"train": "basic_train", "validation": "basic_val", "test": "basic_test"}
_HEADER = "Source\tTarget"


def encode(text: str) -> NDArray[np.uint8]:
    """Tokens of a list. Parentheses are left out: brackets say as much."""
    words = f"{text} ".replace("( ", "").replace(") ", "").split()
    try:
        return np.fromiter(map(_WORDS.__getitem__, words), np.uint8, len(words))
    except KeyError as unknown:
        raise DataError(f"{unknown} is no word of ListOps") from None


def write_splits(out: Output, splits: Mapping[str, Iterable[tuple[str, int]]]) -> dict[str, int]:
    """Lists and their values, by split: arrays {split}_tokens, ragged, and {split}_y. Gives how many there are."""
    return _write(out, {split: ((encode(text), y) for text, y in rows) for split, rows in splits.items()})


@dataclass(frozen=True, kw_only=True)
class ListOps(DataSet):
    """Arrays: {train,validation,test}_tokens, ragged, and _y uint8. about["tokens"] are the tokens in order."""

    name: str = "listops"
    title: str = "ListOps of the Long Range Arena"
    licence: str = lra.LICENCE
    page: str = lra.PAGE
    size: int = lra.SIZE
    downloads: tuple[Download, ...] = lra.DOWNLOADS
    counts: Mapping[str, int] = field(default_factory=lambda: {"train": 96_000, "validation": 2_000, "test": 2_000})
    landmark: str = r"basic_(train|val|test)[^/]*\.tsv"
    release: str = lra.FOLDER
    generated: bool = True

    def _read(self, reading: Reading) -> dict[str, int]:
        files = {split: _file(reading, begin) for split, begin in _FILES.items()}
        reading.lacks(f"{_FILES[split]}.tsv" for split, name in files.items() if name is None)
        reading.total = sum(self.counts.values())
        rows = {split: _rows(reading, name) for split, name in files.items() if name is not None}
        return _write(reading.out, rows)


def _file(reading: Reading, begin: str) -> str | None:
    found = [name for name in reading.tree.names if name.startswith(begin) and name.endswith(".tsv")]
    if len(found) > 1:
        raise DataError(f"there are both {' and '.join(map(reading.tree.where, found[:2]))}; leave one")
    return found[0] if found else None


def _rows(reading: Reading, name: str) -> Iterator[tuple[NDArray[np.uint8], int]]:
    where = reading.tree.where(name)
    with reading.tree.open(name) as file:
        if text(where, file.readline()).rstrip("\r\n") != _HEADER:
            raise DataError(f"{where}: does not begin with the line Source, tab, Target")
        for number, line in enumerate(file, 2):
            source, tab, value = text(where, line).rstrip("\r\n").partition("\t")
            if not tab or value not in set("0123456789"):
                raise DataError(f"{where}, line {number}: no list, tab and digit; get it again")
            try:
                yield encode(source), int(value)
            except DataError as error:
                raise DataError(f"{where}, line {number}: {error}") from None
            reading.step()


def _write(out: Output, splits: Mapping[str, Iterable[tuple[NDArray[np.uint8], int]]]) -> dict[str, int]:
    out.about(tokens=list(TOKENS))
    counts = {}
    for split, rows in splits.items():
        tokens, values = out.ragged(f"{split}_tokens"), []
        for row, value in rows:
            tokens.append(row)
            values.append(value)
        out.put(f"{split}_y", np.array(values, np.uint8))
        counts[split] = len(values)
    return counts
