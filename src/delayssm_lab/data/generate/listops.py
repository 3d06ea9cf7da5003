"""Generator of ListOps expressions as in the Long Range Arena: nested operations on digits.

    ( ( ( ( [MAX 4 ) ( ( ( [SM 7 ) 8 ) ] ) ) 3 ) ] )        maximum of 4, (7 + 8) modulo 10, and 3: value 5

A digit has length 1. Any other expression has length 2 plus the lengths of its arguments; parentheses do not count. In
the text, an operator is combined with its arguments and its closing bracket one at a time, each time in a pair of
parentheses.

Expression trees grow level by level, thousands at once. A level is an array with the number of arguments of each node,
0 for a digit; nodes with the same parent are adjacent. Most trees have a length outside of the limits. They are dropped
before operators and digits are drawn.
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
#: Number of trees that grow together. The generated rows depend on it.
_BATCH = 4096
#: Number of consecutive batches without a new row after which generation fails.
_MAX_IDLE_BATCHES = 50


@dataclass(frozen=True, kw_only=True)
class ListOpsGenerator:
    """Generator of expressions. The defaults are those of the Long Range Arena.

    Args:
        max_depth: Maximum number of levels of a tree. Nodes on the last level are digits.
        max_args: Maximum number of arguments of an operator. The minimum is 2.
        operator_probability: Probability that a node above the last level is an operator.
        min_length: Exclusive lower limit of the length.
        max_length: Exclusive upper limit of the length.
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
            raise ValueError(f"operator_probability must be between 0 and 1, not {self.operator_probability}")
        if self.max_length - self.min_length < 2:
            raise ValueError(f"no length is above {self.min_length} and below {self.max_length}; raise max_length")

    def rows(self, count: int, seed: int) -> Iterator[tuple[str, int]]:
        """Yield the texts and values of distinct expressions.

        A smaller count with the same seed yields the first of these rows.
        """
        return islice(self._distinct(np.random.default_rng(seed)), count)

    def _distinct(self, random: np.random.Generator) -> Iterator[tuple[str, int]]:
        pieces = self._pieces()
        seen: set[bytes] = set()
        idle = 0
        while idle < _MAX_IDLE_BATCHES:
            before = len(seen)
            levels = self._grow(random)
            for tokens, value in _trees(levels, _symbols(levels, random)):
                key = hashlib.blake2b(tokens.tobytes(), digest_size=16).digest()
                if key not in seen:
                    seen.add(key)
                    yield _text(tokens, pieces), value
            idle = 0 if len(seen) > before else idle + 1
        raise ValueError(
            f"after {len(seen)} rows, {_MAX_IDLE_BATCHES * _BATCH} trees contained no new one: there are too few trees "
            f"of {self}; ask for fewer rows, or allow more lengths"
        )

    def _grow(self, random: np.random.Generator) -> list[Array]:
        """Grow a batch of trees, and return the levels of those whose length is within the limits."""
        tree = np.arange(_BATCH)  # index of the tree of each node
        length = np.ones(_BATCH, np.int64)
        levels = []
        for _ in range(self.max_depth - 1):
            is_operator = random.random(tree.size) < self.operator_probability
            arguments = np.where(is_operator, random.integers(2, self.max_args, tree.size, endpoint=True), 0)
            length += np.bincount(tree, arguments + is_operator, minlength=_BATCH).astype(np.int64)
            arguments[length[tree] >= self.max_length] = 0  # stop growing trees that are too long
            levels.append((tree, arguments))
            tree = np.repeat(tree, arguments)
        levels.append((tree, np.zeros(tree.size, np.int64)))
        accepted = (self.min_length < length) & (length < self.max_length)
        return [arguments[accepted[tree]] for tree, arguments in levels]

    def _pieces(self) -> list[str]:
        """Return the text of each token of an argument, with the parentheses that it opens and closes."""
        operators = [
            "( " * (arguments + 1) + operator for arguments in range(self.max_args + 1) for operator in _OPERATORS
        ]
        return [f"{digit} )" for digit in range(10)] + ["] ) )"] + operators


def evaluate(text: str) -> int:
    """Return the value of an expression in the official form, by repeatedly reducing the innermost lists."""
    rest = text
    while not re.fullmatch("[0-9]", rest):
        rest, count = _INNERMOST.subn(_reduce, rest)
        if not count:
            shown = text if len(text) <= 60 else text[:60] + "..."
            raise ValueError(f"not a ListOps expression in the official form: {shown!r}")
    return int(rest)


def _reduce(innermost: re.Match[str]) -> str:
    opened, operator, closed = innermost.groups()
    digits = [int(digit) for digit in closed.split() if digit != ")"]
    if opened.count("(") != len(digits) + 1:
        raise ValueError(f"ListOps parentheses are unbalanced around {innermost[0]!r}")
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
    """Draw an operator, 0 to 3, for each node with arguments, and a digit for each node without."""
    return [np.where(n > 0, random.integers(4, size=n.size), random.integers(10, size=n.size)) for n in levels]


def _trees(levels: list[Array], symbols: list[Array]) -> Iterator[tuple[Array, int]]:
    """Yield the tokens and the value of each tree.

    Tokens 0 to 9 are digits and 10 is the closing bracket. Operators follow, ordered by their number of arguments.
    """
    sizes, values = _sizes(levels), _values(levels, symbols)
    starts = _starts(levels, sizes)
    tokens = np.empty(sizes[0].sum(), np.int64)
    for arguments, symbol, size, start in zip(levels, symbols, sizes, starts, strict=True):
        tokens[start + size - 1] = _END  # the next line overwrites it if the node is a digit, of size 1
        tokens[start] = np.where(arguments > 0, _END + 1 + len(_OPERATORS) * arguments + symbol, symbol)
    for start, size, value in zip(starts[0].tolist(), sizes[0].tolist(), values.tolist(), strict=True):
        yield tokens[start : start + size], value


def _sizes(levels: list[Array]) -> list[Array]:
    """Return the number of tokens of the subtree of each node."""
    sizes = [np.ones(levels[-1].size, np.int64)]
    for arguments in reversed(levels[:-1]):
        size = np.ones(arguments.size, np.int64)
        size[arguments > 0] = 2 + np.add.reduceat(sizes[-1], _before(arguments[arguments > 0]))
        sizes.append(size)
    return sizes[::-1]


def _starts(levels: list[Array], sizes: list[Array]) -> list[Array]:
    """Return the index of the first token of each node: after its parent's first token and its earlier siblings."""
    starts = [_before(sizes[0])]
    for arguments, size in zip(levels, sizes[1:], strict=False):
        children = arguments[arguments > 0]
        first = starts[-1][arguments > 0] + 1
        earlier = _before(size)  # tokens of earlier nodes of this level, whatever their parent
        starts.append(earlier + np.repeat(first - earlier[_before(children)], children))
    return starts


def _values(levels: list[Array], symbols: list[Array]) -> Array:
    """Return the values of the trees."""
    values = symbols[-1]
    for arguments, symbol in zip(levels[-2::-1], symbols[-2::-1], strict=True):
        is_operator = arguments > 0
        value = symbol.copy()
        value[is_operator] = _apply(symbol[is_operator], values, arguments[is_operator])
        values = value
    return values


def _apply(operators: Array, values: Array, counts: Array) -> Array:
    """Apply each operator to the next `counts` values."""
    first = _before(counts)
    ordered = np.sort(values + 10 * np.repeat(np.arange(counts.size), counts)) % 10  # sorts each group
    middle = (ordered[first + (counts - 1) // 2] + ordered[first + counts // 2]) // 2
    total = np.add.reduceat(values, first) % 10
    return np.choose(operators, [ordered[first], ordered[first + counts - 1], middle, total])


def _before(sizes: Array) -> Array:
    """Return the exclusive cumulative sum."""
    total: Array = np.cumsum(sizes) - sizes
    return total


def _text(tokens: Array, pieces: list[str]) -> str:
    """Return the text in the official form. The last parenthesis is only for arguments, so the root has none."""
    return " ".join([pieces[token] for token in tokens.tolist()]).removesuffix(" )")
