"""Tests of the delayed-memory tasks: targets, solvability, reproducible samples, chance level."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from delayssm_lab.recipes.delayed import MEMORIES
from delayssm_lab.tasks.delayed import PAD, Copy, DelayedMemory, Sum, WeightedSum
from delayssm_lab.tasks.task import Split
from tests.support.oracle import Oracle


def test_the_example_of_the_docstring() -> None:
    task = DelayedMemory(Copy(), (4, 4), vocab_size=10, data_length=3)
    batch = task.batch(0, Split.TRAIN, [0])
    data = batch.tokens[0, :3].tolist()
    assert batch.tokens[0].tolist() == [*data, 0, 0, 0, 0, 9, *data[:2]]  # the last target is only predicted
    assert batch.positions[0].tolist() == [7, 8, 9]
    assert batch.targets[0].tolist() == data
    assert task.max_length == batch.tokens.shape[1] == 10


def test_targets_by_hand() -> None:
    data = np.array([5, 1, 2, 3])
    task = lambda mapping: DelayedMemory(mapping, (1, 1), 300, data_length=4)  # noqa: E731
    assert task(Copy()).target(data).tolist() == [5, 1, 2, 3]
    assert task(Sum(2)).target(data).tolist() == [5, 6, 3, 5]
    assert task(Sum(16)).target(data).tolist() == [5, 6, 8, 11]
    # G = 2 exp(-l^2 / 2) = 2, 1.213, ...
    assert task(WeightedSum(2, 2.0, 0.0, 1.0)).target(data).tolist() == [10, 8, 5, 8]


def test_the_paper_s_numbers() -> None:
    copy, total, weighted = (MEMORIES[name] for name in ("copy-fixed", "sum-fixed", "weighted-sum-fixed"))
    assert (copy.vocab_size, copy.largest_token, copy.go) == (100, 98, 99)
    assert (total.vocab_size, total.largest_token) == (300, 18)
    weights = weighted.mapping.weights()
    assert weights[8] == 0.75
    assert weights[0] == pytest.approx(0.75 * np.exp(-(8**2) / (2 * 12**2)))
    m = weighted.largest_token
    assert round(m * weights.sum()) <= 298 < round((m + 1) * weights.sum())
    assert copy.max_length == total.max_length == 1088
    assert MEMORIES["copy-variable"].max_length == 1088
    assert MEMORIES["sum-variable"].max_length == 576


@pytest.mark.parametrize("task", MEMORIES.values(), ids=MEMORIES.keys())
def test_an_oracle_solves_it(task: DelayedMemory) -> None:
    score = task.batch(1, Split.VALIDATION, range(16)).score(Oracle(task))
    assert int(score.points) == score.count == 16 * 32


@pytest.mark.parametrize("task", MEMORIES.values(), ids=MEMORIES.keys())
def test_layout_of_every_sample(task: DelayedMemory) -> None:
    batch = task.batch(2, Split.TRAIN, range(200))
    lags = batch.positions[:, 0] - task.data_length
    assert {int(lags.min()), int(lags.max())} == set(task.lags)
    assert len(lags.unique()) == task.lags[1] - task.lags[0] + 1
    for tokens, positions, targets in zip(batch.tokens, batch.positions, batch.targets, strict=True):
        go = int(positions[0])
        assert tokens[go] == task.go
        assert (tokens == task.go).sum() == 1
        assert tokens[task.data_length : go].eq(PAD).all()
        assert tokens[go + 1 :][: task.data_length - 1].equal(targets[:-1])
        assert tokens[go + 1 + task.data_length :].eq(PAD).all()
        assert (tokens[: task.data_length] >= 1).all()
        assert (tokens[: task.data_length] <= task.largest_token).all()
    assert batch.targets.max() < task.go


def test_samples_depend_on_seed_split_and_number_alone() -> None:
    task = MEMORIES["copy-variable"]
    one = task.batch(3, Split.TRAIN, [5, 1000, 7])
    for row, index in enumerate([5, 1000, 7]):
        again = task.batch(3, Split.TRAIN, [index])
        assert again.tokens[0].equal(one.tokens[row])
        assert again.positions[0].equal(one.positions[row])
    others = [task.batch(4, Split.TRAIN, [5]), task.batch(3, Split.VALIDATION, [5]), task.batch(3, Split.TRAIN, [6])]
    assert not any(other.tokens[0, :32].equal(one.tokens[0, :32]) for other in others)


def test_lag_and_answers_of_samples() -> None:
    task = MEMORIES["copy-variable"]
    batch = task.batch(3, Split.VALIDATION, range(20))
    lags = [task.lag(3, Split.VALIDATION, index) for index in range(20)]
    assert lags == (batch.positions[:, 0] - task.data_length).tolist()
    assert len(set(lags)) > 1
    assert task.answers(Oracle(task), batch).equal(batch.targets)


def test_training_and_validation_do_not_overlap() -> None:
    task = MEMORIES["sum-fixed"]
    splits = Split.TRAIN, Split.VALIDATION
    train, validation = (task.batch(0, split, range(20_000)).tokens[:, :32] for split in splits)
    rows = {tuple(row) for tokens in (train, validation) for row in tokens.tolist()}
    assert len(rows) == 40_000


def test_data_tokens_are_uniform() -> None:
    task = MEMORIES["copy-fixed"]
    counts = task.batch(0, Split.TRAIN, range(4000)).tokens[:, :32].flatten().bincount(minlength=100)[1:99]
    expected = 4000 * 32 / 98
    assert ((counts - expected).square() / expected).sum() < 150  # chi-square with 97 degrees of freedom: p = 0.0004


@given(
    st.sampled_from([Copy(), Sum(3), WeightedSum(4, 0.5, 1.0, 2.0)]),
    st.integers(1, 9),
    st.integers(0, 12),
    st.integers(0, 5),
    st.integers(20, 60),
)
@settings(max_examples=40)
def test_any_sizes(mapping: Copy | Sum | WeightedSum, length: int, lag: int, spread: int, vocabulary: int) -> None:
    task = DelayedMemory(mapping, (lag, lag + spread), vocabulary, length)
    batch = task.batch(0, Split.TRAIN, range(4))
    assert int(batch.score(Oracle(task)).points) == 4 * length


def test_settings_that_overflow_are_refused() -> None:
    assert DelayedMemory(Sum(16), (8, 8), 300, max_token=18).largest_token == 18
    with pytest.raises(ValueError, match=r"targets up to 304.*lower max_token or raise vocab_size"):
        DelayedMemory(Sum(16), (8, 8), 300, max_token=19)
    with pytest.raises(ValueError, match="too small"):
        DelayedMemory(Sum(16), (8, 8), 17)
    with pytest.raises(ValueError, match="shorter first"):
        DelayedMemory(Copy(), (9, 8))
    with pytest.raises(ValueError, match="data_length"):
        DelayedMemory(Copy(), (8, 8), data_length=0)
    with pytest.raises(ValueError, match="max_token"):
        DelayedMemory(Copy(), (8, 8), max_token=0)
    with pytest.raises(ValueError, match="window"):
        Sum(0)
    with pytest.raises(ValueError, match="positive"):
        WeightedSum(width=0.0)


@pytest.mark.parametrize("mapping", [Copy(), Sum(3), Sum(16), WeightedSum(), WeightedSum(16, 0.3, -2.0, 5.0)])
@pytest.mark.parametrize("data_length", [1, 5, 32])
def test_the_largest_token_is_the_largest_that_fits(mapping: Copy | Sum | WeightedSum, data_length: int) -> None:
    for vocab_size in range(40, 400, 37):
        task = DelayedMemory(mapping, (1, 1), vocab_size, data_length)
        largest = [int(task.target(np.full(data_length, token)).max()) for token in range(1, task.go)]
        assert task.largest_token == sum(target < task.go for target in largest)
    huge = DelayedMemory(mapping, (1, 1), 2**31 - 1, data_length)
    assert huge.target(np.full(data_length, huge.largest_token)).max() < huge.go


@pytest.mark.parametrize("name", ["vocab_size", "data_length", "max_token"])
def test_sizes_beyond_all_machines_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be below 2\*\*31"):
        DelayedMemory(**{name: 10**400})


def test_chance_level() -> None:
    assert DelayedMemory(Copy(), (1, 1), vocab_size=3).chance_level() == 1.0  # a single data token
    assert DelayedMemory(Copy(), (1, 1), vocab_size=4).chance_level() == pytest.approx(0.5, abs=0.03)
    task = DelayedMemory(Copy(), (1, 1), vocab_size=25, data_length=8)
    assert task.chance_level() == pytest.approx(1 / 23, abs=0.003)  # no answer is favoured by being counted in itself


def test_score_is_cross_entropy_at_the_answers() -> None:
    task = DelayedMemory(Copy(), (2, 3), vocab_size=6, data_length=2)
    batch = task.batch(0, Split.TRAIN, range(5))
    logits = torch.randn(5, 2, 6)

    class Fixed(torch.nn.Module):
        def forward(self, tokens: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            return logits

    score = batch.score(Fixed())
    by_hand = -sum(logits[b, t].log_softmax(0)[batch.targets[b, t]] for b in range(5) for t in range(2))
    assert score.loss == pytest.approx(float(by_hand), rel=1e-6)
    assert score.points == (logits.argmax(-1) == batch.targets).sum()
    assert score.count == 10
