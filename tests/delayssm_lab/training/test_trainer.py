"""Tests of training with real processes, signals and damaged files."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from delayssm.layers.block import BlockConfig
from delayssm.layers.layer import DS4DConfig
from delayssm_lab.display import Silent, Status
from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.tasks.task import Split
from delayssm_lab.training import checkpoint, evaluate
from delayssm_lab.training import trainer as training
from delayssm_lab.training.directory import Busy
from delayssm_lab.training.run import load, save
from tests.support.runs import (
    DS4D,
    IMPORTABLE,
    LSTM,
    ONE_THREAD,
    TASK,
    create,
    finish,
    read_metrics,
    read_summary,
    run,
    start,
    tiny,
)

pytestmark = pytest.mark.usefixtures("one_thread")

TWO_PROCESSES = "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"
LONG = {"steps": 300, "evaluate_every": 50, "checkpoint_every": 10}


class Recorder:
    """Display that records what it is shown."""

    def __init__(self) -> None:
        self.shown: list[Status] = []
        self.said: list[str] = []

    def show(self, status: Status) -> None:
        self.shown.append(status)

    def say(self, message: str) -> None:
        self.said.append(message)


def _weights(directory: Path) -> dict[str, torch.Tensor]:
    return checkpoint.read(checkpoint.best(directory))[0]


def _state(directory: Path) -> dict[str, torch.Tensor]:
    return checkpoint.read(checkpoint.last(directory))[0]


def _without_times(directory: Path) -> list[dict[str, float]]:
    return [{k: v for k, v in entry.items() if k != "seconds"} for entry in read_metrics(directory)]


def _wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, finish(process)
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_run_leaves_what_it_promises(tmp_path: Path) -> None:
    directory, recorder = create(tmp_path / "run", tiny()), Recorder()
    summary = training.train(directory, recorder)
    assert {p.name for p in directory.iterdir()} == {
        ".lock", "config.json", "fingerprint.json", "metrics.jsonl", "summary.json", "best", "last",
    }  # fmt: skip
    config = json.loads((directory / "config.json").read_text())
    assert {"torch", "backend", "threads", "revision"} <= config["environment"].keys()
    metrics = read_metrics(directory)
    assert [entry["step"] for entry in metrics] == [4, 8, 12]
    assert summary == read_summary(directory)
    assert summary["accuracy"] == max(entry["accuracy"] for entry in metrics)
    assert summary["steps"] == 12
    assert [status.step for status in recorder.shown if not status.evaluated] == list(range(1, 13))
    assert recorder.said == []
    assert training.train(directory, recorder) == summary  # finished: nothing to do
    assert len(recorder.shown) == 15


def test_the_best_weights_have_the_best_accuracy(tmp_path: Path) -> None:
    directory = create(tmp_path, tiny(lr=3e-2, steps=60))
    summary = training.train(directory, Silent())
    model, loaded = evaluate.load_model(directory)
    score = TASK.batch(loaded.seed, Split.VALIDATION, range(10)).score(model)
    assert int(score.points) / score.count == summary["accuracy"] > 0.1
    by_lag = evaluate.accuracy_by_lag(model, TASK, 10, loaded.seed)
    assert set(by_lag) <= {6, 7, 8}
    assert sum(a.samples for a in by_lag.values()) == 10
    assert sum(a.mean * a.samples for a in by_lag.values()) / 10 == pytest.approx(summary["accuracy"])
    assert evaluate.measure(model, TASK, Split.VALIDATION, 10, loaded.seed) == summary["accuracy"]


@pytest.mark.parametrize("samples", [1, 7, 100])
def test_accuracy_by_lag_adds_up_to_the_metric(samples: int) -> None:
    torch.manual_seed(1)
    model = tiny().build()
    by_lag = evaluate.accuracy_by_lag(model, TASK, samples, seed=5)
    assert list(by_lag) == sorted({TASK.lag(5, Split.VALIDATION, index) for index in range(samples)})
    assert sum(a.samples for a in by_lag.values()) == samples
    total = sum(a.mean * a.samples for a in by_lag.values())
    assert total / samples == pytest.approx(evaluate.measure(model, TASK, Split.VALIDATION, samples, seed=5), abs=1e-12)


def test_evaluation_needs_samples() -> None:
    model = tiny().build()
    with pytest.raises(ValueError, match="samples must be at least 1, not 0"):
        evaluate.accuracy_by_lag(model, TASK, 0, seed=5)
    with pytest.raises(ValueError, match="samples must be at least 1, not 0"):
        evaluate.measure(model, TASK, Split.VALIDATION, 0, seed=5)
    with pytest.raises(ValueError, match="has no test samples"):
        evaluate.measure(model, TASK, Split.TEST, 10, seed=5)


def test_it_learns(tmp_path: Path) -> None:
    task = replace(TASK, lags=(6, 6))
    model = StateSpaceSpec(depth=2, block=BlockConfig(layer=DS4DConfig(16, 8, task.max_length)))
    run = tiny(model, steps=200, batch_size=32, lr=2e-2, evaluate_every=20, target=0.6)
    summary = training.train(create(tmp_path, replace(run, task=task)), Silent())
    assert summary["steps"] < 200  # stopped at the target
    reached = [entry["accuracy"] >= 0.6 for entry in read_metrics(tmp_path)]
    assert reached[-2:] == [True, True]
    assert not any(a and b for a, b in pairwise(reached[:-1]))  # no two in a row before


def test_rows_at_once_change_nothing_but_rounding(tmp_path: Path) -> None:
    model = DS4D.with_layer(dropout=0.0)
    whole, parts = create(tmp_path / "a", tiny(model)), create(tmp_path / "b", tiny(model, rows_at_once=4))
    for directory in (whole, parts):
        training.train(directory, Silent())
    a, b = _state(whole), _state(parts)
    for name in a:
        torch.testing.assert_close(a[name], b[name], atol=1e-5, rtol=1e-4)


def test_schedule_groups_and_clipping_reach_the_optimiser(tmp_path: Path) -> None:
    from delayssm_lab.training.schedules import Constant

    run = tiny(steps=3, lr=1e-2, dt_lr=1e-3, schedule=Constant(warmup=1), weight_decay=0.1, clip=1e-3)
    trainer = training.Trainer(run, tmp_path, training.make_accelerator(run), Silent())
    trainer.step()
    rates = {group["name"]: (group["lr"], group["weight_decay"]) for group in trainer.optimiser.param_groups}
    slow = {"output": (5e-3, 0.0), "dynamics": (5e-3, 0.0), "step_size": (5e-4, 0.0)}
    assert rates == {"main": (5e-3, 0.1), "no_decay": (5e-3, 0.0), **slow}
    trainer.step()
    assert trainer.optimiser.param_groups[0]["lr"] == 1e-2
    moments = [state["exp_avg"].norm() for state in trainer.optimiser.state.values()]
    assert torch.stack(moments).norm() < 2e-4  # two clipped gradients of norm 1e-3, each weighed with 0.1


def test_mixed_precision_trains_float32_weights(tmp_path: Path) -> None:
    training.train(create(tmp_path, tiny(precision="bf16")), Silent())
    assert {t.dtype for t in _weights(tmp_path).values() if t.is_floating_point()} == {torch.float32}
    exact = create(tmp_path / "exact", tiny())
    training.train(exact, Silent())
    assert not torch.equal(_weights(exact)["head.weight"], _weights(tmp_path)["head.weight"])


def test_a_killed_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole, killed = (create(tmp_path / name, tiny(**LONG)) for name in ("whole", "killed"))
    process = start("-m", "delayssm_lab.training.worker", whole)
    victim = start("-m", "delayssm_lab.training.worker", killed)
    _wait_for(checkpoint.last(killed), victim)
    time.sleep(0.3)
    victim.kill()
    assert finish(victim)[0] == -signal.SIGKILL
    assert read_summary(killed) is None
    step = checkpoint.read(checkpoint.last(killed))[1].step
    assert 0 < step < LONG["steps"]
    resumed = start("-m", "delayssm_lab.training.worker", killed)
    assert finish(process)[0] == 0
    assert finish(resumed)[0] == 0
    for read in (_weights, _state):
        a, b = read(whole), read(killed)
        assert a.keys() == b.keys()
        assert all(torch.equal(a[name], b[name]) for name in a)
    assert _without_times(whole) == _without_times(killed)


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    directory = create(tmp_path / "run", tiny(**LONG | {"steps": 3000}))
    process = start("-m", "delayssm_lab", "resume", directory)
    _wait_for(checkpoint.last(directory), process)
    process.send_signal(signal.SIGINT)
    code, _, errors = finish(process)
    assert code == 130
    assert f"To continue: delayssm resume {directory}" in errors
    assert "Traceback" not in errors
    step = checkpoint.read(checkpoint.last(directory))[1].step
    assert f"stopped after step {step} of 3000" in errors


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    settings = {"batch_size": 7, "validation_size": 9, "rows_at_once": 3}  # shares are unequal
    run_ = tiny(DS4D.with_layer(dropout=0.0), **settings)
    one, two = create(tmp_path / "one", run_), create(tmp_path / "two", run_)
    _stopped_at(two, 3)  # begun alone, and the rest by two
    code, out, errors = run(*TWO_PROCESSES, "-m", "delayssm_lab", "resume", two)
    assert code == 0, errors
    assert out.count("Best accuracy") == 1
    training.train(one, Silent())
    a, b = _state(one), _state(two)
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], atol=1e-5, rtol=1e-4)
    for x, y in zip(_without_times(one), _without_times(two), strict=True):
        assert x == pytest.approx(y, rel=1e-5)


SHARDED = """
import sys, torch
from pathlib import Path
from torch.distributed.fsdp import fully_shard
from delayssm_lab.training import checkpoint, trainer as training
from delayssm_lab.display import Silent
from tests.support.runs import DS4D, tiny

class Sharding:
    # Does what accelerate does with GPUs: the model is sharded, and the optimiser holds the shards.
    def __init__(self, accelerator): self.inner = accelerator
    def __getattr__(self, name): return getattr(self.inner, name)
    def prepare(self, model, optimiser):
        groups = [{k: v for k, v in g.items() if k != "params"} for g in optimiser.param_groups]
        names = {p: n for n, p in model.named_parameters()}
        members = [[names[p] for p in g["params"]] for g in optimiser.param_groups]
        for block in model.backbone.blocks:
            fully_shard(block)
        fully_shard(model)
        by_name = dict(model.named_parameters())
        groups = [{**g, "params": [by_name[n] for n in m]} for g, m in zip(groups, members)]
        return model, self.inner.prepare(torch.optim.AdamW(groups))
    def no_sync(self, model):
        import contextlib
        return contextlib.nullcontext()

directory = Path(sys.argv[1])
run = tiny(DS4D.with_layer(dropout=0.0))
for stop in (6, 12):  # to the middle, and from its checkpoint to the end
    accelerator = Sharding(training.make_accelerator(run))
    trainer = training.Trainer(run, directory, accelerator, Silent())
    shards = [p for p in trainer.model.parameters() if type(p).__name__ == "DTensor"]
    assert shards and sum(p.to_local().numel() for p in shards) < sum(p.numel() for p in shards)
    while trainer.progress.step < stop:
        trainer.step()
    trainer.save()
    training.barrier_before_exit()
"""


def test_a_sharded_model_trains_as_a_whole_one(tmp_path: Path) -> None:
    script = tmp_path / "sharded.py"
    script.write_text(SHARDED)
    code, _, errors = finish(start(*TWO_PROCESSES, script, tmp_path / "two", environment=IMPORTABLE))
    assert code == 0, errors
    training.train(create(tmp_path / "one", tiny(DS4D.with_layer(dropout=0.0))), Silent())
    a, b = _state(tmp_path / "one"), _state(tmp_path / "two")
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], atol=1e-5, rtol=1e-4)


def _stopped_at(directory: Path, *steps: int) -> None:
    """Train a run with checkpoints at these steps, up to the last of them."""
    run = load(directory)[0]
    trainer = training.Trainer(run, directory, training.make_accelerator(run), Silent())
    while trainer.progress.step < steps[-1]:
        trainer.step()
        if trainer.progress.step in steps:
            trainer.save()


@pytest.mark.parametrize("damage", ["cut", "flipped", "not a checkpoint"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_is_there(tmp_path: Path, damage: str) -> None:
    directory = create(tmp_path / "run", tiny())
    _stopped_at(directory, 2, 3)
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
    assert all(torch.equal(a, b) for a, b in zip(_state(whole).values(), _state(directory).values(), strict=True))


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
    _stopped_at(directory, 4)
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
    _stopped_at(directory, 2, 3)
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


def test_a_loss_that_is_not_a_number_stops_the_run(tmp_path: Path) -> None:
    directory = create(tmp_path, tiny(lr=1e30, clip=None))
    with pytest.raises(FloatingPointError, match="a lower learning rate"):
        training.train(directory, Silent())
    assert read_summary(directory) is None


def test_training_in_a_thread(tmp_path: Path) -> None:
    directory = create(tmp_path, tiny(LSTM))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(training.train, directory, Silent()).result()["steps"] == 12


def test_two_damaged_checkpoints(tmp_path: Path) -> None:
    directory = create(tmp_path, tiny())
    _stopped_at(directory, 2, 3)
    for path in (checkpoint.last(directory), checkpoint.previous(directory)):
        path.write_bytes(b"")
    with pytest.raises(checkpoint.Damaged, match="there is no older checkpoint"):
        training.train(directory, Silent())


def test_one_process_at_a_time(tmp_path: Path) -> None:
    directory = create(tmp_path, tiny())
    with FileLock(directory / ".lock"), pytest.raises(Busy, match="another process is training the run"):
        training.train(directory, Silent())


def test_another_run_is_not_overwritten(tmp_path: Path) -> None:
    create(tmp_path, tiny())
    create(tmp_path, tiny())
    with pytest.raises(FileExistsError, match="holds another run"):
        create(tmp_path, tiny(seed=1))


def test_a_changed_environment_is_mentioned(tmp_path: Path) -> None:
    directory, recorder = create(tmp_path, tiny()), Recorder()
    _stopped_at(directory, 4)
    run, _ = load(directory)
    save(directory, run, {**training.describe(), "torch": "1.0"})
    training.train(directory, recorder)
    assert len(recorder.said) == 1
    assert "torch 1.0 -> " in recorder.said[0]
