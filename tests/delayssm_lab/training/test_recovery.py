"""Tests of training with kills, signals, full disks and damaged files."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from delayssm_lab.display import Silent
from delayssm_lab.training import checkpoint
from delayssm_lab.training import trainer as training
from delayssm_lab.training.interrupt import NOTICE
from tests.support import runs
from tests.support.runs import (
    LSTM,
    ONE_THREAD,
    create,
    finish,
    read_metrics,
    read_summary,
    start,
    tiny,
)

pytestmark = pytest.mark.usefixtures("one_thread")

LONG = {"steps": 300, "evaluate_every": 50, "checkpoint_every": 10}


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole, killed = (create(tmp_path / name, tiny(**LONG)) for name in ("whole", "killed"))
    process = start("-m", "delayssm_lab.training.worker", whole, "1")
    victim = start("-m", "delayssm_lab.training.worker", killed, "1")
    runs.wait_for(checkpoint.last(killed), victim)
    time.sleep(0.3)
    victim.kill()
    assert finish(victim)[0] == -signal.SIGKILL
    assert read_summary(killed) is None
    step = checkpoint.read(checkpoint.last(killed))[1].step
    assert 0 < step < LONG["steps"]
    resumed = start("-m", "delayssm_lab.training.worker", killed, "1")
    assert finish(process)[0] == 0
    assert finish(resumed)[0] == 0
    for read in (runs.weights, runs.state):
        a, b = read(whole), read(killed)
        assert a.keys() == b.keys()
        assert all(torch.equal(a[name], b[name]) for name in a)
    assert runs.metrics_without_times(whole) == runs.metrics_without_times(killed)


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    directory = create(tmp_path / "run", tiny(**LONG | {"steps": 3000}))
    process = start("-m", "delayssm_lab", "resume", directory)
    runs.wait_for(checkpoint.last(directory), process)
    process.send_signal(signal.SIGINT)
    code, _, errors = finish(process)
    assert code == 130
    assert f"To continue: delayssm resume {directory}" in errors
    assert "Traceback" not in errors
    step = checkpoint.read(checkpoint.last(directory))[1].step
    assert f"stopped after step {step} of 3000" in errors


ENDLESS = """
import sys, time
from delayssm_lab.training import trainer
from delayssm_lab.cli import main

def step(self):
    print("step", flush=True)
    time.sleep(300)

trainer.Trainer.step = step
sys.argv = ["delayssm", "resume", sys.argv[1]]
main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_second_signal_ends_a_step_that_does_not_end(number: signal.Signals, code: int, tmp_path: Path) -> None:
    process = start("-c", ENDLESS, create(tmp_path, tiny(LSTM)))
    assert process.stdout is not None
    assert process.stderr is not None
    while process.stdout.readline() != "step\n":
        assert process.poll() is None
    process.send_signal(number)
    assert process.stderr.readline() == f"{NOTICE}\n"
    process.send_signal(number)
    actual, _, errors = finish(process)
    assert actual == code
    assert "Traceback" not in errors


@pytest.mark.parametrize("damage", ["cut", "flipped", "not a checkpoint"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_is_there(tmp_path: Path, damage: str) -> None:
    directory = create(tmp_path / "run", tiny())
    runs.train_to(directory, 2, 3)
    path = checkpoint.last(directory)
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "flipped":
        content[-5] ^= 1
    else:
        content = bytearray(b"something else")
    path.write_bytes(content)
    before = checkpoint.previous(directory).read_bytes()
    with pytest.raises(checkpoint.Damaged, match=r"of step 2, is intact: delete .*training.safetensors to resume"):
        training.train(directory, Silent())
    assert checkpoint.previous(directory).read_bytes() == before
    path.unlink()
    whole = create(tmp_path / "whole", tiny())
    training.train(directory, Silent())
    training.train(whole, Silent())
    assert all(
        torch.equal(a, b) for a, b in zip(runs.state(whole).values(), runs.state(directory).values(), strict=True)
    )


FULL = """
import resource, signal, sys
from pathlib import Path
from delayssm_lab.training import trainer as training
from delayssm_lab.display import Silent
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    training.train(Path(sys.argv[1]), Silent())
except OSError as error:
    print(error)
"""


def test_no_room_for_a_checkpoint_leaves_the_last_one(tmp_path: Path) -> None:
    directory = create(tmp_path / "run", tiny())
    runs.train_to(directory, 4)
    before = checkpoint.last(directory).read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(directory)],
        capture_output=True,
        text=True,
        env={**os.environ, **ONE_THREAD},
        check=False,
    )
    assert "could not write" in done.stdout, done.stderr
    assert "File too large" in done.stdout
    assert checkpoint.last(directory).read_bytes() == before
    assert not list(directory.rglob("*.part"))
    training.train(directory, Silent())  # with room again it goes on
    assert read_summary(directory) is not None


def test_a_crash_between_two_files_loses_nothing(tmp_path: Path) -> None:
    directory = create(tmp_path, tiny())
    runs.train_to(directory, 2, 3)
    os.replace(checkpoint.last(directory), checkpoint.previous(directory))  # as `save_training` does first
    state = checkpoint.load_training(directory, tiny())
    assert state is not None
    assert state[1].step == 3


def test_a_torn_line_of_metrics_is_measured_again(tmp_path: Path) -> None:
    directory = create(tmp_path, tiny())
    training.train(directory, Silent())
    path = directory / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 16, "accu')
    assert [entry["step"] for entry in read_metrics(directory)] == [4, 8, 12]


def test_an_evaluation_is_on_disk_before_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = create(tmp_path, tiny(LSTM, steps=4))
    synced, metrics, fsync = [], directory / "metrics.jsonl", os.fsync

    def record(file: int) -> None:
        fsync(file)
        if metrics.exists() and os.path.samestat(os.fstat(file), metrics.stat()):
            synced.append((metrics.read_text().count('"step"'), checkpoint.last(directory).exists()))

    monkeypatch.setattr(os, "fsync", record)
    training.train(directory, Silent())
    assert synced == [(1, False)]


def test_two_damaged_checkpoints(tmp_path: Path) -> None:
    directory = create(tmp_path, tiny())
    runs.train_to(directory, 2, 3)
    for path in (checkpoint.last(directory), checkpoint.previous(directory)):
        path.write_bytes(b"")
    with pytest.raises(checkpoint.Damaged, match="there is no older checkpoint"):
        training.train(directory, Silent())
