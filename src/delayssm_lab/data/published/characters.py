"""Tokenisation of texts: one token per character."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from delayssm_lab.data.errors import DataError

#: Tokens before those of the characters. Stored texts contain neither padding nor end tokens.
SPECIAL_TOKENS = ("<pad>", "<unk>", "<eos>")
_UNKNOWN = 1
_MIN_COUNT = 15
_CODE_POINTS = 0x110000


class CharacterCounter:
    """Counter of the characters in texts.

    Only the first `head` characters of each text count. The reference pipeline truncates texts to the input length of
    its models before it counts, and the set of rare characters depends on that. `source` names the origin of the texts
    in messages.
    """

    def __init__(self, head: int, source: str) -> None:
        self._head = head
        self._source = source
        self._counts = np.zeros(_CODE_POINTS, np.int64)

    def add(self, text: str) -> None:
        """Count the characters of one text."""
        code_points, counts = np.unique(_code_points(text[: self._head]), return_counts=True)
        self._counts[code_points] += counts

    def vocabulary(self) -> list[str]:
        """Return the special tokens, then the characters that occur at least 15 times, in order of code points."""
        tokens = [*SPECIAL_TOKENS, *(chr(point) for point in np.flatnonzero(self._counts >= _MIN_COUNT))]
        if len(tokens) > 256:
            raise DataError(
                f"{self._source}: {len(tokens)} tokens do not fit into bytes: this is not the published text; "
                "download it again"
            )
        return tokens


class CharacterEncoder:
    """Mapping from texts to tokens."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._token = np.full(_CODE_POINTS, _UNKNOWN, np.uint8)
        for token, character in enumerate(tokens[len(SPECIAL_TOKENS) :], len(SPECIAL_TOKENS)):
            self._token[ord(character)] = token

    def __call__(self, text: str) -> NDArray[np.uint8]:
        """Return one token per character."""
        return self._token[_code_points(text)]


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)
