"""Pairs of made-up documents: a stand-in for the AAN pairs of the Long Range Arena, which cannot be had everywhere.

This is not AAN, and results on it are not comparable to results on AAN. It has the same form and asks for the same
model: two long texts, read character by character, and one answer about both: whether they have the same topic.

    ku neragu li fapu. zo fariku ...        ra naruge do zeto. vi kirafu ...        neragu and naruge tell topics apart

Most words are common and the same for all topics. The others are topical, and most of these are words of the document's
own topic, but some stray in from other topics: one word proves nothing, many do. The words of one topic are anagrams of
those of any other, each as likely in its topic as the others in theirs. So lengths and the numbers of letters are
independent of the topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, permutations, product

import numpy as np
from numpy.typing import NDArray

_CONSONANTS = "bdfgklmnprstvz"
_VOWELS = "aeiou"
#: Topical words have this many syllables, of different letters; common ones one to four.
_SYLLABLES = 3
#: Orders of three consonants times orders of three vowels.
_MOST_TOPICS = 36
#: Three of fourteen consonants times three of five vowels.
_MOST_WORDS = 3640
#: The language is the same for all seeds.
_LANGUAGE = 1907


@dataclass(frozen=True, kw_only=True)
class Documents:
    """A language and what is written in it.

    Args:
        topics: that a document may have.
        words: of each topic.
        common: words of no topic.
        length: characters of a document, the fewest and the most.
        topical: share of topical words.
        strays: share of these that are of other topics.
        sentence: words of a sentence, on average.
    """

    topics: int = 4
    words: int = 4
    common: int = 200
    length: tuple[int, int] = (1000, 2000)
    topical: float = 0.25
    strays: float = 0.3
    sentence: int = 12

    def __post_init__(self) -> None:
        if not 2 <= self.topics <= _MOST_TOPICS:
            raise ValueError(f"topics must be 2 to {_MOST_TOPICS}, not {self.topics}")
        if not 1 <= self.words <= _MOST_WORDS:
            raise ValueError(f"words must be 1 to {_MOST_WORDS}, not {self.words}")
        if self.common < 1 or self.sentence < 1:
            raise ValueError(f"common and sentence must be at least 1, not {self.common} and {self.sentence}")
        if not 1 <= self.length[0] <= self.length[1]:
            raise ValueError(f"length must be two numbers from 1 on, the shorter first, not {self.length}")
        if not (0 <= self.topical <= 1 and 0 <= self.strays <= 1):
            raise ValueError(f"topical and strays must be from 0 to 1, not {self.topical} and {self.strays}")

    @cached_property
    def lexicon(self) -> list[list[str]]:
        """The words of each topic. Those with the same number are anagrams."""
        random = np.random.default_rng(_LANGUAGE)
        letters = list(product(combinations(_CONSONANTS, _SYLLABLES), combinations(_VOWELS, _SYLLABLES)))
        chosen = [letters[i] for i in random.permutation(len(letters))[: self.words]]
        anagrams = [[_word(*order) for order in product(*map(permutations, both))] for both in chosen]
        orders = [random.permutation(_MOST_TOPICS)[: self.topics] for _ in chosen]
        return [
            [words[order[topic]] for words, order in zip(anagrams, orders, strict=True)] for topic in range(self.topics)
        ]

    @cached_property
    def commons(self) -> list[str]:
        """The words of no topic, the more frequent first; these are the shorter ones."""
        random = np.random.default_rng(_LANGUAGE + 1)
        topical = {word for words in self.lexicon for word in words}
        found: dict[str, None] = {}
        while len(found) < self.common:
            syllables = random.integers(1, _SYLLABLES + 1, endpoint=True)
            word = _word(random.choice(list(_CONSONANTS), syllables), random.choice(list(_VOWELS), syllables))
            if word not in topical:
                found[word] = None
        return sorted(found, key=len)

    def pairs(self, count: int, seed: int, split: int) -> Iterator[tuple[int, str, str]]:
        """So many times: whether both have the same topic, 1 or 0, and the documents.

        Each pair is made from (seed, split, its number) alone.
        """
        for number in range(count):
            random = np.random.Generator(np.random.Philox(key=[seed, split], counter=[0, number, 0, 0]))
            label = int(random.integers(2))
            topic = int(random.integers(self.topics))
            other = topic if label else (topic + int(random.integers(1, self.topics))) % self.topics
            yield label, self._write(topic, random), self._write(other, random)

    def _write(self, topic: int, random: np.random.Generator) -> str:
        """One document. It is cut to its length, so that the last word may be in pieces."""
        length = int(random.integers(*self.length, endpoint=True))
        count = length // 3 + 1  # enough even of the shortest words, with a space each
        strays = random.random(count) < self.strays
        topics = np.where(strays, topic + random.integers(1, self.topics, count), topic) % self.topics
        topical = self.common + topics * self.words + random.integers(self.words, size=count)
        common = np.searchsorted(self._cumulative, random.random(count))
        words = np.where(random.random(count) < self.topical, topical, common)
        stops = random.random(count) < 1 / self.sentence
        text = "".join([self._pieces[piece] for piece in (2 * words + stops).tolist()])
        return text[: length - 1] + "."

    @cached_property
    def _pieces(self) -> list[str]:
        """Each word within a sentence, and at its end: the common ones, then topic by topic."""
        words = self.commons + [word for words in self.lexicon for word in words]
        return [word + end for word in words for end in (" ", ". ")]

    @cached_property
    def _cumulative(self) -> NDArray[np.float64]:
        """Of the frequencies of common words, by Zipf's law."""
        frequency = 1 / np.arange(1, self.common + 1)
        found: NDArray[np.float64] = np.cumsum(frequency)[:-1] / frequency.sum()
        return found


def _word(consonants: Iterable[str], vowels: Iterable[str]) -> str:
    return "".join(c + v for c, v in zip(consonants, vowels, strict=True))
