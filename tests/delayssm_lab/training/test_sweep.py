"""Tests of sweeps, in a pool of processes and with Ray."""

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from delayssm_lab.display import Silent
from delayssm_lab.training import checkpoint, cluster
from delayssm_lab.training.run import Run
from delayssm_lab.training.sweep import Outcome, prepare, sweep
from tests.support.runs import IMPORTABLE, LSTM, ONE_THREAD, finish, read_metrics, read_summary, start, tiny

FAILING = "lstm-lr1e+30-seed0"


def _runs() -> list[Run]:
    """Return six runs, one of which cannot succeed."""
    good = [tiny(LSTM, seed, lr=lr) for lr in (1e-3, 1e-2) for seed in (0, 1)]
    return [*good, tiny(LSTM, lr=1e30, clip=None), tiny()]


def _check(outcomes: Sequence[Outcome], runs: Sequence[Run], root: Path) -> None:
    assert [outcome.directory for outcome in outcomes] == [root / run.name for run in runs]
    failed = [outcome for outcome in outcomes if outcome.error]
    assert [outcome.directory.name for outcome in failed] == [f"copy-variable-{FAILING}"]
    assert "FloatingPointError: the loss is" in str(failed[0].error)
    assert "log.txt" in str(failed[0].error)
    assert failed[0].summary is None
    for outcome in outcomes:
        if outcome not in failed:
            assert outcome.summary == read_summary(outcome.directory)
            assert outcome.summary["steps"] == 12


@pytest.mark.slow
def test_a_pool_finishes_all_but_the_failing_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    runs = _runs()
    _check(sweep(runs, tmp_path, workers=2), runs, tmp_path)
    shown = capfd.readouterr().out
    assert shown.count("accuracy") > 5
    assert f"{FAILING}: FloatingPointError" in shown
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/summary.json")}
    assert len(before) == 5
    _check(sweep(runs, tmp_path, workers=1), runs, tmp_path)  # only the failed one is tried again
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/summary.json")} == before
    assert "step 12/12" not in capfd.readouterr().out


@pytest.fixture
def _ray_of_two() -> Iterator[None]:
    import ray

    before = os.environ.copy()
    os.environ.update(ONE_THREAD)
    yield
    os.environ.clear()
    os.environ.update(before)
    assert not ray.is_initialized()


@pytest.mark.slow
@pytest.mark.usefixtures("_ray_of_two")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_ray_finishes_all_but_the_failing_one(tmp_path: Path) -> None:
    runs = _runs()
    _check(cluster.sweep(runs, tmp_path, Silent()), runs, tmp_path)


@pytest.mark.parametrize(("gpus", "given", "expected"), [(4, None, 1), (0, None, 0), (4, 0.5, 0.5)])
def test_runs_on_a_cluster_get_a_gpu_each_if_there_are_any(
    gpus: int, given: float | None, expected: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, float]] = []

    def remote(**resources: float) -> object:
        asked.append(resources)
        return lambda train: SimpleNamespace(remote=lambda *arguments: "task")

    ray = SimpleNamespace(
        is_initialized=lambda: True,
        cluster_resources=lambda: {"CPU": 8.0, "GPU": float(gpus)},
        remote=remote,
        wait=lambda tasks, num_returns: (tasks, []),
        get=lambda task: Outcome(tmp_path, error="not trained"),
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    cluster.sweep([tiny()], tmp_path, Silent(), cpus_per_run=2, gpus_per_run=given)
    assert asked == [{"num_cpus": 2, "num_gpus": expected, "max_retries": 0}]


@pytest.mark.parametrize(("chosen", "expected"), [("2,3", ["2", "3"]), (None, ["0", "1"])])
def test_workers_get_the_gpus_that_the_user_chose(
    chosen: str | None, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if chosen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    shows = "import os, sys; sys.exit(os.environ['CUDA_VISIBLE_DEVICES'])"
    monkeypatch.setattr("delayssm_lab.training.sweep.worker_command", ["-c", shows])
    outcomes = sweep([tiny(LSTM, seed) for seed in range(2)], tmp_path)
    assert [str(outcome.error).split(" (see")[0] for outcome in outcomes] == expected


def test_what_a_worker_prints_goes_to_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    prints = """
import sys
print("loading my data")
print('{"message": 7}')
from delayssm_lab.training import worker
sys.exit(worker.main(sys.argv[1:]))
"""
    monkeypatch.setattr("delayssm_lab.training.sweep.worker_command", ["-c", prints])
    (outcome,) = sweep([tiny(LSTM)], tmp_path, workers=1)
    assert outcome.summary is not None
    assert (outcome.directory / "log.txt").read_text() == 'loading my data\n{"message": 7}\n'
    assert "step 12/12" in capfd.readouterr().out


def test_the_error_of_a_worker_is_not_what_it_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = "print('loading my data'); raise ValueError('no data')"
    monkeypatch.setattr("delayssm_lab.training.sweep.worker_command", ["-c", fails])
    (outcome,) = sweep([tiny(LSTM)], tmp_path, workers=1)
    assert str(outcome.error).startswith("ValueError: no data (see")


def test_an_error_lets_the_other_workers_save(tmp_path: Path) -> None:
    short, long = tiny(LSTM, steps=1), tiny(LSTM, seed=1, steps=100_000, checkpoint_every=100_000)
    other = tmp_path / long.name

    def fail(directory: Path) -> None:
        deadline = time.monotonic() + 120
        while not ((other / "metrics.jsonl").exists() and read_metrics(other)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        sweep([short, long], tmp_path, workers=2, finished=fail)
    assert not _workers(tmp_path)
    assert checkpoint.read(checkpoint.last(other)).progress.step > 0


INTERRUPTED = """
import sys
from pathlib import Path
from delayssm_lab.training.interrupt import Interrupted
from delayssm_lab.training.sweep import sweep
from tests.support.runs import LSTM, tiny
runs = [tiny(LSTM, seed, steps=100_000) for seed in range(3)]
try:
    sweep(runs, Path(sys.argv[1]), workers=2)
except Interrupted as interrupted:
    print(interrupted)
    sys.exit(130)
"""


def test_ctrl_c_lets_each_worker_save(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED)
    root = tmp_path / "runs"
    process = start(script, root, environment=IMPORTABLE)
    deadline = time.monotonic() + 120
    while len(list(root.glob("*/last/training.safetensors"))) < 2:
        assert process.poll() is None, finish(process)
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    code, out, errors = finish(process)
    assert code == 130, errors
    assert "0 of 3 runs are finished" in out
    for directory in root.iterdir():
        assert not (directory / "log.txt").exists() or (directory / "log.txt").read_text() == ""
    assert not _workers(root)


def _workers(root: Path) -> list[str]:
    """Return the commands of processes that are still training below `root`."""
    if sys.platform != "linux":
        return []
    commands = [path.read_bytes().decode() for path in Path("/proc").glob("[0-9]*/cmdline") if _readable(path)]
    return [command for command in commands if "delayssm_lab.training.worker" in command and str(root) in command]


def _readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:  # it has just ended
        return False
    return True


def test_runs_need_directories_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="several runs have the directory"):
        prepare([tiny(), tiny(steps=13)], tmp_path)
    prepare([tiny()], tmp_path)
    with pytest.raises(FileExistsError, match=r"holds another run .*training\.steps is 12 there and 13 here.*--out"):
        prepare([replace(tiny(), label="DS4D", training=tiny(steps=13).training)], tmp_path)


@pytest.mark.parametrize("workers", [0, -3])
def test_there_is_at_least_one_worker(workers: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"workers must be at least 1, or None, not {workers}"):
        sweep([tiny(LSTM)], tmp_path, workers)
    assert not list(tmp_path.iterdir())


def test_the_place_of_a_sweep_may_be_a_string(tmp_path: Path) -> None:
    (outcome,) = sweep([tiny(LSTM, steps=1)], str(tmp_path), workers=1)
    assert outcome.directory == tmp_path / tiny(LSTM).name
    assert outcome.summary is not None
