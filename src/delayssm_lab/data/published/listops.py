"""ListOps of the Long Range Arena: one expression per line with its value.

Source                                    Target    tokens
( ( ( [MAX 4 ) ( ( [MIN 7 ) ] ) ) ] )     7         [MAX 4 [MIN 7 X X
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from delayssm_lab.data import limits
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.prepared.writer import Output
from delayssm_lab.data.published import lra
from delayssm_lab.data.published.dataset import DataSet, Download, ReadContext, decode_utf8
from delayssm_lab.data.published.file_trees import FileTree
from delayssm_lab.data.published.streams import bounded_lines

#: Tokens in order. X closes a list.
TOKENS = ("<pad>", "<unk>", "<eos>", *"0123456789", "[MAX", "[MED", "[MIN", "[SM", "X")
_SYMBOLS = {"]" if token == "X" else token: number for number, token in enumerate(TOKENS) if number > 2}
_FILES = {"train": "basic_train", "validation": "basic_val", "test": "basic_test"}
_HEADER = "Source\tTarget"


def encode(text: str) -> NDArray[np.uint8]:
    """Return the tokens of an expression. Parentheses are dropped, because brackets determine the structure."""
    symbols = f"{text} ".replace("( ", "").replace(") ", "").split()
    try:
        return np.fromiter(map(_SYMBOLS.__getitem__, symbols), np.uint8, len(symbols))
    except KeyError as unknown:
        raise DataError(f"{unknown} is not a symbol of ListOps") from None


def write_expressions(out: Output, splits: Mapping[str, Iterable[tuple[str, int]]]) -> dict[str, int]:
    """Write expressions with their values by split, and return their numbers.

    Arrays: {split}_tokens, ragged, and {split}_y uint8.
    """
    return _write(out, {split: ((encode(text), y) for text, y in rows) for split, rows in splits.items()})


@dataclass(frozen=True, kw_only=True)
class PublishedListOps(DataSet):
    """Published files of ListOps.

    Arrays: {train,validation,test}_tokens, ragged, and _y uint8. about["tokens"] lists the tokens in order.
    """

    name: str = "listops"
    title: str = "ListOps of the Long Range Arena"
    licence: str = lra.LICENCE
    page: str = lra.PAGE
    size: int = lra.SIZE
    downloads: tuple[Download, ...] = lra.DOWNLOADS
    counts: Mapping[str, int] = field(default_factory=lambda: {"train": 96_000, "validation": 2_000, "test": 2_000})
    file_pattern: str = r"basic_(train|val|test)[^/]*\.tsv"
    release: str = lra.FOLDER
    can_generate: bool = True

    def _read(self, context: ReadContext) -> dict[str, int]:
        files = {split: _find_file(context.tree, prefix) for split, prefix in _FILES.items()}
        context.report_missing(f"{_FILES[split]}.tsv" for split, name in files.items() if name is None)
        context.total = sum(self.counts.values())
        rows = {
            split: context.count(split, _rows(context.tree, name)) for split, name in files.items() if name is not None
        }
        return _write(context.out, rows)


def _find_file(tree: FileTree, prefix: str) -> str | None:
    names = [name for name in tree.names if name.startswith(prefix) and name.endswith(".tsv")]
    if len(names) > 1:
        raise DataError(f"there are both {' and '.join(map(tree.path_of, names[:2]))}; keep only one")
    return names[0] if names else None


def _rows(tree: FileTree, name: str) -> Iterator[tuple[NDArray[np.uint8], int]]:
    path = tree.path_of(name)
    with tree.open(name, limits.STREAM_BYTES) as file:
        lines = bounded_lines(path, file, limits.EXPRESSION_BYTES)
        if decode_utf8(path, next(lines, b"")).rstrip("\r\n") != _HEADER:
            raise DataError(f"{path}: does not begin with the line {_HEADER!r}; download it again")
        for number, line in enumerate(lines, 2):
            source, tab, value = decode_utf8(path, line).rstrip("\r\n").partition("\t")
            if not source.strip("() ") or not tab or value not in set("0123456789"):
                raise DataError(f"{path}, line {number}: not an expression, a tab and a digit; download it again")
            try:
                yield encode(source), int(value)
            except DataError as error:
                raise DataError(f"{path}, line {number}: {error}; download it again") from None


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
