"""Tests of the tasks on recorded data: samples, splits and models."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from delayssm.layers.block import BlockConfig
from delayssm.layers.layer import DS4DConfig, S4DConfig
from delayssm_lab.data.catalogue import load
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.prepared.writer import Writer
from delayssm_lab.data.published.speech_commands import WORDS
from delayssm_lab.models.specs import LSTMSpec, StateSpaceSpec
from delayssm_lab.recipes.delayed import preset
from delayssm_lab.tasks.images import GrayCIFAR, Pathfinder, SequentialMNIST
from delayssm_lab.tasks.labelled import LabelledTask, pad_rows, split_shares
from delayssm_lab.tasks.signals import BIDMC, RegressionBatch, SpeechCommands
from delayssm_lab.tasks.task import Metric, Split, Task
from delayssm_lab.tasks.texts import END, ListOps, Retrieval, Text

#: Each kind of batch, short enough for a test.
SMALL: list[Task] = [
    SequentialMNIST(),
    SpeechCommands(pooling="last", every=100),
    SpeechCommands(every=100),
    BIDMC("HR", every=20),
    ListOps(40),
    Text(30),
    Retrieval(50),
    GrayCIFAR(),
    Pathfinder(),
]
every_task = pytest.mark.parametrize("task", SMALL, ids=lambda task: task.label)


def _ds4d(task: Task, bidirectional: bool) -> DS4DConfig:
    return DS4DConfig(6, 4, task.max_length, bidirectional=bidirectional)


def _tensors(batch: object) -> list[torch.Tensor]:
    return [value for value in vars(batch).values() if isinstance(value, torch.Tensor)]


def _same(a: object, b: object) -> bool:
    return all(map(torch.equal, _tensors(a), _tensors(b)))


@pytest.mark.usefixtures("data")
@every_task
def test_splits_share_nothing_and_leave_nothing_out(task: LabelledTask) -> None:
    train, validation = (set(task.split(split).tolist()) for split in (Split.TRAIN, Split.VALIDATION))
    assert train
    assert validation
    if task.prepared().get("validation_y") is None:  # no published validation set
        assert not train & validation
    for split in Split:
        assert task.size(split) == len(task.split(split)) == len(task.targets(split))


@pytest.mark.usefixtures("data")
@every_task
def test_an_epoch_shows_every_sample_once(task: LabelledTask) -> None:
    count = task.size(Split.TRAIN)
    first, second = ([task.batch(5, Split.TRAIN, [e * count + i]) for i in range(count)] for e in (0, 1))

    def keys(batches: list[object]) -> list[bytes]:
        return [b"".join(t.numpy().tobytes() for t in _tensors(batch)) for batch in batches]

    assert len(set(keys(first))) == count
    assert sorted(keys(first)) == sorted(keys(second))
    assert keys(first) != keys(second)
    assert keys(first) != keys([task.batch(6, Split.TRAIN, [i]) for i in range(count)])


@pytest.mark.usefixtures("data")
@every_task
def test_samples_depend_on_their_numbers_alone(task: LabelledTask) -> None:
    count = task.size(Split.TRAIN)
    numbers = [0, count + 3, 2 * count - 1]
    together = task.batch(1, Split.TRAIN, numbers)
    for row, number in enumerate(numbers):
        alone = task.batch(1, Split.TRAIN, [number])
        for whole, part in zip(_tensors(together), _tensors(alone), strict=True):
            expected = whole[row : row + 1]
            if part.ndim == 2:  # tokens, padded to the longest of the batch
                assert expected[:, part.shape[1] :].eq(0).all()
                expected = expected[:, : part.shape[1]]
            assert part.equal(expected)
    assert _same(task.batch(1, Split.TEST, [0, 1]), task.batch(2, Split.TEST, [0, 1]))


@pytest.mark.usefixtures("data")
@every_task
@pytest.mark.parametrize("family", ["DS4D", "S4D"])
def test_the_model_of_a_task_answers(task: Task, family: str) -> None:
    bidirectional = not (isinstance(task, SpeechCommands) and task.pooling == "last")
    s4d, ds4d = S4DConfig(6, 4, bidirectional=bidirectional), _ds4d(task, bidirectional)
    block = BlockConfig(layer=ds4d if family == "DS4D" else s4d, norm="batch", prenorm=False)
    model = task.build(StateSpaceSpec(depth=2, block=block))
    batch = task.batch(0, Split.TRAIN, range(3))
    score = batch.score(model)
    score.loss.backward()
    assert score.count == 3
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    moved = batch.to("cpu")
    assert _same(moved, batch)


@pytest.mark.usefixtures("data")
@every_task
def test_others_in_a_batch_change_no_answer(task: Task) -> None:
    """Rows of other lengths are padded, which changes no answer."""
    block = BlockConfig(layer=_ds4d(task, bidirectional=True), norm="batch")
    model = task.build(StateSpaceSpec(depth=2, block=block)).eval()
    together = task.batch(0, Split.TEST, range(4)).score(model).loss
    alone = sum(task.batch(0, Split.TEST, [i]).score(model).loss for i in range(4))
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-5)


@pytest.mark.usefixtures("data")
def test_pixels_are_what_the_recipes_say() -> None:
    batch = SequentialMNIST().batch(0, Split.TEST, [0])
    row = load("mnist")["test_x"][SequentialMNIST().split(Split.TEST)]
    assert (batch.x[0, :, 0] * 255).round().to(torch.uint8).numpy().tolist() in row.tolist()
    gray = GrayCIFAR().batch(0, Split.TEST, range(12)).x
    assert gray.min() == pytest.approx(-122.6 / 61, abs=0.1)
    assert gray.max() == pytest.approx((255 - 122.6) / 61, abs=0.1)


def test_ragged_rows_are_cut_and_end_with_a_token() -> None:
    flat, offsets = np.array([5, 6, 7, 8, 9], np.uint8), np.array([0, 3, 3, 5])
    tokens, lengths = pad_rows(flat, offsets, np.array([0, 1, 2]), max_length=3, end=END)
    assert tokens.tolist() == [[5, 6, END], [END, 0, 0], [8, 9, END]]
    assert lengths.tolist() == [3, 1, 3]


def test_split_shares_are_a_partition() -> None:
    splits = split_shares(101, 0.7, 0.15, 0.15)
    assert [len(split) for split in splits] == [71, 15, 15]
    assert sorted(np.concatenate(splits).tolist()) == list(range(101))
    assert all(np.array_equal(a, b) for a, b in zip(splits, split_shares(101, 0.7, 0.15, 0.15), strict=True))


@pytest.mark.usefixtures("data")
def test_windows_of_patients() -> None:
    by_window, by_patient = BIDMC("RR"), BIDMC("RR", cut="patients")
    record = load("bidmc")["record"]
    patients = [set(record[by_patient.split(split)].tolist()) for split in Split]
    assert not patients[0] & patients[1] | patients[0] & patients[2] | patients[1] & patients[2]
    assert sum(map(len, patients)) == 10
    assert sum(by_window.size(split) for split in Split) == 38  # two windows have no breath
    batch = by_window.batch(0, Split.TEST, [0])
    signals = load("bidmc")["signals"]
    assert any(
        np.array_equal(batch.x[0].numpy(), signals[r, s : s + 4000]) for r in range(10) for s in (0, 500, 1000, 1500)
    )


def test_errors_are_in_the_units_of_the_data() -> None:
    batch = RegressionBatch(torch.zeros(2, 3, 2), torch.tensor([80.0, 100.0]), center=90.0, scale=5.0)

    class Mean(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.zeros(len(x), 1)

    score = batch.score(Mean())
    assert Metric.RMSE.of(float(score.points) / score.count) == pytest.approx(10.0)
    assert float(score.loss) == pytest.approx(2 * 4.0)
    assert Metric.RMSE.better(1.0, 2.0)
    assert Metric.ACCURACY.better(2.0, 1.0)


@pytest.mark.usefixtures("data")
def test_chance_level() -> None:
    counts = np.bincount(load("mnist")["test_y"])
    assert SequentialMNIST().chance_level() == counts.max() / 12
    targets = BIDMC("HR").targets(Split.TEST)
    assert BIDMC("HR").chance_level() == pytest.approx(np.sqrt(np.mean((targets - 89.18) ** 2)))


@pytest.mark.usefixtures("data")
def test_some_words_of_many() -> None:
    """Clips of other words are left out, and those that stay are numbered in the order of the task."""
    data = load("speech-commands")
    parts = [[WORDS[y] for y in data[f"{split}_y"]] for split in ("train", "validation", "test")]
    words = tuple(sorted({word for part in parts for word in part[:2]}, reverse=True))
    task = SpeechCommands(words=words)
    for split, said in zip(Split, parts, strict=True):
        clips, rows = data[f"{split.name.lower()}_x"], task.split(split)
        assert rows.tolist() == [row for row, word in enumerate(said) if word in words]
        assert [words[y] for y in task.targets(split)] == [said[row] for row in rows]
        batch = task.take(split, rows)
        assert [words[y] for y in batch.targets] == [said[row] for row in rows]
        assert batch.x.equal(task.hear(torch.from_numpy(clips[rows])))
    everything = SpeechCommands(words=WORDS)
    assert everything.split(Split.TRAIN).tolist() == list(range(6))
    assert everything.targets(Split.TRAIN).tolist() == data["train_y"].tolist()


@pytest.mark.usefixtures("data")
def test_words_that_are_not_there_are_refused() -> None:
    with pytest.raises(ValueError, match=r"has the words yes, maybe, but prepared here are backward, .*prepare maybe"):
        SpeechCommands(words=("yes", "maybe")).batch(0, Split.TRAIN, [0])


@pytest.mark.parametrize(("name", "task"), [("imdb", Text()), ("aan", Retrieval())])
def test_more_characters_than_a_model_knows_are_refused(
    name: str, task: Text | Retrieval, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYSSM_DATA", str(tmp_path))
    characters = task.vocab_size + 1
    with Writer(name) as writer:
        writer.put("train_y", np.zeros(20, np.uint8))
        writer.about(title="", origin="", missing=[], counts={}, characters=["x"] * characters)
    with pytest.raises(ValueError, match=f"have {characters} tokens, .* set vocab_size to {characters}"):
        task.size(Split.TRAIN)
    assert replace(task, vocab_size=characters).size(Split.TRAIN) > 0


def test_data_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYSSM_DATA", str(tmp_path))
    with pytest.raises(DataError, match="delayssm data prepare mnist --download"):
        SequentialMNIST().size(Split.TRAIN)
    with pytest.raises(DataError, match="delayssm data generate pathfinder32-14"):
        Pathfinder().size(Split.TRAIN)


def test_models_of_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="task for DS4D and S4D; LSTM is"):
        SequentialMNIST().build(LSTMSpec(d_model=4, depth=1))
    with pytest.raises(ValueError, match="not for mamba"):
        preset("smnist", "mamba", "small")
