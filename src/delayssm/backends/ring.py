"""How a transform of m numbers is taken apart into passes. See docs/fft.md for the mathematics.

The transform evaluates a polynomial at the m points where x^m = e^(2 pi i angle) = i. With m = R n, these are the
points of R smaller problems, x^n = e^(2 pi i (angle + j) / R) for j < R. A pass of radix R reduces the polynomial to a
shorter one for each of them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Radix of the outermost pass, which reads and writes signals, and of the innermost one.
END = LEAF = 8


@dataclass(frozen=True)
class Ring:
    """A transform of m numbers.

    Args:
        size: m, a multiple of 64 without prime factors above 5.
        radices: Radices of the passes, from the outermost; that of the innermost is LEAF and is left out.
        offsets: Where the roots of each pass begin, that of the innermost included.
        roots: For each pass, and for each of its problems in order, e^(2 pi i angle k / R) for k = 1..R-1, as pairs.
        angles: The m points in the order of the transform, in turns.
    """

    size: int
    radices: NDArray[np.int64]
    offsets: NDArray[np.int64]
    roots: NDArray[np.float64]
    angles: NDArray[np.float64]

    @staticmethod
    def at_least(length: int) -> Ring:
        """Return the smallest transform of at least so many numbers."""
        blocks = max(1, -(-length // (END * LEAF)))
        while _radices(blocks) is None:
            blocks += 1
        return _ring(END * LEAF * blocks)

    def parts(self, dtype: Any) -> tuple[NDArray[Any], ...]:
        """Return what the compiled loops need, with roots of a dtype."""
        return self.radices, self.offsets, _rounded(self.size, np.dtype(dtype))


@functools.lru_cache(maxsize=64)
def _ring(size: int) -> Ring:
    middle = _radices(size // (END * LEAF))
    assert middle is not None
    radices = [END, *middle]
    angles, roots, offsets, count = np.array([0.25]), [], [], 0
    for radix in [*radices, LEAF]:
        turns = angles[:, None] * np.arange(1, radix) / radix
        offsets.append(count)
        roots.append(np.stack((np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)), axis=-1).reshape(-1, 2))
        count += turns.size
        angles = ((angles[:, None] + np.arange(radix)) / radix).ravel()
    return Ring(size, np.array(radices), np.array(offsets), np.concatenate(roots), angles)


@functools.lru_cache(maxsize=64)
def _rounded(size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(_ring(size).roots.astype(dtype).ravel())


def _radices(n: int) -> list[int] | None:
    """Return n as a product of 8, 4, 3, 5 and at most one 2, or None if it is not."""
    twos = (n & -n).bit_length() - 1
    n >>= twos
    others = []
    for prime in (3, 5):
        while n % prime == 0:
            n //= prime
            others.append(prime)
    if n != 1:
        return None
    if twos == 1:
        return [*others, 2]
    fours = -twos % 3
    return [*[8] * ((twos - 2 * fours) // 3), *others, *[4] * fours]
