"""A killed process loses nothing that it had saved, and leaves nothing that it had only begun to write."""

import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest
import torch

from delayssm import DS4D
from delayssm.storage import model_files
from delayssm.storage import tensors as tensor_file
from delayssm_lab.training import checkpoint
from tests.kills import saver
from tests.kills.victims import kill
from tests.support.runs import IMPORTABLE, finish, read_metrics, run, start

#: Kills of a process that trains. The environment variable raises the number; the run grows with it.
TRAINING_KILLS = int(os.environ.get("DELAYSSM_KILLS", "40"))
#: Kills of a process that saves.
SAVING_KILLS = TRAINING_KILLS // 2
#: Steps of training between two kills, at least: more than a process takes from its first checkpoint to its end.
STEPS_PER_KILL = 60
SETTINGS = (
    "copy-fixed", "lstm", "--lags", 6, 8, "--data-length", 4, "--vocab-size", 12, "--d-model", 8, "--depth", 1,
    "--batch-size", 4, "--evaluate-every", 20, "--checkpoint-every", 2, "--validation-size", 4, "--target", "None",
    "--steps", STEPS_PER_KILL * TRAINING_KILLS,
)  # fmt: skip
TIMES = {"seconds", "step_seconds", "cpu_seconds", "tokens_per_second"}

pytestmark = pytest.mark.slow


def _command(kills: int, directory: Path) -> tuple[object, ...]:
    """Return the arguments that start or continue a run, in turn the two that do so."""
    arguments = ("train", *SETTINGS, "--out", directory) if kills % 2 == 0 else ("resume", directory)
    return "-m", "delayssm_lab", *arguments


def _timeless(content: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in content.items() if name not in TIMES}


def _states(directory: Path) -> list[tuple[dict[str, torch.Tensor], dict[str, float]]]:
    last, best = checkpoint.read(checkpoint.last(directory)), model_files.read(checkpoint.best(directory))
    return [(last.tensors, _timeless(vars(last.progress))), (best.tensors, best.about)]


def _age(directory: Path) -> int:
    """Return when the last checkpoint was written; 0 if there is none, as between two moves of files."""
    try:
        return checkpoint.last(directory).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def test_training(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    moment, moments = random.Random(0), Counter[str]()
    code, _, errors = run(*_command(0, whole))
    assert code == 0, errors
    while moments.total() < TRAINING_KILLS:
        before = _age(killed)
        process = start(*_command(moments.total() if (killed / "config.json").exists() else 0, killed))
        began = lambda before=before: _age(killed) > before  # noqa: E731
        moments[kill(process, began, killed, moment)] += 1
        assert not (killed / "summary.json").exists(), "the run has ended too early"
    assert set(moments) == {"beginning", "working", "writing"}
    code, _, errors = run(*_command(1, killed))
    assert code == 0, errors
    for (mine, my_progress), (theirs, their_progress) in zip(_states(killed), _states(whole), strict=True):
        assert my_progress == their_progress
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert [_timeless(entry) for entry in read_metrics(killed)] == [_timeless(entry) for entry in read_metrics(whole)]
    ends = [_timeless(json.loads((place / "summary.json").read_text())) for place in (killed, whole)]
    assert ends[0] == ends[1]
    found = [sorted(str(path.relative_to(place)) for path in place.rglob("*")) for place in (killed, whole)]
    assert found[0] == found[1]


def test_saving(tmp_path: Path) -> None:
    moment, moments, counts = random.Random(1), Counter[str](), [0, 0]
    script = "-m", "tests.kills.saver", tmp_path
    while moments.total() < SAVING_KILLS:
        process = start(*script, 10**9, environment=IMPORTABLE)
        began = lambda before=counts: _counts(tmp_path) != before  # noqa: E731
        moments[kill(process, began, tmp_path, moment)] += 1
        found = _counts(tmp_path)
        assert all(now >= before for now, before in zip(found, counts, strict=True))
        counts = found
    assert {"working", "writing"} <= set(moments)
    assert min(counts) > 0
    code, _, errors = finish(start(*script, 3, environment=IMPORTABLE))
    assert code == 0, errors
    assert _counts(tmp_path) == [counts[0] + 3] * 2  # it goes on from the streams, which are saved last
    assert sorted(path.name for path in tmp_path.iterdir()) == [saver.STREAMS, saver.WEIGHTS]


def _counts(directory: Path) -> list[int]:
    """Return how often the streams and the weights have been saved; every file that is there must be complete."""
    counts = [0, 0]
    if (directory / saver.STREAMS).exists():
        state = saver.model().load_state(directory / saver.STREAMS)
        assert len(state.position.unique()) == 1
        counts[0] = int(state.position[0])
    if (directory / saver.WEIGHTS).exists():
        values = [t.unique() for t in tensor_file.read(directory / saver.WEIGHTS, saver.KIND)[0].values()]
        assert len(torch.cat(values).unique()) == 1
        assert len(values) == len(DS4D(8, 4, max_delay=4).state_dict())
        counts[1] = int(values[0])
    return counts
