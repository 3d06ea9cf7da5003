"""Texts as one token per character."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from delayssm_lab.data.errors import DataError

#: Before the characters themselves. Stored texts hold no padding and no end.
SPECIAL = ("<pad>", "<unk>", "<eos>")
_UNKNOWN = 1
_LEAST = 15
_CODE_POINTS = 0x110000


class Counter:
    """Counts characters: of each text, only the first `head`.

    The reference pipeline cuts texts to the length of its models before it counts, so rare characters depend on that.
    """

    def __init__(self, head: int) -> None:
        self._head = head
        self._counts = np.zeros(_CODE_POINTS, np.int64)

    def add(self, text: str) -> None:
        """Count one text."""
        code_points, counts = np.unique(_code_points(text[: self._head]), return_counts=True)
        self._counts[code_points] += counts

    def frequent(self) -> list[str]:
        """All tokens in order: the special ones, then by code point the characters that were seen 15 times or more."""
        found = [*SPECIAL, *(chr(point) for point in np.flatnonzero(self._counts >= _LEAST))]
        if len(found) > 256:
            raise DataError(f"{len(found)} different characters do not fit into bytes: this is not the published text")
        return found


class Encoder:
    """Text to tokens."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._token = np.full(_CODE_POINTS, _UNKNOWN, np.uint8)
        for token, character in enumerate(tokens[len(SPECIAL) :], len(SPECIAL)):
            self._token[ord(character)] = token

    def __call__(self, text: str) -> NDArray[np.uint8]:
        """One token per character."""
        return self._token[_code_points(text)]


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)
