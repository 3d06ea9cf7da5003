"""The general benchmarks: samples, splits, models and recipes."""

import math
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from delayssm.data.errors import DataError
from delayssm.data.prepared import load
from delayssm.data.speech_commands import WORDS
from delayssm.data.writer import Writer
from delayssm.lab import benchmarks, checkpoint, training
from delayssm.lab.benchmarks import BENCHMARKS, ORIGINAL_WIDTHS, TABLE, TASKS, BenchmarkName, mini, paper
from delayssm.lab.display import Silent
from delayssm.lab.evaluate import load_model, on_test_samples
from delayssm.lab.presets import preset
from delayssm.lab.run import AnyTask, Run, Training
from delayssm.lab.run import load as load_run
from delayssm.lab.schedules import Cosine, MultiStep
from delayssm.models import specs
from delayssm.tasks.images import GrayCIFAR, Pathfinder, SequentialMNIST
from delayssm.tasks.labelled import Labelled, padded, shares
from delayssm.tasks.signals import BIDMC, Regressed, SpeechCommands
from delayssm.tasks.task import Metric, Split
from delayssm.tasks.texts import END, ListOps, Retrieval, Text
from tests.lab import create, finish, start
from tests.prepared import prepare_all

#: Each kind of batch, short enough for a test.
SMALL: list[AnyTask] = [
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


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    prepare_all(tmp_path / "data", monkeypatch)
    return tmp_path / "data"


def _tensors(batch: object) -> list[torch.Tensor]:
    return [value for value in vars(batch).values() if isinstance(value, torch.Tensor)]


def _same(a: object, b: object) -> bool:
    return all(map(torch.equal, _tensors(a), _tensors(b)))


@pytest.mark.usefixtures("data")
@every_task
def test_splits_share_nothing_and_leave_nothing_out(task: Labelled) -> None:
    train, validation = (set(task.split(split).tolist()) for split in (Split.TRAIN, Split.VALIDATION))
    assert train
    assert validation
    if task.prepared().get("validation_y") is None:  # no published validation set
        assert not train & validation
    for split in Split:
        assert task.size(split) == len(task.split(split)) == len(task.targets(split))


@pytest.mark.usefixtures("data")
@every_task
def test_an_epoch_shows_every_sample_once(task: Labelled) -> None:
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
def test_samples_depend_on_their_numbers_alone(task: Labelled) -> None:
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
@pytest.mark.parametrize("family", [specs.DS4D, specs.S4D])
def test_the_model_of_a_task_answers(task: AnyTask, family: type[specs.StateSpace]) -> None:
    causal = isinstance(task, SpeechCommands) and task.pooling == "last"
    spec = family(d_model=6, depth=2, d_state=4, norm="batch", prenorm=False, bidirectional=not causal)
    model = task.build(spec)  # type: ignore[arg-type]
    batch = task.batch(0, Split.TRAIN, range(3))
    score = batch.score(model)
    score.loss.backward()
    assert score.count == 3
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    moved = batch.to("cpu")
    assert _same(moved, batch)


@pytest.mark.usefixtures("data")
@every_task
def test_others_in_a_batch_change_no_answer(task: AnyTask) -> None:
    """Rows of other lengths are padded, which no model may notice."""
    spec = specs.DS4D(d_model=6, depth=2, d_state=4, norm="batch", bidirectional=True)
    model = task.build(spec).eval()
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


def test_ragged_rows_are_cut_and_closed() -> None:
    flat, offsets = np.array([5, 6, 7, 8, 9], np.uint8), np.array([0, 3, 3, 5])
    tokens, lengths = padded(flat, offsets, np.array([0, 1, 2]), longest=3, end=END)
    assert tokens.tolist() == [[5, 6, END], [END, 0, 0], [8, 9, END]]
    assert lengths.tolist() == [3, 1, 3]


def test_shares_are_a_partition() -> None:
    parts = shares(101, 0.7, 0.15, 0.15)
    assert [len(part) for part in parts] == [71, 15, 15]
    assert sorted(np.concatenate(parts).tolist()) == list(range(101))
    assert all(np.array_equal(a, b) for a, b in zip(parts, shares(101, 0.7, 0.15, 0.15), strict=True))


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
    batch = Regressed(torch.zeros(2, 3, 2), torch.tensor([80.0, 100.0]), center=90.0, scale=5.0)

    class Mean(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.zeros(len(x), 1)

    score = batch.score(Mean())
    assert Metric.RMSE.of(float(score.points) / score.count) == pytest.approx(10.0)
    assert float(score.loss) == pytest.approx(2 * 4.0)
    assert Metric.RMSE.better(1.0, 2.0)
    assert Metric.ACCURACY.better(2.0, 1.0)


@pytest.mark.usefixtures("data")
def test_guessing() -> None:
    counts = np.bincount(load("mnist")["test_y"])
    assert SequentialMNIST().guess() == counts.max() / 12
    targets = BIDMC("HR").targets(Split.TEST)
    assert BIDMC("HR").guess() == pytest.approx(np.sqrt(np.mean((targets - 89.18) ** 2)))


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
    with pytest.raises(ValueError, match="task for DS4D and S4D; a LSTM"):
        SequentialMNIST().build(specs.LSTM(d_model=4, depth=1))
    with pytest.raises(ValueError, match="not for mamba"):
        preset("smnist", "mamba", "mini")


#: The paper's table: depth, H, N, p, omega, norm, pre-norm, batch, lr, dt lr, weight decay, epochs.
PAPER = {
    "smnist": (6, 115, 64, 0.015, 0, "batch", True, 64, 1e-3, 1e-4, 0.05, 20),
    "sc-ar": (6, 114, 64, 0.1, math.pi, "batch", True, 16, 1e-2, 1e-4, 0.05, 40),
    "sc-bi": (6, 116, 64, 0.1, math.pi, "batch", True, 16, 1e-2, 1e-4, 0.05, 40),
    "bidmc-rr": (6, 101, 256, 0.1, math.pi, "layer", True, 32, 1e-2, 1e-4, 0.05, 500),
    "bidmc-hr": (6, 101, 256, 0.05, math.pi, "batch", True, 32, 1e-2, 1e-4, 0.05, 500),
    "bidmc-spo2": (6, 101, 256, 0.1, math.pi, "batch", True, 32, 1e-2, 1e-4, 0.05, 500),
    "listops": (8, 116, 64, 0.1, math.pi, "batch", False, 50, 1e-2, 5e-4, 0.05, 40),
    "text": (6, 242, 64, 0.1, math.pi, "batch", True, 16, 1e-2, 1e-4, 0.05, 32),
    "retrieval": (6, 242, 64, 0.1, math.pi, "batch", True, 64, 1e-2, 1e-4, 0.05, 20),
    "image": (6, 497, 64, 0.01, 0, "layer", False, 50, 1e-2, 1e-4, 0.05, 200),
    "pathfinder": (6, 243, 64, 0.1, math.pi, "batch", True, 64, 4e-3, 5e-4, 0.03, 200),
    "path-x": (6, 243, 64, 0.1, math.pi, "batch", True, 16, 5e-4, 1e-4, 0.05, 50),
}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_paper_s_table_to_the_digit(name: BenchmarkName) -> None:
    run = paper(name, "ds4d")
    spec, how = run.model, run.training
    assert isinstance(spec, specs.DS4D)
    found = (spec.depth, spec.d_model, spec.d_state, spec.branch_fraction, spec.phase, spec.norm, spec.prenorm)
    assert (*found, how.batch_size, how.lr, how.dt_lr, how.weight_decay, how.epochs) == PAPER[name]
    assert spec.init == "inv"
    assert spec.delays == {"smnist": 28, "image": 32}.get(name)
    assert spec.bidirectional == (name not in ("smnist", "sc-ar"))
    assert isinstance(how.schedule, MultiStep if name.startswith("bidmc") else Cosine)
    assert how.dynamics_lr is None  # A and B learn at the main rate


@pytest.mark.parametrize("scale", [paper, mini], ids=["paper", "mini"])
@pytest.mark.parametrize("name", BENCHMARKS)
def test_parameters_are_matched(name: BenchmarkName, scale: object) -> None:
    ds4d, s4d = scale(name, "ds4d"), scale(name, "s4d")  # type: ignore[operator]
    assert s4d.parameters() == pytest.approx(ds4d.parameters(), rel=0.01)
    assert s4d.task == ds4d.task
    same = {"dt_lr": None, "dynamics_lr": None}
    assert replace(s4d.training, **same) == replace(ds4d.training, **same)  # the same budget
    assert s4d.training.dynamics_lr == s4d.training.dt_lr == min(1e-3, s4d.training.lr)


def test_widths_of_the_original_recipes() -> None:
    """Where the paper's sizes match them within 1 %, and where they do not."""
    close = {}
    for name, width in ORIGINAL_WIDTHS.items():
        ds4d = paper(name, "ds4d")
        shared = {field.name: getattr(ds4d.model, field.name) for field in fields(specs.StateSpace)}
        original = replace(ds4d, model=specs.S4D(**{**shared, "d_model": width}))
        close[name] = abs(ds4d.parameters() / original.parameters() - 1) < 0.01
    assert {name for name, is_close in close.items() if is_close} == {"image", "pathfinder", "path-x"}


def test_lengths_and_steps_of_full_size_runs() -> None:
    assert {name: TASKS[name].max_length for name in BENCHMARKS} == {
        "smnist": 784, "sc-ar": 16000, "sc-bi": 16000, "bidmc-rr": 4000, "bidmc-hr": 4000, "bidmc-spo2": 4000,
        "listops": 2048, "text": 4096, "retrieval": 4000, "image": 1024, "pathfinder": 1024, "path-x": 16384,
    }  # fmt: skip
    assert set(TABLE) == set(TASKS) == set(BENCHMARKS)


def _tiny(task: AnyTask = BIDMC("HR", every=40), **settings: object) -> Run:  # noqa: B008
    spec = specs.DS4D(d_model=6, depth=1, d_state=4, norm="batch", dropout=0.1)
    chosen = {"epochs": 2, "batch_size": 5, "evaluate_every": 3, "checkpoint_every": 4, "validation_size": None}
    return Run(task=task, model=spec, training=Training(**{**chosen, **settings}))  # type: ignore[arg-type]


@pytest.mark.usefixtures("data", "one_thread")
def test_training_by_epochs_with_a_test_at_the_end(tmp_path: Path) -> None:
    run = _tiny()
    training.create(tmp_path / "run", run)
    assert load_run(tmp_path / "run")[0] == run
    summary = training.train(tmp_path / "run", Silent())
    assert summary["steps"] == run.steps == math.ceil(2 * 28 / 5)
    metrics = training.read_metrics(tmp_path / "run")
    assert summary["rmse"] == min(entry["rmse"] for entry in metrics)
    model, _ = load_model(tmp_path / "run")
    assert on_test_samples(model, run, 100) == pytest.approx(summary["test_rmse"], rel=1e-5)


@pytest.mark.usefixtures("data", "one_thread")
def test_batch_statistics_survive_an_interruption(tmp_path: Path) -> None:
    """Running means are part of what is saved, so a run that goes on ends with the same bits."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    training.create(whole, _tiny(SequentialMNIST()))
    training.create(parts, _tiny(SequentialMNIST()))
    expected = training.train(whole, Silent())
    run, _ = load_run(parts)
    trainer = training.Trainer(run, parts, training.make_accelerator(run), Silent())
    for _ in range(4):
        trainer.step()
        if trainer.progress.step == 3:
            trainer.evaluate()
    trainer.save()
    found = training.train(parts, Silent())
    for summary in (found, expected):
        del summary["seconds"], summary["tokens_per_second"]
    assert found == expected


@pytest.mark.usefixtures("data", "one_thread")
@pytest.mark.parametrize(("task", "norm"), [(Text(30), "batch"), (BIDMC("HR", every=40), "layer")])
def test_two_processes_end_as_one(task: AnyTask, norm: str, tmp_path: Path) -> None:
    """Running means, test results and all, with rows of other lengths in each.

    Not for values with batch norm: the bias of the first layer then has no gradient but rounding errors.
    """
    run = _tiny(task, batch_size=6, epochs=None, steps=5)
    run = replace(run, model=replace(run.model, norm=norm, dropout=0.0))  # masks are drawn by each process
    one, two = create(tmp_path / "one", run), create(tmp_path / "two", run)
    expected = training.train(one, Silent())
    two_processes = "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"
    code, _, errors = finish(start(*two_processes, "-m", "delayssm", "resume", two))
    assert code == 0, errors
    found = training.read_summary(two)
    name = task.metric.value
    assert found[f"test_{name}"] == pytest.approx(expected[f"test_{name}"], rel=1e-4)
    weights = [checkpoint.read(checkpoint.best(directory))[0] for directory in (one, two)]
    assert any("running_var" in key for key in weights[0]) == (norm == "batch")
    for key, value in weights[0].items():
        torch.testing.assert_close(weights[1][key], value, atol=1e-4, rtol=1e-3)


@pytest.mark.usefixtures("data", "one_thread")
def test_shares_of_a_batch_must_be_equal_for_batch_norm(tmp_path: Path) -> None:
    run = _tiny(batch_size=5, epochs=None, steps=1)
    two = SimpleNamespace(num_processes=2)
    with pytest.raises(ValueError, match="a batch of 5 cannot be shared by 2; make it a multiple of that"):
        training.Trainer(run, tmp_path, two, Silent())  # type: ignore[arg-type]


@pytest.mark.usefixtures("data", "one_thread")
def test_patience_ends_a_run_early(tmp_path: Path) -> None:
    training.create(tmp_path, _tiny(epochs=None, steps=90, evaluate_every=1, patience=2, lr=1e-12))
    summary = training.train(tmp_path, Silent())
    entries = training.read_metrics(tmp_path)
    assert summary["steps"] == entries[-1]["step"] < 90
    assert sum(entry["step"] > summary["best_step"] for entry in entries) == 2


@pytest.mark.usefixtures("data", "one_thread")
def test_an_error_small_enough_ends_a_run_early(tmp_path: Path) -> None:
    training.create(tmp_path, _tiny(target=1e9))
    assert training.train(tmp_path, Silent())["steps"] == 3


def test_epochs_or_steps() -> None:
    with pytest.raises(ValueError, match="either how many steps or how many epochs"):
        Training(batch_size=4)
    with pytest.raises(ValueError, match="either how many steps or how many epochs"):
        Training(batch_size=4, steps=3, epochs=1)
    run = replace(preset("copy-fixed", "ds4d", "mini"), training=Training(epochs=1, batch_size=4))
    with pytest.raises(ValueError, match="no end of samples, so no epochs"):
        _ = run.steps


def test_every_preset_can_be_written_down(tmp_path: Path) -> None:
    for name in BENCHMARKS:
        for scale in (paper, mini):
            run = scale(name, "ds4d")
            training.create(tmp_path / f"{name}-{scale.__name__}", run)
            assert load_run(tmp_path / f"{name}-{scale.__name__}")[0] == run
    assert benchmarks.paper("text", "ds4d").name == "text-ds4d-lr0.01-seed0"
