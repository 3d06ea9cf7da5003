"""Tests of associative recall and selective copying: samples by hand and in general, gaps, reproducibility."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Int
from torch import Tensor, nn

from delayssm_lab.recipes.delayed import MODELS, preset
from delayssm_lab.recipes.recall import RECALLS, TASKS
from delayssm_lab.tasks.associative import AssociativeRecall
from delayssm_lab.tasks.recall import PAD, RecallTask
from delayssm_lab.tasks.selective import SelectiveCopying
from delayssm_lab.tasks.task import Split

every_task = pytest.mark.parametrize("name", RECALLS)


class Solver(nn.Module):
    """Stand-in for a model that answers from the tokens up to each position, by hand."""

    def __init__(self, task: AssociativeRecall | SelectiveCopying) -> None:
        super().__init__()
        self.task = task

    def forward(self, tokens: Int[Tensor, "B L"], at: Int[Tensor, "B T"]) -> Tensor:
        """Return logits that are 1 for the correct token and 0 for all others."""
        logits = torch.zeros(*at.shape, self.task.vocab_size)
        for row, positions in enumerate(at.tolist()):
            for i, position in enumerate(positions):
                logits[row, i, self._answer(tokens[row, : position + 1].tolist())] = 1
        return logits

    def _answer(self, seen: list[int]) -> int:
        if isinstance(self.task, AssociativeRecall):
            return seen[seen.index(seen[-1]) + 1]  # what followed the key when it was first seen
        data = [token for token in seen if token not in (PAD, self.task.marker)]
        return data[seen.count(self.task.marker) - 1]


def test_the_layout_of_the_docstrings() -> None:
    task = AssociativeRecall(16, 2, 12)
    batch = task.batch(0, Split.TRAIN, range(300))
    for tokens, positions, targets in zip(batch.tokens.tolist(), batch.positions.tolist(), batch.targets, strict=True):
        first, one, second, two, *rest = tokens
        assert {first, second} <= {1, 2, 3, 4, 5}
        assert {one, two} <= {6, 7, 8, 9, 10, 11}
        assert [tokens[position] for position in positions] == [first, second]
        assert targets.tolist() == [one, two]
        assert sum(token != PAD for token in rest) == 2
    assert {position for row in batch.positions.tolist() for position in row} == {4, 6, 8, 10, 12, 14}

    copying = SelectiveCopying(10, 4, 8)
    batch = copying.batch(0, Split.TRAIN, range(300))
    assert batch.tokens.shape == (300, 14)
    assert batch.tokens[:, 10:].eq(7).all()
    assert batch.positions.eq(torch.tensor([10, 11, 12, 13])).all()
    assert [[t for t in row if t] for row in batch.tokens[:, :10].tolist()] == batch.targets.tolist()
    assert set(batch.targets.flatten().tolist()) == {1, 2, 3, 4, 5, 6}
    assert batch.tokens[:, :10].ne(0).any(0).all()  # every place holds data in some sample


@every_task
def test_what_was_seen_decides_every_answer(name: str) -> None:
    task = TASKS[name]
    score = task.batch(1, Split.VALIDATION, range(40)).score(Solver(task))
    assert int(score.points) == score.count == 40 * (task.batch(1, Split.VALIDATION, [0]).targets.shape[1])


@st.composite
def associative(draw: st.DrawFn) -> AssociativeRecall:
    """Return associative recall of any sizes."""
    pairs = draw(st.integers(1, 9))
    length = draw(st.integers(4 * pairs, 4 * pairs + 40))
    vocabulary = draw(st.integers(2 * pairs + 2, 60))
    return AssociativeRecall(length, pairs, vocabulary, draw(st.sampled_from([0.01, 0.5, 1.0, 3.0])))


@given(associative(), st.integers(0, 2**40))
@settings(max_examples=100)
def test_every_key_is_unique_and_asked_for_once_after_its_value(task: AssociativeRecall, index: int) -> None:
    batch = task.batch(0, Split.TRAIN, [index])
    tokens, positions, targets = (t[0].tolist() for t in (batch.tokens, batch.positions, batch.targets))
    shown = 2 * task.pairs
    keys, values = tokens[0:shown:2], tokens[1:shown:2]
    assert len({*keys}) == len({*values}) == task.pairs
    assert not {*keys} & {*values}
    assert max(keys) < min(values) or set(keys) < set(range(1, task.vocab_size // 2))
    assert {*values} <= set(range(task.vocab_size // 2, task.vocab_size))
    assert sorted(tokens[position] for position in positions) == sorted(keys)
    assert len({*positions}) == task.pairs
    assert all(shown <= position < task.length and position % 2 == 0 for position in positions)
    assert [dict(zip(keys, values, strict=True))[tokens[position]] for position in positions] == targets
    assert tokens.count(PAD) == task.length - 3 * task.pairs
    assert int(batch.score(Solver(task)).points) == task.pairs


@given(st.integers(1, 30), st.integers(1, 12), st.integers(3, 20), st.integers(0, 2**40))
@settings(max_examples=50)
def test_selective_copying_of_any_sizes(length: int, data: int, vocabulary: int, index: int) -> None:
    task = SelectiveCopying(max(length, data), data, vocabulary)
    batch = task.batch(0, Split.TRAIN, [index])
    assert batch.tokens.shape == (1, task.max_length)
    assert int(batch.score(Solver(task)).points) == data


def test_gaps_follow_the_power_law() -> None:
    counts = _slots(AssociativeRecall(64, 1, 128, power=0.01))
    expected = np.arange(1, 32) ** -0.99
    expected *= counts.sum() / expected.sum()
    assert ((counts - expected) ** 2 / expected).sum() < 60  # chi-square with 30 degrees of freedom: p = 0.001
    even = _slots(AssociativeRecall(64, 1, 128, power=1.0))
    assert ((even - even.mean()) ** 2 / even.mean()).sum() < 60


def _slots(task: AssociativeRecall) -> np.ndarray:
    positions = task.batch(0, Split.TRAIN, range(6000)).positions
    return ((positions - 2) // 2).flatten().bincount(minlength=31).numpy()


@every_task
def test_samples_depend_on_seed_split_and_number_alone(name: str) -> None:
    task = TASKS[name]
    several = task.batch(3, Split.TRAIN, [5, 1000, 7])
    for row, index in enumerate([5, 1000, 7]):
        again = task.batch(3, Split.TRAIN, [index])
        assert again.tokens[0].equal(several.tokens[row])
        assert again.positions[0].equal(several.positions[row])
        assert again.targets[0].equal(several.targets[row])
    others = [task.batch(4, Split.TRAIN, [5]), task.batch(3, Split.VALIDATION, [5]), task.batch(3, Split.TRAIN, [6])]
    assert not any(other.tokens[0].equal(several.tokens[0]) for other in others)
    assert task.size(Split.TEST) == 0
    assert task.size(Split.TRAIN) is None


@every_task
def test_the_chance_level_is_that_of_one_answer(name: str) -> None:
    task = TASKS[name]
    targets = task.batch(0, Split.VALIDATION, range(2000)).targets.flatten()
    shares = targets.bincount().double() / len(targets)
    assert float(shares[shares > 0].mean()) == pytest.approx(task.chance_level(), rel=1e-6)
    assert float(shares.max()) < 1.5 * task.chance_level()


@every_task
def test_every_model_takes_a_step_and_has_as_many_parameters(name: str) -> None:
    task: RecallTask = TASKS[name]
    batch = task.batch(0, Split.TRAIN, range(2))
    sizes = []
    for model in MODELS:
        if model == "ds4d-narrow":
            continue
        run = preset(name, model, "small")  # type: ignore[arg-type]
        score = batch.score(run.initial_model())
        assert score.count == batch.targets.numel()
        assert float(score.loss.detach()) / score.count == pytest.approx(np.log(task.vocab_size), rel=0.3)
        score.loss.backward()
        sizes.append(run.parameters())
    assert max(sizes) / min(sizes) < 1.02


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"3 pairs and their queries take 12 tokens, but length is 11; lower pairs"):
        AssociativeRecall(11, 3)
    with pytest.raises(ValueError, match=r"has 4 keys, too few for 5 pairs; raise vocab_size to at least 12"):
        AssociativeRecall(64, 5, 10)
    with pytest.raises(ValueError, match="power must be positive"):
        AssociativeRecall(power=0.0)
    with pytest.raises(ValueError, match="pairs must be at least 1"):
        AssociativeRecall(pairs=0)
    with pytest.raises(ValueError, match="lower data_length"):
        SelectiveCopying(7, 8)
    with pytest.raises(ValueError, match="vocab_size must be at least 3"):
        SelectiveCopying(vocab_size=2)
    for task in (AssociativeRecall, SelectiveCopying):
        with pytest.raises(ValueError, match=r"length must be at least 1 and below 2\*\*31"):
            task(length=10**400)


def test_there_is_no_paper_scale() -> None:
    with pytest.raises(ValueError, match="choose --scale small"):
        preset("recall-64", "ds4d", "paper")
    with pytest.raises(ValueError, match="paper's size only"):
        preset("recall-64", "ds4d-narrow", "small")
