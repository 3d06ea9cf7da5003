"""Tests of the language task: text, windows, splits and scores."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from delayssm_lab.data.errors import DataError
from delayssm_lab.data.prepared.writer import Writer
from delayssm_lab.models.specs import matched
from delayssm_lab.recipes.delayed import preset
from delayssm_lab.recipes.language import LANGUAGE_MODELS, PARAMETERS, REVIEWS, LanguageModelName
from delayssm_lab.tasks.language import FilmReviews
from delayssm_lab.tasks.task import Metric, Split

TASK = FilmReviews(context=7, train_bytes=200)


class Constant(nn.Module):
    """Gives every byte the same logits."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(*x.shape, -1)


def _reviews(text: np.ndarray) -> list[bytes]:
    assert text[0] == 0
    return text.tobytes()[1:].split(b"\0")


@pytest.mark.usefixtures("data")
def test_each_review_is_in_one_split() -> None:
    whole = FilmReviews(context=7)
    train, validation, test = (_reviews(whole.text(split)) for split in Split)
    assert (len(train), len(validation), len(test)) == (27, 3, 30)
    data = {name: TASK.text(split).tobytes() for name, split in (("train", Split.TRAIN), ("test", Split.TEST))}
    assert whole.text(Split.TRAIN).tobytes().startswith(data["train"])
    assert len(data["train"]) == 200
    assert len(data["test"]) > 200


@pytest.mark.usefixtures("data")
def test_windows_follow_each_other_and_each_byte_is_a_target_once() -> None:
    text = TASK.text(Split.TEST)
    batch = TASK.batch(0, Split.TEST, range(TASK.size(Split.TEST)))
    assert batch.inputs.shape == (TASK.size(Split.TEST), 7)
    assert batch.inputs.flatten().tolist() == text[: batch.inputs.numel()].tolist()
    assert batch.targets.flatten().tolist() == text[1 : batch.inputs.numel() + 1].tolist()
    assert len(text) - 1 - batch.targets.numel() < 7
    assert torch.equal(batch.to("cpu").tokens, batch.tokens)


@pytest.mark.usefixtures("data")
def test_training_windows_depend_on_seed_and_number_alone() -> None:
    count = TASK.size(Split.TRAIN)
    epochs = [TASK.batch(3, Split.TRAIN, range(e * count, (e + 1) * count)).tokens.tolist() for e in (0, 1)]
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1])
    assert epochs[0] != TASK.batch(4, Split.TRAIN, range(count)).tokens.tolist()
    assert TASK.batch(3, Split.TRAIN, [count + 2]).tokens.tolist() == epochs[1][2:3]
    assert torch.equal(TASK.batch(3, Split.TEST, [1]).tokens, TASK.batch(4, Split.TEST, [1]).tokens)


@pytest.mark.usefixtures("data")
def test_bits_are_those_of_the_right_byte() -> None:
    batch = TASK.batch(0, Split.VALIDATION, range(3))
    uniform = batch.score(Constant(torch.zeros(256)))
    assert uniform.count == batch.targets.numel() == 21
    assert float(uniform.points) / uniform.count == pytest.approx(8)
    assert float(uniform.loss) / uniform.count == pytest.approx(8 * math.log(2))  # in nats
    logits = torch.randn(256)
    expected = -logits.log_softmax(0)[batch.targets] / math.log(2)
    torch.testing.assert_close(batch.bits(Constant(logits)), expected)
    assert float(batch.score(Constant(logits)).points) == pytest.approx(float(expected.sum()), rel=1e-5)


@pytest.mark.usefixtures("data")
def test_the_entropy_is_that_of_the_best_constant_answer() -> None:
    text = TASK.text(Split.TEST)
    shares = np.bincount(text, minlength=256) / len(text)
    best = -(shares * np.log2(np.where(shares, shares, 1))).sum()
    assert TASK.chance_level() == pytest.approx(best)
    assert Metric.BITS.better(2.0, best)
    assert Metric.BITS.best([2.0, best]) == 2.0


def test_missing_data_and_data_without_bytes_name_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYSSM_DATA", str(tmp_path))
    with pytest.raises(DataError, match="delayssm data prepare imdb --download"):
        TASK.size(Split.TRAIN)
    with Writer("imdb") as writer:
        writer.ragged("train_tokens").append(b"abc")
        writer.about(title="text", origin="a test", missing=[], counts={})
    with pytest.raises(DataError, match=r"earlier version, without the bytes.*delayssm data prepare imdb"):
        TASK.text(Split.TRAIN)


@pytest.mark.usefixtures("data")
def test_a_text_that_is_too_short_is_an_error() -> None:
    with pytest.raises(ValueError, match="too few for a window of 100000 bytes"):
        FilmReviews(context=100_000).size(Split.VALIDATION)
    for options in ({"context": 0}, {"train_bytes": 2**31}, {"context": 50, "train_bytes": 50}):
        with pytest.raises(ValueError, match="must be"):
            FilmReviews(**options)


@pytest.mark.parametrize("model", LANGUAGE_MODELS)
def test_models_have_equally_many_parameters(model: LanguageModelName) -> None:
    run = preset("reviews", model, "small")
    assert matched(run.model, PARAMETERS, REVIEWS.build) == run.model
    assert abs(run.parameters() / PARAMETERS - 1) < 0.01
    assert run.steps * run.training.batch_size * run.task.max_length <= REVIEWS.train_bytes


def test_other_models_and_the_paper_are_refused() -> None:
    with pytest.raises(ValueError, match="reviews is a task for ds4d, s4d, mamba, llama, not for lstm"):
        preset("reviews", "lstm", "small")
    with pytest.raises(ValueError, match="not one of the paper's tasks"):
        preset("reviews", "ds4d", "paper")
