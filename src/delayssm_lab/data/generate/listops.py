"""ListOps as in the Long Range Arena: nested operations on digits, far longer than they are deep.

    ( ( ( ( [MAX 4 ) ( ( ( [SM 7 ) 8 ) ] ) ) 3 ) ] )        the maximum of 4, 7 + 8 modulo 10, and 3: 5

A tree has length 1 if it is a digit, else 2 and the lengths of its arguments: parentheses do not count. In the text, an
operator takes its arguments and its bracket one at a time, each in a pair of parentheses.

Trees grow level by level, thousands at once. A level is an array of its nodes, those with the same parent side by side;
a node is known by its number of arguments, and has none if it is a digit. Nothing else is drawn for trees whose length
is wrong, which are most.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from statistics import median

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.int64]

_OPERATORS = "[MIN", "[MAX", "[MED", "[SM"
_END = 10
_INNERMOST = re.compile(r"((?:\( )+)\[(MIN|MAX|MED|SM)((?: [0-9] \))+) \] \)")
#: Trees that grow together. Rows depend on it.
_BATCH = 4096
#: So many batches without a new row, and the settings are to blame.
_PATIENCE = 50


@dataclass(frozen=True, kw_only=True)
class ListOps:
    """What trees are drawn; the official numbers unless others are given.

    Args:
        max_depth: levels of a tree; on the last, all are digits.
        max_args: an operator has 2 to this many arguments.
        operator_probability: of a node above the last level.
        min_length: trees are longer than this.
        max_length: and shorter than this.
    """

    max_depth: int = 10
    max_args: int = 10
    operator_probability: float = 0.25
    min_length: int = 500
    max_length: int = 2000

    def __post_init__(self) -> None:
        if self.max_depth < 1:
            raise ValueError(f"max_depth must be at least 1, not {self.max_depth}")
        if self.max_args < 2:
            raise ValueError(f"max_args must be at least 2, not {self.max_args}")
        if not 0 <= self.operator_probability <= 1:
            raise ValueError(f"operator_probability must be from 0 to 1, not {self.operator_probability}")
        if self.max_length - self.min_length < 2:
            raise ValueError(f"no length is above {self.min_length} and below {self.max_length}; raise max_length")

    def rows(self, count: int, seed: int) -> Iterator[tuple[str, int]]:
        """Text and value of so many trees, no two the same. Fewer rows with the same seed are the first of these."""
        return islice(self._distinct(np.random.default_rng(seed)), count)

    def _distinct(self, random: np.random.Generator) -> Iterator[tuple[str, int]]:
        pieces = self._pieces()
        seen: set[bytes] = set()
        fruitless = 0
        while fruitless < _PATIENCE:
            before = len(seen)
            levels = self._grow(random)
            for tokens, value in _trees(levels, _symbols(levels, random)):
                key = hashlib.blake2b(tokens.tobytes(), digest_size=16).digest()
                if key not in seen:
                    seen.add(key)
                    yield _text(tokens, pieces), value
            fruitless = 0 if len(seen) > before else fruitless + 1
        raise ValueError(
            f"after {len(seen)} rows, {_PATIENCE * _BATCH} trees gave no other one: there are too few trees of {self}; "
            "ask for fewer rows, or allow more lengths"
        )

    def _grow(self, random: np.random.Generator) -> list[Array]:
        """Numbers of arguments, a level each, of a batch's trees that have a right length."""
        tree = np.arange(_BATCH)  # that a node belongs to
        length = np.ones(_BATCH, np.int64)
        levels = []
        for _ in range(self.max_depth - 1):
            chosen = random.random(tree.size) < self.operator_probability
            arguments = np.where(chosen, random.integers(2, self.max_args, tree.size, endpoint=True), 0)
            length += np.bincount(tree, arguments + chosen, minlength=_BATCH).astype(np.int64)
            arguments[length[tree] >= self.max_length] = 0  # too long already, and so it will stay
            levels.append((tree, arguments))
            tree = np.repeat(tree, arguments)
        levels.append((tree, np.zeros(tree.size, np.int64)))
        right = (self.min_length < length) & (length < self.max_length)
        return [arguments[right[tree]] for tree, arguments in levels]

    def _pieces(self) -> list[str]:
        """The text of each token, if it is the argument of another: with the parentheses that it opens and closes."""
        operators = [
            "( " * (arguments + 1) + operator for arguments in range(self.max_args + 1) for operator in _OPERATORS
        ]
        return [f"{digit} )" for digit in range(10)] + ["] ) )"] + operators


def evaluate(text: str) -> int:
    """The value of a tree in the official form, by its text: a list of digits becomes a digit, again and again."""
    rest = text
    while not re.fullmatch("[0-9]", rest):
        rest, found = _INNERMOST.subn(_reduce, rest)
        if not found:
            shown = text if len(text) <= 60 else text[:60] + "..."
            raise ValueError(f"not a ListOps expression in the official form: {shown!r}")
    return int(rest)


def _reduce(found: re.Match[str]) -> str:
    opened, operator, closed = found.groups()
    digits = [int(digit) for digit in closed.split() if digit != ")"]
    if opened.count("(") != len(digits) + 1:
        raise ValueError(f"ListOps parentheses are not in pairs around {found[0]!r}")
    match operator:
        case "MIN":
            value = min(digits)
        case "MAX":
            value = max(digits)
        case "MED":
            value = int(median(digits))
        case _:
            value = sum(digits) % 10
    return str(value)


def _symbols(levels: list[Array], random: np.random.Generator) -> list[Array]:
    """An operator, 0 to 3, for each node with arguments, and a digit for the others."""
    return [np.where(n > 0, random.integers(4, size=n.size), random.integers(10, size=n.size)) for n in levels]


def _trees(levels: list[Array], symbols: list[Array]) -> Iterator[tuple[Array, int]]:
    """The tokens of each tree, and its value.

    Tokens are digits, 10 for the closing bracket, and then operators by their number of arguments.
    """
    sizes, values = _sizes(levels), _values(levels, symbols)
    starts = _starts(levels, sizes)
    tokens = np.empty(sizes[0].sum(), np.int64)
    for arguments, symbol, size, start in zip(levels, symbols, sizes, starts, strict=True):
        tokens[start + size - 1] = _END  # a digit, of size 1, overwrites it
        tokens[start] = np.where(arguments > 0, _END + 1 + len(_OPERATORS) * arguments + symbol, symbol)
    for start, size, value in zip(starts[0].tolist(), sizes[0].tolist(), values.tolist(), strict=True):
        yield tokens[start : start + size], value


def _sizes(levels: list[Array]) -> list[Array]:
    """Tokens of each node and all below it."""
    sizes = [np.ones(levels[-1].size, np.int64)]
    for arguments in reversed(levels[:-1]):
        size = np.ones(arguments.size, np.int64)
        size[arguments > 0] = 2 + np.add.reduceat(sizes[-1], _before(arguments[arguments > 0]))
        sizes.append(size)
    return sizes[::-1]


def _starts(levels: list[Array], sizes: list[Array]) -> list[Array]:
    """Where the tokens of each node begin: one after its parent's, and after those of its elder siblings."""
    starts = [_before(sizes[0])]
    for arguments, size in zip(levels, sizes[1:], strict=False):
        children = arguments[arguments > 0]
        first = starts[-1][arguments > 0] + 1
        elder = _before(size)  # of all parents
        starts.append(elder + np.repeat(first - elder[_before(children)], children))
    return starts


def _values(levels: list[Array], symbols: list[Array]) -> Array:
    """What the trees come to."""
    values = symbols[-1]
    for arguments, symbol in zip(levels[-2::-1], symbols[-2::-1], strict=True):
        inner = arguments > 0
        value = symbol.copy()
        value[inner] = _apply(symbol[inner], values, arguments[inner])
        values = value
    return values


def _apply(operators: Array, values: Array, counts: Array) -> Array:
    """The value of each operator, of so many of the values each."""
    first = _before(counts)
    ordered = np.sort(values + 10 * np.repeat(np.arange(counts.size), counts)) % 10  # each group by itself
    middle = (ordered[first + (counts - 1) // 2] + ordered[first + counts // 2]) // 2
    total = np.add.reduceat(values, first) % 10
    return np.choose(operators, [ordered[first], ordered[first + counts - 1], middle, total])


def _before(sizes: Array) -> Array:
    """The sum of all sizes before each."""
    found: Array = np.cumsum(sizes) - sizes
    return found


def _text(tokens: Array, pieces: list[str]) -> str:
    """The official form. The last parenthesis would make the tree an argument of another."""
    return " ".join([pieces[token] for token in tokens.tolist()]).removesuffix(" )")
