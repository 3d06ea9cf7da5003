"""Fourier transforms of a few numbers: y_j = sum over k of e^(2 pi i j k / R) x_k.

They consist of sums and products with constants alone, so they work with any kind of number: Python's own, arrays, or
the values of a program that is being compiled.
"""

import math
from typing import Any, Protocol, Self, TypeVar


class Number(Protocol):
    """What a butterfly needs of its numbers."""

    def __add__(self, other: Self, /) -> Self: ...

    def __sub__(self, other: Self, /) -> Self: ...

    def __mul__(self, constant: Any, /) -> Self: ...


T = TypeVar("T", bound=Number)


def dft(x: list[T]) -> list[T]:
    """Return the transform of 2, 3, 4, 5 or 8 numbers."""
    return {2: _dft2, 3: _dft3, 4: _dft4, 5: _dft5, 8: _dft8}[len(x)](x)


def inverse_dft(y: list[T]) -> list[T]:
    """Return R x for the transform y of R numbers x: it is the transform of y, read backwards."""
    first, *others = dft(y)
    return [first, *reversed(others)]


def _dft2(x: list[T]) -> list[T]:
    return [x[0] + x[1], x[0] - x[1]]


def _dft3(x: list[T]) -> list[T]:
    both = x[1] + x[2]
    middle, turned = x[0] - both * 0.5, (x[1] - x[2]) * complex(0, math.sqrt(0.75))
    return [x[0] + both, middle + turned, middle - turned]


def _dft4(x: list[T]) -> list[T]:
    even, odd = _dft2([x[0], x[2]]), _dft2([x[1], x[3]])
    turned = odd[1] * 1j
    return [even[0] + odd[0], even[1] + turned, even[0] - odd[0], even[1] - turned]


def _dft5(x: list[T]) -> list[T]:
    cos1, cos2 = math.cos(0.4 * math.pi), math.cos(0.8 * math.pi)
    sin1, sin2 = math.sin(0.4 * math.pi), math.sin(0.8 * math.pi)
    outer, inner = x[1] + x[4], x[2] + x[3]
    across, within = x[1] - x[4], x[2] - x[3]
    middle1, turned1 = x[0] + outer * cos1 + inner * cos2, (across * sin1 + within * sin2) * 1j
    middle2, turned2 = x[0] + outer * cos2 + inner * cos1, (across * sin2 - within * sin1) * 1j
    return [x[0] + outer + inner, middle1 + turned1, middle2 + turned2, middle2 - turned2, middle1 - turned1]


def _dft8(x: list[T]) -> list[T]:
    eighth = math.sqrt(0.5)
    even, odd = _dft4(x[0::2]), _dft4(x[1::2])
    odd = [odd[0], odd[1] * complex(eighth, eighth), odd[2] * 1j, odd[3] * complex(-eighth, eighth)]
    return [a + b for a, b in zip(even, odd, strict=True)] + [a - b for a, b in zip(even, odd, strict=True)]
