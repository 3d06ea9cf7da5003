"""Synthetic documents: words reveal their topics, and nothing simpler does."""

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from delayssm_lab.data.generate.documents import DocumentGenerator

GENERATOR = DocumentGenerator()
Pairs = list[tuple[int, str, str]]


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    return list(GENERATOR.pairs(2000, 0, 0))


def _topic(text: str) -> int:
    """Return the topic with the most words in the text."""
    counts = Counter(re.findall("[a-z]+", text))
    return int(np.argmax([sum(counts[word] for word in words) for words in GENERATOR.lexicon]))


def _letters(text: str) -> NDArray[np.float64]:
    counts = Counter(text)
    return np.array([counts[c] for c in "abcdefghijklmnopqrstuvwxyz ."]) / len(text)


def _best_threshold(score: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Return the accuracy on the second half with the threshold and direction that are best on the first half."""
    half = len(score) // 2
    above = score[:half, None] > np.quantile(score, np.linspace(0, 1, 101))
    right = (above == labels[:half, None]).mean(0)
    best = int(np.argmax(abs(right - 0.5)))
    guess = score[half:] > np.quantile(score, best / 100)
    return float((guess == (labels[half:] if right[best] > 0.5 else 1 - labels[half:])).mean())


def test_words_tell_topics_apart(pairs: Pairs) -> None:
    right = [(_topic(first) == _topic(second)) == bool(label) for label, first, second in pairs]
    assert np.mean(right) > 0.95


def test_half_a_sentence_does_not(pairs: Pairs) -> None:
    right = [(_topic(first[:50]) == _topic(second[:50])) == bool(label) for label, first, second in pairs]
    assert np.mean(right) < 0.8


@pytest.mark.parametrize("part", ["lengths", "letters", "words", "common words"])
def test_nothing_simpler_does(pairs: Pairs, part: str) -> None:
    def distance(first: str, second: str) -> float:
        if part == "lengths":
            return abs(len(first) - len(second))
        if part == "letters":
            return float(abs(_letters(first) - _letters(second)).sum())
        if part == "words":
            return abs(first.count(" ") / len(first) - second.count(" ") / len(second))
        a, b = ({word for word in GENERATOR.common_words if f" {word} " in text} for text in (first, second))
        return len(a & b) / len(a | b)

    scores = np.array([distance(first, second) for _, first, second in pairs])
    assert _best_threshold(scores, np.array([label for label, _, _ in pairs])) < 0.6


def test_letters_do_not_tell_even_by_learning(pairs: Pairs) -> None:
    """Fit a linear model to the letters of both documents, their differences and products."""
    a, b = (np.array([_letters(pair[side]) for pair in pairs]) for side in (1, 2))
    a, b = ((x - x.mean(0)) / (x.std(0) + 1e-9) for x in (a, b))
    features = np.hstack([a, b, abs(a - b), a * b, np.ones((len(a), 1))])
    labels = np.array([label for label, _, _ in pairs])
    weights = np.linalg.lstsq(features[:1000], 2.0 * labels[:1000] - 1, rcond=None)[0]
    assert ((features[1000:] @ weights > 0) == labels[1000:]).mean() < 0.6


def test_the_threshold_finds_what_there_is() -> None:
    labels = np.arange(200) % 2
    assert _best_threshold(labels + 0.1, labels) == _best_threshold(1 - labels + 0.1, labels) == 1


def test_words_of_topics_are_anagrams_and_all_words_differ() -> None:
    lexicon = GENERATOR.lexicon
    assert [len(words) for words in lexicon] == [GENERATOR.words] * GENERATOR.topics
    for same in zip(*lexicon, strict=True):
        assert len({"".join(sorted(word)) for word in same}) == 1
    words = [*GENERATOR.common_words, *(word for words in lexicon for word in words)]
    assert len(set(words)) == len(words) == GENERATOR.common + GENERATOR.topics * GENERATOR.words


def test_labels_topics_and_lengths_are_fair(pairs: Pairs) -> None:
    labels = [label for label, _, _ in pairs]
    assert set(labels) == {0, 1}
    assert abs(np.mean(labels) - 0.5) < 0.035  # three standard deviations
    texts = [text for _, *both in pairs for text in both]
    lengths = np.array([len(text) for text in texts])
    assert (lengths.min(), lengths.max()) == GENERATOR.length
    assert abs(lengths.mean() - 1500) < 15
    counts = np.bincount([_topic(text) for text in texts], minlength=4)
    assert ((counts - 1000) ** 2 / 1000).sum() < 11.3  # 3 degrees of freedom, 1 %


def test_texts_are_plain(pairs: Pairs) -> None:
    known = {*GENERATOR.common_words, *(word for words in GENERATOR.lexicon for word in words)}
    for _, *both in pairs[:200]:
        for text in both:
            assert re.fullmatch(r"[a-z]+(\.? [a-z]+)*\.? ?\.", text)
            assert set(re.findall("[a-z]+", text)[:-1]) <= known  # the last may be cut


def test_pairs_depend_on_seed_split_and_number_alone(pairs: Pairs) -> None:
    assert list(GENERATOR.pairs(20, 0, 0)) == pairs[:20]
    assert list(DocumentGenerator().pairs(20, 0, 0)) == pairs[:20]
    first = set(pairs[0][1:])
    assert not first & set(next(GENERATOR.pairs(1, 1, 0))[1:])


def test_splits_share_no_document() -> None:
    texts = [text for split in range(3) for _, *both in GENERATOR.pairs(1000, 0, split) for text in both]
    assert len(set(texts)) == 6000


def test_the_language_is_the_same_in_all_splits() -> None:
    pairs = list(GENERATOR.pairs(300, 5, 2))
    assert np.mean([(_topic(first) == _topic(second)) == bool(label) for label, first, second in pairs]) > 0.95


@given(st.integers(2, 36), st.integers(1, 9), st.integers(1, 30), st.integers(1, 60), st.integers(0, 60))
@settings(max_examples=30)
def test_any_sizes(topics: int, words: int, common: int, shortest: int, more: int) -> None:
    generator = DocumentGenerator(topics=topics, words=words, common=common, length=(shortest, shortest + more))
    for label, *both in generator.pairs(4, 0, 1):
        assert label in (0, 1)
        assert all(shortest <= len(text) <= shortest + more for text in both)
    assert len({word for words in generator.lexicon for word in words}) == topics * words


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"topics": 1}, "topics must be between 2 and 36, not 1"),
        ({"topics": 37}, "topics must be between 2 and 36, not 37"),
        ({"words": 0}, "words must be between 1 and 3640, not 0"),
        ({"common": 0}, "common and sentence must be at least 1, not 0 and 12"),
        ({"length": (9, 8)}, "1 <= minimum <= maximum, not"),
        ({"topical": 1.5}, "between 0 and 1, not 1.5"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DocumentGenerator(**wrong)  # type: ignore[arg-type]
