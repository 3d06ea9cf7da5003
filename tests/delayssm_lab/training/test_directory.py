"""Tests of directories of runs: what belongs to a run, what was edited, what is left over, and more steps."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from delayssm.storage import model_files
from delayssm.storage import tensors as tensor_file
from delayssm_lab.display import Silent
from delayssm_lab.recipes.delayed import preset
from delayssm_lab.tasks.language import FilmReviews
from delayssm_lab.tasks.task import Task
from delayssm_lab.tasks.texts import ListOps
from delayssm_lab.training import checkpoint, directory, fingerprint
from delayssm_lab.training import trainer as training
from delayssm_lab.training.evaluate import best_model
from delayssm_lab.training.record import of_directory
from delayssm_lab.training.run import Run, Training, load
from delayssm_lab.training.schedules import Cosine, MultiStep
from delayssm_lab.training.store import Store
from tests.support.runs import (
    DS4D,
    LSTM,
    TASK,
    create,
    metrics_without_times,
    read_metrics,
    read_summary,
    state,
    tiny,
    train_to,
    weights,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a finished run of 8 steps."""
    path = create(tmp_path_factory.mktemp("run") / "run", tiny(LSTM, steps=8))
    training.train(path, Silent())
    return path


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """Return a copy of the finished run."""
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def _edit(path: Path, change: Callable[[Any], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def _edited(copy: Path, **settings: object) -> None:
    _edit(copy / "config.json", lambda content: content["run"]["training"].update(settings))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda run: run["training"].update(lr=0.002), r"training\.lr is 0\.001 there and 0\.002 here"),
        (lambda run: run.update(seed=1), "seed is 0 there and 1 here"),
        (lambda run: run["task"].update(lags=[5, 8]), r"task\.lags is \(6, 8\) there and \(5, 8\) here"),
        (lambda run: run["training"].update(steps=9), r"training\.steps is 8 there and 9 here"),
    ],
)
def test_an_edited_configuration_is_refused(change: Callable[[Any], object], message: str, copy: Path) -> None:
    _edit(copy / "config.json", lambda content: change(content["run"]))
    with pytest.raises(ValueError, match=rf"summary\.json was written with other settings .*{message}"):
        training.train(copy, Silent())
    if "steps" in message:  # which the weights do not depend on
        return
    with pytest.raises(ValueError, match=rf"best/model\.safetensors was written with other settings .*{message}"):
        best_model(copy, load(copy)[0])
    (copy / "summary.json").unlink()
    with pytest.raises(ValueError, match=rf"last/training\.safetensors was written with other settings .*{message}"):
        training.train(copy, Silent())
    with pytest.raises(ValueError, match=rf"metrics\.jsonl was written with other settings .*{message}"):
        read_metrics(copy)
    with pytest.raises(ValueError, match=rf"fingerprint\.json was written with other settings .*{message}"):
        fingerprint.read(copy, load(copy)[0])


@pytest.mark.parametrize("name", ["best", "last", "metrics.jsonl", "summary.json", "fingerprint.json"])
def test_files_of_another_run_are_refused(name: str, copy: Path, tmp_path: Path) -> None:
    other = create(tmp_path / "other", tiny(LSTM, seed=3, steps=8))
    training.train(other, Silent())
    if (other / name).is_dir():
        shutil.rmtree(copy / name)
        shutil.copytree(other / name, copy / name)
    else:
        shutil.copy(other / name, copy / name)
    if name == "last":
        (copy / "summary.json").unlink()
    with pytest.raises(ValueError, match="seed is 3 there and 0 here"):
        training.train(copy, Silent()) if name == "last" else of_directory(copy)


def _other_code(copy: Path) -> None:
    _edit(copy / "fingerprint.json", lambda content: content.update(values=[2.0 * x for x in content["values"]]))


def test_a_run_of_other_code_does_not_go_on(copy: Path) -> None:
    expected = read_summary(copy)
    _other_code(copy)
    assert training.train(copy, Silent()) == expected  # it has ended
    (copy / "summary.json").unlink()
    with pytest.raises(ValueError, match="copy was begun by other code than this; delete it to train the run again"):
        training.train(copy, Silent())
    (copy / "fingerprint.json").unlink()  # unknown
    assert training.train(copy, Silent()) == expected


def test_a_run_of_other_code_is_not_extended(copy: Path) -> None:
    expected = read_summary(copy)
    _other_code(copy)
    with pytest.raises(ValueError, match="was begun by other code"):
        directory.extend(copy, 12)
    assert load(copy)[0] == tiny(LSTM, steps=8)
    assert read_summary(copy) == expected


def _on_data(task: Task) -> Run:
    if isinstance(task, FilmReviews):
        return Run(task=task, model=LSTM, training=Training(steps=1, batch_size=2, validation_size=2, test_size=2))
    model = DS4D.with_layer(d_model=4, max_delay=8)
    return Run(task=task, model=model, training=Training(steps=1, batch_size=2, validation_size=2, test_size=2))


@pytest.mark.parametrize(
    ("task", "name"), [(ListOps(40), "listops"), (FilmReviews(8, 100), "imdb")], ids=lambda value: str(value)
)
def test_a_run_does_not_go_on_with_other_data(task: Task, name: str, data: Path, tmp_path: Path) -> None:
    path = create(tmp_path / "run", _on_data(task))
    summary = training.train(path, Silent())
    assert load(path)[1]["data"] == json.loads((data / name / "about.json").read_text())["digest"]
    record = of_directory(path)
    assert record is not None
    assert record.environment == load(path)[1]
    (path / "summary.json").unlink()
    _edit(path / "config.json", lambda content: content["environment"].update(data="0" * 64))
    with pytest.raises(
        ValueError, match=r"was begun with other data for .*sha256 was 000.*prepare the same data again"
    ):
        training.train(path, Silent())
    _edit(path / "config.json", lambda content: content["environment"].pop("data"))  # by an earlier version
    assert training.train(path, Silent())["steps"] == summary["steps"]


def test_generated_samples_have_no_digest(finished: Path) -> None:
    assert "data" not in load(finished)[1]


def test_stored_weights_of_another_run_are_refused(finished: Path, tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(finished, weights=True)
    other = tiny(LSTM, seed=3, steps=8)
    shutil.copy(tmp_path / f"{tiny(LSTM).name}.safetensors", tmp_path / f"{other.name}.safetensors")
    store.model(tiny(LSTM, steps=8))
    with pytest.raises(ValueError, match="seed is 0 there and 3 here"):
        store.model(other)


def test_weights_of_another_model_are_one_error(copy: Path) -> None:
    _edit(copy / "config.json", lambda content: content["run"]["model"].update(d_model=9))
    path, run = checkpoint.best(copy), load(copy)[0]
    saved = model_files.read(path)
    checkpoint.save_best(copy, saved.config, saved.tensors, checkpoint.TrainingProgress(best=0.5), run)
    with pytest.raises(ValueError, match=r"model\.safetensors does not have the weights of this model"):
        best_model(copy, run)


GPT2 = preset("copy-fixed", "gpt2", "small").model
WRONG_RUNS = [
    tiny(replace(DS4D, depth=0)),
    tiny(replace(GPT2, heads=3)),  # type: ignore[call-arg]
]


@pytest.mark.parametrize("run", WRONG_RUNS, ids=range(len(WRONG_RUNS)))
def test_a_run_that_cannot_begin_leaves_nothing(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the model of this run cannot be built: ."):
        create(tmp_path / "run", run)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (tiny(LSTM, validation_size=None), "has unlimited samples; set validation_size"),
        (tiny(LSTM, steps=None, epochs=1), "has unlimited samples and no epochs; set steps"),
    ],
)
def test_a_run_that_could_not_end_leaves_nothing(run: Run, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        create(tmp_path / "run", run)
    assert not (tmp_path / "run").exists()


def test_a_run_without_data_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYSSM_DATA", str(tmp_path / "data"))
    with pytest.raises((ValueError, OSError), match="mnist is not prepared"):
        create(tmp_path / "run", preset("smnist", "ds4d", "small"))
    assert not (tmp_path / "run").exists()


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(NotADirectoryError, match=r"run is a file.*choose another with --out"):
        create(tmp_path / "run", tiny())
    with pytest.raises(FileNotFoundError, match="is not a run"):
        load(tmp_path / "run")


def test_leftovers_of_dead_processes_are_removed(tmp_path: Path) -> None:
    path = create(tmp_path, tiny(LSTM))
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    places = [path, path / "best", path / "last"]
    for place in places:
        place.mkdir(exist_ok=True)
        for writer in (process.pid, os.getppid()):
            (place / f".model.safetensors.{socket.gethostname()}.{writer}-1.part").write_bytes(b"half")
        (place / ".part").write_bytes(b"of a user")
    training.train(path, Silent())
    names = {".part", f".model.safetensors.{socket.gethostname()}.{os.getppid()}-1.part"}
    assert [{found.name for found in place.glob(".*part")} for place in places] == [names] * 3


def _states_agree(a: Path, b: Path) -> bool:
    pairs = [(read(a), read(b)) for read in (weights, state)]
    return all(
        one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one) for one, other in pairs
    )


def test_an_extended_run_is_the_longer_run(tmp_path: Path) -> None:
    short, long = (create(tmp_path / str(n), tiny(steps=n, lr=1e-2)) for n in (8, 20))
    training.train(short, Silent())
    directory.extend(short, 20)
    assert read_summary(short) is None
    for path in (short, long):
        training.train(path, Silent())
    assert load(short)[0] == load(long)[0]
    assert _states_agree(short, long)
    assert metrics_without_times(short) == metrics_without_times(long)
    ends = [read_summary(path) or {} for path in (short, long)]
    times = "seconds", "tokens_per_second"
    assert [{k: v for k, v in end.items() if k not in times} for end in ends[:1]] == [
        {k: v for k, v in end.items() if k not in times} for end in ends[1:]
    ]
    assert ends[0]["steps"] == 20


def test_an_extension_that_is_killed_at_once_goes_on(copy: Path) -> None:
    (copy / "summary.json").unlink()  # as after the first half of `extend`
    assert training.train(copy, Silent())["steps"] == 8
    directory.extend(copy, 12)
    directory.extend(copy, 12)  # as every process of torchrun does
    assert training.train(copy, Silent())["steps"] == 12


@pytest.mark.parametrize(
    ("run", "steps", "message"),
    [
        (tiny(LSTM, steps=8), 4, "a run of 8 steps, which can only be raised, not to 4"),
        (tiny(LSTM, steps=8, schedule=Cosine()), 12, "has the schedule Cosine, by which the learning rate depends"),
        (tiny(LSTM, steps=8, schedule=MultiStep(at=(0.5,))), 12, "has the schedule MultiStep"),
        (tiny(LSTM, steps=6), 12, "was evaluated after step 6, which a run of 12 steps that is evaluated every 4"),
        (tiny(LSTM, steps=8, target=0.0), 12, "has reached its target or exhausted its patience, so more steps"),
        (tiny(LSTM, steps=20, target=0.0), 40, "has reached its target"),
        (tiny(LSTM, steps=20, lr=1e-9, patience=1), 40, "exhausted its patience"),
    ],
)
def test_runs_that_cannot_be_extended(run: Run, steps: int, message: str, tmp_path: Path) -> None:
    path = create(tmp_path, run)
    summary = training.train(path, Silent())
    with pytest.raises(ValueError, match=message):
        directory.extend(path, steps)
    assert load(path)[0] == run
    assert read_summary(path) == summary


def test_a_run_is_not_cut_short(copy: Path) -> None:
    (copy / "summary.json").unlink()
    _edited(copy, steps=4)
    with pytest.raises(ValueError, match="has already taken 8 of 4 steps"):
        training.train(copy, Silent())


def test_another_number_of_steps_says_how_to_extend(copy: Path) -> None:
    with pytest.raises(FileExistsError, match=r"holds another run .*delayssm resume .*copy --steps STEPS"):
        create(copy, tiny(LSTM, steps=12))
    with pytest.raises(FileExistsError, match=r"delete that one$"):
        create(copy, tiny(LSTM, steps=12, lr=1.0))


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (2, '{"step": 4, "accu', r"line 2 of .*metrics\.jsonl is damaged \(.*\); delete the line"),
        (3, "\x00\x00", r"line 3 of .*metrics\.jsonl is damaged \(.*\); delete the line"),
        (3, "[]", r"line 3 of .*metrics\.jsonl is damaged \(.*\); delete the line"),
        (2, '{"step": 4, "seconds": 1}', r"line 2 of .*metrics\.jsonl has no accuracy; delete the line"),
        (1, '{"run": 7}', r"metrics\.jsonl does not describe a run of this version"),
    ],
)
def test_a_damaged_line_of_metrics_is_named(line: int, text: str, message: str, copy: Path) -> None:
    path = copy / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[line - 1] = f"{text}\n"
    path.write_text("".join(lines))
    with pytest.raises(ValueError, match=message):
        read_metrics(copy)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"accuracy": 1}', "\x00"])
def test_a_damaged_summary_is_named_and_can_be_written_again(text: str, copy: Path) -> None:
    expected, path = read_summary(copy), copy / "summary.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"summary\.json .*; delete it, and the run writes it again"):
        training.train(copy, Silent())
    path.unlink()
    assert training.train(copy, Silent()) == expected


def test_a_lost_last_evaluation_is_repeated(copy: Path) -> None:
    expected, metrics = read_summary(copy), read_metrics(copy)
    path = copy / "metrics.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    (copy / "summary.json").unlink()
    assert training.train(copy, Silent()) == expected
    for found, before in zip(read_metrics(copy), metrics, strict=True):
        assert all(found[name] == before[name] for name in ("step", "accuracy", "loss"))


def test_a_run_that_is_made_to_end_before_its_first_evaluation(tmp_path: Path) -> None:
    path = create(tmp_path, tiny(LSTM, steps=3, evaluate_every=100, checkpoint_every=1))
    train_to(path, 2)
    _edited(path, steps=2)
    assert training.train(path, Silent())["steps"] == 2
    assert [entry["step"] for entry in read_metrics(path)] == [2]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("progress", "{}", "its progress is {}"),
        ("progress", '{"step": "2"}', "its progress is "),
        ("progress", "[", "is damaged"),
        ("run", "{", "is damaged"),
        ("run", "7", "does not describe a run"),
    ],
)
def test_a_checkpoint_that_contradicts_itself(name: str, text: str, message: str, copy: Path) -> None:
    (copy / "summary.json").unlink()
    path = checkpoint.last(copy)
    tensors, about = tensor_file.read(path, checkpoint.FORMAT)
    tensor_file.write(path, checkpoint.FORMAT, tensors, {**about, name: text})
    with pytest.raises(ValueError, match=rf"last/training\.safetensors.*{message}"):
        training.train(copy, Silent())


def test_what_a_checkpoint_says_has_a_checksum(copy: Path) -> None:
    (copy / "summary.json").unlink()
    path = checkpoint.last(copy)
    content = path.read_bytes()
    path.write_bytes(content.replace(b'\\"step\\": 8', b'\\"step\\": 4', 1))
    assert path.read_bytes() != content
    with pytest.raises(checkpoint.Damaged, match=r"training\.safetensors .*does not match its checksum"):
        training.train(copy, Silent())


def test_directories_of_another_format_are_refused(copy: Path) -> None:
    _edit(copy / "config.json", lambda content: content.update(format="delayssm directory 0"))
    message = r"config\.json has the format 'delayssm directory 0', but 'delayssm directory 1' is what can be read here"
    with pytest.raises(ValueError, match=message):
        training.train(copy, Silent())
    _edit(copy / "config.json", lambda content: content.pop("format"))
    with pytest.raises(ValueError, match=r"config\.json has the format None"):
        load(copy)


@pytest.mark.parametrize("change", ["shape", "type", "missing", "new"])
def test_training_states_of_another_model_are_one_error(change: str, copy: Path) -> None:
    (copy / "summary.json").unlink()
    saved, run = checkpoint.read(checkpoint.last(copy)), load(copy)[0]
    name = next(name for name in saved.tensors if name.startswith("optimiser.exp_avg."))
    if change in ("shape", "type"):
        saved.tensors[name] = saved.tensors[name].flatten()[:1] if change == "shape" else saved.tensors[name].double()
    elif change == "missing":
        del saved.tensors[name]
    else:
        saved.tensors["optimiser.new"] = torch.zeros(1)
    checkpoint.write(checkpoint.last(copy), saved.tensors, saved.progress, run)
    with pytest.raises(ValueError, match=r"last/training\.safetensors does not have the weights of this model"):
        training.train(copy, Silent())


def test_lost_metrics_are_named(copy: Path) -> None:
    for name in ("metrics.jsonl", "summary.json"):
        (copy / name).unlink()
    with pytest.raises(ValueError, match=r"metrics\.jsonl has lost its evaluations"):
        training.train(copy, Silent())


def test_a_bidirectional_model_cannot_be_asked_for_tokens() -> None:
    with pytest.raises(ValueError, match=r"has already seen; set bidirectional to False .*--no-bidirectional"):
        tiny(DS4D.with_layer(bidirectional=True))
    assert preset("listops", "ds4d", "small").model.layer.bidirectional  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_seeds_that_generators_do_not_take(seed: int) -> None:
    with pytest.raises(ValueError, match=f"seed must be at least 0 and below .*not {seed}"):
        tiny(seed=seed)
    TASK.batch(2**63 - 1, 0, [0])  # type: ignore[arg-type]
