"""ListOps: the official form, the official distribution, and values confirmed by a second evaluation."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from delayssm_lab.data.generate import listops
from delayssm_lab.data.generate.listops import ListOpsGenerator, evaluate

#: Statistics of 14,000 rows of the official generator. All have 9 levels of operators.
OFFICIAL_ROWS = 14_000
#: Numbers of rows with lengths from 500, 600, ..., 1900 on.
LENGTHS = [1800, 1656, 1477, 1306, 1233, 1086, 927, 832, 757, 643, 560, 507, 478, 395, 343]
#: Numbers of rows with the values 0 to 9.
VALUES = [2390, 1262, 1072, 1132, 1294, 1224, 1112, 1011, 1166, 2337]
#: Numbers of rows whose outermost operator has 2 to 10 arguments.
ROOT_ARGUMENTS = [618, 879, 1204, 1469, 1580, 1916, 1988, 2118, 2228]
#: Mean and standard deviation, over rows, of the number of operators on level 2, 3, ..., 9.
OPERATORS = [(2.266, 1.070), (3.997, 1.988), (6.421, 3.062), (9.934, 4.454), (15.161, 6.515), (22.926, 9.595),
             (34.490, 14.443), (51.856, 22.027)]  # fmt: skip
#: An official row, and its value.
OFFICIAL = """
( ( ( ( [MED 0 ) ( ( ( ( ( ( ( ( ( [MIN ( ( ( ( ( ( ( ( ( [SM 3 ) 5 ) 4 ) ( ( ( ( ( ( ( [SM 7 ) ( ( ( ( [SM 8 ) 4 ) 7 )
] ) ) 7 ) 6 ) 5 ) 0 ) ] ) ) ( ( ( [MAX 6 ) 8 ) ] ) ) 8 ) 4 ) 4 ) ] ) ) 0 ) 4 ) 8 ) 6 ) ( ( ( ( ( ( ( ( ( ( ( [MAX 0 ) 8
) 5 ) 2 ) 5 ) ( ( ( ( [SM ( ( ( ( ( ( ( ( ( ( [MED 6 ) ( ( ( ( ( ( ( ( ( ( ( [MIN 9 ) 7 ) 7 ) 8 ) ( ( ( ( ( ( ( ( [SM 1
) ( ( ( ( [MIN 6 ) ( ( ( ( ( ( ( [MED 2 ) 3 ) 5 ) 9 ) 5 ) 7 ) ] ) ) 0 ) ] ) ) 7 ) ( ( ( ( ( ( ( ( ( ( ( [SM 8 ) 4 ) 6 )
( ( ( ( [SM 5 ) 9 ) 3 ) ] ) ) 0 ) 9 ) 5 ) 5 ) 3 ) 2 ) ] ) ) 3 ) 9 ) 1 ) ] ) ) 2 ) 6 ) 1 ) 8 ) 9 ) ] ) ) ( ( ( ( ( ( ( (
( ( ( [MAX 8 ) 4 ) 4 ) 7 ) 5 ) ( ( ( ( ( ( ( ( ( [MAX ( ( ( ( ( ( ( ( [MED 6 ) ( ( ( ( ( ( ( ( ( ( [SM 3 ) 6 ) 7 ) 1 )
1 ) 2 ) 7 ) 1 ) 8 ) ] ) ) 1 ) 4 ) 1 ) ( ( ( ( [MIN 1 ) 5 ) 7 ) ] ) ) 1 ) ] ) ) 1 ) 6 ) ( ( ( ( ( [MAX ( ( ( ( ( ( ( ( (
( ( [MED 1 ) 6 ) 3 ) 0 ) 4 ) 8 ) 2 ) 0 ) 4 ) 3 ) ] ) ) 5 ) 2 ) 8 ) ] ) ) 4 ) 6 ) 0 ) ( ( ( ( ( ( ( ( ( ( ( [MAX 5 ) 3 )
7 ) ( ( ( ( ( ( ( ( ( ( ( [MIN 9 ) 3 ) 0 ) 7 ) 7 ) 2 ) 8 ) 3 ) 2 ) 4 ) ] ) ) 2 ) ( ( ( [MIN 2 ) 8 ) ] ) ) 9 ) 6 ) 6 ) 4
) ] ) ) ] ) ) 8 ) 1 ) 9 ) 0 ) ] ) ) ( ( ( ( ( ( ( [SM 2 ) 7 ) 4 ) 0 ) ( ( ( ( ( ( ( ( ( ( [SM 9 ) 5 ) 9 ) 6 ) ( ( ( ( (
( ( [MIN ( ( ( [MED 4 ) 2 ) ] ) ) 3 ) ( ( ( ( ( ( ( ( ( [MAX 9 ) 8 ) 0 ) 9 ) 0 ) 7 ) 4 ) 6 ) ] ) ) 9 ) ( ( ( ( ( ( (
[MAX 3 ) 7 ) 0 ) 2 ) 4 ) 8 ) ] ) ) 1 ) ] ) ) 3 ) ( ( ( [MAX 2 ) 1 ) ] ) ) ( ( ( ( ( ( ( ( ( [SM 9 ) 9 ) 0 ) 9 ) 0 ) ( (
( ( ( ( ( ( ( ( [SM 6 ) 6 ) 4 ) 8 ) 1 ) 4 ) 6 ) 5 ) 9 ) ] ) ) 1 ) 8 ) ] ) ) 4 ) ] ) ) ( ( ( ( ( ( ( ( [MAX ( ( ( ( ( (
( ( ( ( ( [MIN 0 ) 6 ) ( ( ( ( ( ( ( ( ( ( ( [SM 7 ) 0 ) 6 ) 2 ) 6 ) 4 ) 9 ) 4 ) 4 ) 3 ) ] ) ) 3 ) 1 ) 9 ) 8 ) 1 ) 2 )
6 ) ] ) ) 5 ) 5 ) ( ( ( ( ( ( ( ( ( [MAX 1 ) 3 ) ( ( ( ( ( ( ( ( ( ( [SM 4 ) 1 ) 6 ) 8 ) 7 ) 2 ) 9 ) 7 ) 5 ) ] ) ) ( (
( ( ( ( ( ( ( ( [MIN 9 ) 2 ) 9 ) 3 ) 0 ) 0 ) 1 ) 5 ) 9 ) ] ) ) 9 ) 6 ) 6 ) 1 ) ] ) ) ( ( ( ( ( ( ( ( ( ( [MAX 8 ) ( ( (
( ( ( ( ( ( ( ( [MAX 8 ) 3 ) 0 ) 9 ) 9 ) 4 ) 9 ) 5 ) 6 ) 9 ) ] ) ) 0 ) ( ( ( ( ( ( [SM 2 ) 7 ) 3 ) 5 ) 4 ) ] ) ) 3 ) 5
) ( ( ( ( ( ( ( ( [MAX 6 ) 7 ) 5 ) 9 ) 9 ) 5 ) 0 ) ] ) ) 2 ) ( ( ( ( [MED 4 ) 7 ) 5 ) ] ) ) ] ) ) 0 ) ( ( ( ( ( ( ( ( (
( [MAX 0 ) 2 ) 2 ) 6 ) ( ( ( ( ( ( ( ( ( ( [MED 3 ) 8 ) 0 ) 9 ) 9 ) 4 ) 6 ) 7 ) 2 ) ] ) ) 7 ) 2 ) 9 ) 2 ) ] ) ) ] ) ) ]
) ) 4 ) ( ( ( ( ( ( ( ( ( ( ( [MAX 7 ) ( ( ( ( ( ( ( ( ( [SM 1 ) 6 ) 0 ) 0 ) ( ( ( ( ( ( ( ( ( ( [MIN 4 ) 9 ) 3 ) 6 ) (
( ( ( ( ( ( [MAX 8 ) 8 ) 3 ) 4 ) 3 ) 5 ) ] ) ) 8 ) ( ( ( [MIN 2 ) 3 ) ] ) ) ( ( ( ( ( ( ( ( ( ( ( [MIN 6 ) 7 ) 3 ) 3 )
8 ) 9 ) 3 ) 5 ) 6 ) 0 ) ] ) ) 7 ) ] ) ) 9 ) 8 ) 4 ) ] ) ) 2 ) 8 ) 7 ) 6 ) 4 ) 3 ) ( ( ( ( ( ( ( ( [SM 3 ) 9 ) ( ( ( [SM
( ( ( ( ( ( ( ( ( ( ( [SM 3 ) 9 ) 9 ) 0 ) 7 ) 0 ) 0 ) 1 ) 5 ) 3 ) ] ) ) ( ( ( ( ( ( ( [MAX 5 ) 7 ) 6 ) 8 ) 1 ) 5 ) ] )
) ] ) ) 3 ) 8 ) 1 ) 1 ) ] ) ) 2 ) ] ) ) 3 ) 0 ) 5 ) ] ) ) 7 ) 3 ) ] ) ) 5 ) 8 ) ( ( ( ( [MAX ( ( ( [MED 5 ) 5 ) ] ) ) 3
) 4 ) ] ) ) ( ( ( ( [MAX 6 ) 0 ) ( ( ( ( ( ( ( ( ( ( [MED 6 ) ( ( ( ( ( ( ( ( ( ( ( [SM ( ( ( ( ( ( ( ( [MIN 4 ) 2 ) 9
) 2 ) 6 ) 9 ) 1 ) ] ) ) 2 ) 3 ) 7 ) 1 ) 6 ) 5 ) ( ( ( ( [MIN 6 ) 8 ) 6 ) ] ) ) 9 ) 4 ) ] ) ) 4 ) 1 ) 2 ) 1 ) ( ( ( (
[MED 5 ) 5 ) 4 ) ] ) ) 2 ) 0 ) ] ) ) ] ) ) ] ) ) 8 ) 3 ) ] ) ) 2 ) ] )
"""
OFFICIAL_VALUE = 0

Tree = int | tuple[str, list["Tree"]]


@pytest.fixture(scope="module")
def rows() -> list[tuple[str, int]]:
    return list(ListOpsGenerator().rows(4000, 0))


def _parse(text: str) -> Tree:
    """Parse an expression, ignoring parentheses."""
    open_lists: list[list[Tree]] = [[]]
    operators: list[str] = []
    for token in text.replace("( ", "").replace(" )", "").split():
        if token.startswith("["):
            operators.append(token)
            open_lists.append([])
        elif token == "]":
            arguments = open_lists.pop()
            open_lists[-1].append((operators.pop(), arguments))
        else:
            open_lists[-1].append(int(token))
    [[tree]] = open_lists
    return tree


def _levels(tree: Tree) -> list[list[Tree]]:
    found = [[tree]]
    while below := [child for node in found[-1] if isinstance(node, tuple) for child in node[1]]:
        found.append(below)
    return found


def _official_text(tree: Tree) -> str:
    """Write a tree in the official form, pair by pair."""
    if isinstance(tree, int):
        return str(tree)
    text = tree[0]
    for argument in [*map(_official_text, tree[1]), "]"]:
        text = f"( {text} {argument} )"
    return text


def _chi_square(ours: Sequence[int], official: Sequence[int]) -> float:
    """Return the statistic of the test that two samples have the same distribution."""
    a, b = np.array(ours), np.array(official)
    ratio = np.sqrt(b.sum() / a.sum())
    terms: NDArray[np.float64] = (ratio * a - b / ratio) ** 2 / (a + b)
    return float(terms.sum())


def _length(text: str) -> int:
    return sum(token not in "()" for token in text.split(" "))


def test_an_official_row_byte_for_byte() -> None:
    row = " ".join(OFFICIAL.split())
    nodes = _levels(_parse(row))
    arguments = [np.array([len(n[1]) if isinstance(n, tuple) else 0 for n in level]) for level in nodes]
    names = ["[MIN", "[MAX", "[MED", "[SM"]
    symbols = [np.array([names.index(n[0]) if isinstance(n, tuple) else n for n in level]) for level in nodes]
    [(tokens, value)] = listops._trees(arguments, symbols)
    assert listops._text(tokens, ListOpsGenerator()._pieces()) == row == _official_text(nodes[0][0])
    assert value == evaluate(row) == OFFICIAL_VALUE


def test_the_example_of_the_docstring() -> None:
    assert evaluate("( ( ( ( [MAX 4 ) ( ( ( [SM 7 ) 8 ) ] ) ) 3 ) ] )") == 5


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("( ( ( [MIN 4 ) 3 ) ] )", 3),
        ("( ( ( [MAX 4 ) 3 ) ] )", 4),
        ("( ( ( [MED 4 ) 3 ) ] )", 3),
        ("( ( ( ( [MED 9 ) 0 ) 5 ) ] )", 5),
        ("( ( ( ( ( [MED 9 ) 0 ) 5 ) 8 ) ] )", 6),
        ("( ( ( ( [SM 9 ) 8 ) 7 ) ] )", 4),
    ],
)
def test_values_by_hand(text: str, value: int) -> None:
    assert evaluate(text) == value


@pytest.mark.parametrize(
    "text", ["", "12", "[MAX 4 3 ]", "( ( [MAX 4 ) 3 ) ] )", "( ( ( [SUM 4 ) 3 ) ] )", "( ( ( [MAX 4 ) 3 ) ] ) )"]
)
def test_what_is_not_the_official_form_has_no_value(text: str) -> None:
    with pytest.raises(ValueError, match=r"official form|unbalanced"):
        evaluate(text)


def test_every_value_is_right_and_every_text_official(rows: list[tuple[str, int]]) -> None:
    for text, value in rows[:2000]:
        assert evaluate(text) == value
    for text, _ in rows[:500]:
        assert _official_text(_parse(text)) == text


def test_lengths_as_the_official_ones(rows: list[tuple[str, int]]) -> None:
    lengths = [_length(text) for text, _ in rows]
    assert 500 < min(lengths) < 510
    assert 1980 < max(lengths) < 2000
    found = [sum(low <= n < high for n in lengths) for low, high in pairwise(range(500, 2001, 100))]
    assert _chi_square(found, LENGTHS) < 29.1  # 14 degrees of freedom, 1 %


def test_values_as_the_official_ones(rows: list[tuple[str, int]]) -> None:
    found = [sum(value == v for _, v in rows) for value in range(10)]
    assert _chi_square(found, VALUES) < 21.7  # 9 degrees of freedom, 1 %


def test_shapes_as_the_official_ones(rows: list[tuple[str, int]]) -> None:
    roots = []
    operators = np.zeros((len(rows), 10))
    for row, (text, _) in enumerate(rows):
        levels = _levels(_parse(text))
        assert len(levels) == 10  # as all official ones
        operators[row] = [sum(isinstance(node, tuple) for node in level) for level in levels]
        [root] = levels[0]
        assert isinstance(root, tuple)
        roots.append(len(root[1]))
    found = [roots.count(n) for n in range(2, 11)]
    assert _chi_square(found, ROOT_ARGUMENTS) < 20.1  # 8 degrees of freedom, 1 %
    assert (operators[:, 0] == 1).all()
    assert (operators[:, 9] == 0).all()
    for ours, (mean, deviation) in zip(operators[:, 1:9].T, OPERATORS, strict=True):
        error = deviation * np.sqrt(1 / len(rows) + 1 / OFFICIAL_ROWS)
        assert abs(ours.mean() - mean) < 3.2 * error  # 1 % for all eight together
        assert ours.std() == pytest.approx(deviation, rel=0.06)


def test_digits_and_operators_are_uniform(rows: list[tuple[str, int]]) -> None:
    tokens = " ".join(text for text, _ in rows[:1000]).split(" ")
    for kinds in (list("0123456789"), ["[MIN", "[MAX", "[MED", "[SM"]):
        counts = np.array([tokens.count(kind) for kind in kinds])
        expected = counts.mean()
        assert ((counts - expected) ** 2 / expected).sum() < 21.7  # at most 9 degrees of freedom, 1 %


def test_rows_are_distinct_and_depend_on_the_seed_alone(rows: list[tuple[str, int]]) -> None:
    assert len({text for text, _ in rows}) == len(rows)
    assert list(ListOpsGenerator().rows(50, 0)) == rows[:50]
    others = {text for text, _ in ListOpsGenerator().rows(50, 1)}
    assert not others & {text for text, _ in rows}


def test_all_small_trees_and_no_more() -> None:
    small = ListOpsGenerator(max_depth=2, max_args=2, min_length=0, max_length=5)
    found = {text for text, _ in small.rows(10 + 4 * 100, 0)}
    digits = {str(d) for d in range(10)}
    pairs = {f"( ( ( {op} {a} ) {b} ) ] )" for op in ("[MIN", "[MAX", "[MED", "[SM") for a in digits for b in digits}
    assert found == digits | pairs
    with pytest.raises(ValueError, match=r"after 410 rows.*too few trees.*fewer rows"):
        list(small.rows(411, 0))
    with pytest.raises(ValueError, match="after 0 rows"):
        next(ListOpsGenerator(max_depth=2, max_args=2, min_length=100, max_length=200).rows(1, 0))


@given(st.integers(1, 5), st.integers(2, 5), st.floats(0.3, 0.9), st.integers(1, 20), st.integers(0, 3))
@settings(max_examples=25)
def test_any_settings(depth: int, most: int, probability: float, low: int, seed: int) -> None:
    shapes = ListOpsGenerator(
        max_depth=depth, max_args=most, operator_probability=probability, min_length=0, max_length=low + 2
    )
    for text, value in shapes.rows(5, seed):
        tree = _parse(text)
        assert _official_text(tree) == text
        assert evaluate(text) == value
        assert _length(text) < low + 2
        levels = _levels(tree)
        assert len(levels) <= depth
        assert all(2 <= len(n[1]) <= most for level in levels for n in level if isinstance(n, tuple))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_depth": 0}, "max_depth must be at least 1, not 0"),
        ({"max_args": 1}, "max_args must be at least 2, not 1"),
        ({"operator_probability": 1.5}, "between 0 and 1, not 1.5"),
        ({"min_length": 1999}, "no length is above 1999 and below 2000"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ListOpsGenerator(**wrong)  # type: ignore[arg-type]
