"""Generator of pairs of synthetic documents: a substitute for the AAN pairs of the Long Range Arena.

This is not AAN, and results on it are not comparable to results on AAN. It has the same form and needs the same model:
two long texts, read character by character, and one label for both: whether they have the same topic.

    ku neragu li fapu. zo fariku ...        ra naruge do zeto. vi kirafu ...        topical words: neragu, naruge

Most words are common words, which all topics share. The others are topical words. Most of these belong to the topic of
the document, but some are strays from other topics, so a single word does not determine the topic. Each topical word
has one anagram in every other topic, with the same frequency there. Lengths and letter frequencies are therefore
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
#: Syllables of a topical word, all with different letters. Common words have one to four syllables.
_SYLLABLES = 3
#: Orders of three consonants times orders of three vowels.
_MAX_TOPICS = 36
#: Choices of three of fourteen consonants times choices of three of five vowels.
_MAX_WORDS = 3640
#: Seed of the vocabulary, which is the same for all data sets.
_VOCABULARY_SEED = 1907


@dataclass(frozen=True, kw_only=True)
class DocumentGenerator:
    """Generator of pairs of documents.

    Args:
        topics: Number of topics.
        words: Number of words of each topic.
        common: Number of common words.
        length: Minimum and maximum number of characters of a document.
        topical: Probability that a word is topical.
        strays: Probability that a topical word belongs to another topic.
        sentence: Mean number of words of a sentence.
    """

    topics: int = 4
    words: int = 4
    common: int = 200
    length: tuple[int, int] = (1000, 2000)
    topical: float = 0.25
    strays: float = 0.3
    sentence: int = 12

    def __post_init__(self) -> None:
        if not 2 <= self.topics <= _MAX_TOPICS:
            raise ValueError(f"topics must be between 2 and {_MAX_TOPICS}, not {self.topics}")
        if not 1 <= self.words <= _MAX_WORDS:
            raise ValueError(f"words must be between 1 and {_MAX_WORDS}, not {self.words}")
        if self.common < 1 or self.sentence < 1:
            raise ValueError(f"common and sentence must be at least 1, not {self.common} and {self.sentence}")
        if not 1 <= self.length[0] <= self.length[1]:
            raise ValueError(f"length must be (minimum, maximum) with 1 <= minimum <= maximum, not {self.length}")
        if not (0 <= self.topical <= 1 and 0 <= self.strays <= 1):
            raise ValueError(f"topical and strays must be between 0 and 1, not {self.topical} and {self.strays}")

    @cached_property
    def lexicon(self) -> list[list[str]]:
        """Words of each topic. Words with the same index are anagrams."""
        random = np.random.default_rng(_VOCABULARY_SEED)
        letter_sets = list(product(combinations(_CONSONANTS, _SYLLABLES), combinations(_VOWELS, _SYLLABLES)))
        chosen = [letter_sets[i] for i in random.permutation(len(letter_sets))[: self.words]]
        anagrams = [[_word(*order) for order in product(*map(permutations, letters))] for letters in chosen]
        orders = [random.permutation(_MAX_TOPICS)[: self.topics] for _ in chosen]
        return [
            [words[order[topic]] for words, order in zip(anagrams, orders, strict=True)] for topic in range(self.topics)
        ]

    @cached_property
    def common_words(self) -> list[str]:
        """Common words, the most frequent first. Shorter words are more frequent."""
        random = np.random.default_rng(_VOCABULARY_SEED + 1)
        topical = {word for words in self.lexicon for word in words}
        words: dict[str, None] = {}  # a set in insertion order
        while len(words) < self.common:
            syllables = random.integers(1, _SYLLABLES + 1, endpoint=True)
            word = _word(random.choice(list(_CONSONANTS), syllables), random.choice(list(_VOWELS), syllables))
            if word not in topical:
                words[word] = None
        return sorted(words, key=len)

    def pairs(self, count: int, seed: int, split: int) -> Iterator[tuple[int, str, str]]:
        """Yield labels with pairs of documents: 1 if both have the same topic, else 0.

        A pair depends only on the seed, the split and its number.
        """
        for number in range(count):
            random = np.random.Generator(np.random.Philox(key=[seed, split], counter=[0, number, 0, 0]))
            label = int(random.integers(2))
            topic = int(random.integers(self.topics))
            other = topic if label else (topic + int(random.integers(1, self.topics))) % self.topics
            yield label, self._document(topic, random), self._document(other, random)

    def _document(self, topic: int, random: np.random.Generator) -> str:
        """Return one document. Its last word may be truncated."""
        length = int(random.integers(*self.length, endpoint=True))
        count = length // 3 + 1  # enough if all words are the shortest, two letters and a space
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
        """Each word as it appears within a sentence and at its end: common words, then topic by topic."""
        words = self.common_words + [word for words in self.lexicon for word in words]
        return [word + end for word in words for end in (" ", ". ")]

    @cached_property
    def _cumulative(self) -> NDArray[np.float64]:
        """Cumulative probabilities of the common words, which follow Zipf's law."""
        frequency = 1 / np.arange(1, self.common + 1)
        cumulative: NDArray[np.float64] = np.cumsum(frequency)[:-1] / frequency.sum()
        return cumulative


def _word(consonants: Iterable[str], vowels: Iterable[str]) -> str:
    return "".join(c + v for c, v in zip(consonants, vowels, strict=True))
