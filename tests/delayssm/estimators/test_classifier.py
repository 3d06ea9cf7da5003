"""Classes of sequences: learned, and answered early, value by value."""

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import make_blobs
from sklearn.model_selection import cross_val_score

from delayssm.estimators import DelayClassifier

pytestmark = pytest.mark.usefixtures("one_thread")

TINY: dict[str, Any] = {"d_model": 8, "d_state": 4, "depth": 1, "max_epochs": 2, "random_state": 0}
SMALL: dict[str, Any] = {"d_model": 16, "d_state": 8, "depth": 1, "learning_rate": 2e-2, "random_state": 0}


def _tones(count: int, seed: int) -> tuple[list[NDArray[np.float64]], NDArray[Any]]:
    """Return noisy waves of different lengths, and whether they are slow or fast."""
    random = np.random.default_rng(seed)
    labels = random.choice(["slow", "fast"], count)
    waves = []
    for label in labels:
        t = np.arange(random.integers(40, 80)) + random.uniform(0, 30)
        waves.append(np.sin(t * (0.2 if label == "slow" else 0.6)) + 0.3 * random.normal(size=len(t)))
    return waves, labels


@pytest.fixture(scope="module")
def trained(one_thread: None) -> DelayClassifier:
    return DelayClassifier(max_epochs=20, shortest_prefix=0.3, **SMALL).fit(*_tones(200, 0))


def test_sequences_of_any_lengths_are_told_apart(trained: DelayClassifier) -> None:
    sequences, labels = _tones(100, 1)
    assert trained.classes_.tolist() == ["fast", "slow"]
    assert trained.score(sequences, labels) > 0.95
    assert set(trained.predict(sequences)) == {"fast", "slow"}


def test_answers_come_early(trained: DelayClassifier) -> None:
    """Each is what the prefix alone gets, and they become right before the end."""
    sequences, labels = _tones(100, 2)
    prefixes = trained.predict_proba_prefixes(sequences)
    for i in (0, 5, 20):
        assert prefixes[i].shape == (len(sequences[i]), 2)
        for length in (1, 13, len(sequences[i])):
            alone = trained.predict_proba([sequences[i][:length]])[0]
            assert np.abs(prefixes[i][length - 1] - alone).max() < 1e-5
    early = np.array([rows[19] for rows in prefixes])
    assert (trained.classes_[early.argmax(1)] == labels).mean() > 0.85


def test_a_sequence_is_followed_live(trained: DelayClassifier) -> None:
    sequences, _ = _tones(5, 3)
    expected = trained.predict_proba(sequences)
    trained.begin([values[:3] for values in sequences]).update([values[3:4] for values in sequences])
    trained.update([values[4:20] for values in sequences])
    assert np.abs(trained.predict_proba() - trained.predict_proba([values[:20] for values in sequences])).max() < 1e-5
    restored = pickle.loads(pickle.dumps(trained))
    for one in (restored, trained):
        one.update([values[20:] for values in sequences])
        assert np.abs(one.predict_proba() - expected).max() < 1e-5
        assert np.array_equal(one.predict(), trained.predict(sequences))


def test_arrays_and_lists_are_read_alike() -> None:
    random = np.random.default_rng(0)
    labels = np.arange(12) % 2
    flat, channels = random.normal(size=(12, 9)), random.normal(size=(12, 9, 2))
    for array in (flat, channels):
        classifier = DelayClassifier(**TINY).fit(array, labels)
        again = DelayClassifier(**TINY).fit(list(array), labels)
        expected = classifier.predict_proba(array)
        assert expected.shape == (12, 2)
        assert np.array_equal(again.predict_proba(list(array)), expected)
        shuffled = classifier.predict_proba([array[3], array[0][:4], array[7]])  # padded
        assert np.abs(shuffled[[0, 2]] - expected[[3, 7]]).max() < 1e-6
    assert cross_val_score(DelayClassifier(**TINY), flat, labels, cv=3).shape == (3,)


def test_what_scikit_learn_asks_of_a_trained_classifier() -> None:
    """The part of check_classifiers_train that applies: blobs as sequences of two times."""
    X, y = make_blobs(n_samples=300, random_state=0)
    for chosen in (y < 3, y < 2):
        classifier = DelayClassifier(max_epochs=20, **SMALL)
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            classifier.fit(X[chosen], y[chosen][:-1])
        classifier.fit(X[chosen].tolist(), y[chosen].tolist())
        predicted, probabilities = classifier.predict(X[chosen]), classifier.predict_proba(X[chosen])
        assert (predicted == y[chosen]).mean() > 0.83
        assert np.array_equal(probabilities.argmax(1), predicted)
        assert np.abs(probabilities.sum(1) - 1).max() < 1e-12


def test_wrong_input(trained: DelayClassifier) -> None:
    sequences, labels = _tones(6, 4)
    labels = np.array(["slow", "fast"] * 3)
    for call, message in (
        (lambda: DelayClassifier(shortest_prefix=0).fit(sequences, labels), r"shortest_prefix must lie in \(0, 1\]"),
        (lambda: DelayClassifier().fit(sequences, ["slow"] * 6), "y has 1 class: 'slow'"),
        (lambda: DelayClassifier().fit(sequences[:2], labels[:2]), "no sample can be held out"),
        (lambda: DelayClassifier().fit(sequences, np.linspace(0, 1, 6)), "Unknown label type"),
        (lambda: trained.predict(np.zeros((2, 5, 3))), "X has 3 features, but DelayClassifier is expecting 1"),
        (lambda: trained.predict(np.zeros(5)), "Reshape your data"),
        (lambda: trained.predict(np.zeros((2, 2, 2, 2))), "X has 4 axes"),
        (lambda: DelayClassifier(**TINY).fit(sequences, labels).predict(), r"no series is followed yet; call begin"),
        (lambda: trained.begin(sequences).update(sequences[:1]), "6 series are followed, but .* values for 1"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
