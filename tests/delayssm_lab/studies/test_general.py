"""Studies of the general benchmarks at toy size."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from delayssm.layers.block import BlockConfig
from delayssm.layers.layer import DS4DConfig, S4DConfig
from delayssm_lab.data.catalogue import load
from delayssm_lab.data.published.speech_commands import WORDS
from delayssm_lab.display import Silent
from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.recipes.general import BENCHMARKS, MINI, mini
from delayssm_lab.report import reported
from delayssm_lab.studies.branch_fraction import COARSE_GRIDS, LABEL, BranchFraction, with_matched_fraction
from delayssm_lab.studies.general import TWO_SEEDS, General, mini_runs
from delayssm_lab.studies.listening import Listening
from delayssm_lab.studies.pathfinder_images import PathfinderImages, original_images
from delayssm_lab.studies.trained import Trained
from delayssm_lab.tasks.images import SequentialMNIST
from delayssm_lab.tasks.signals import BIDMC, SpeechCommands
from delayssm_lab.training import trainer as training
from delayssm_lab.training.run import Run, Training
from tests.support.runs import create
from tests.support.studies import table_rows

pytestmark = pytest.mark.usefixtures("one_thread")


def _ds4d(max_delay: int) -> StateSpaceSpec:
    return StateSpaceSpec(depth=1, block=BlockConfig(layer=DS4DConfig(4, 2, max_delay)))


def _runs() -> tuple[Run, ...]:
    how = Training(steps=2, batch_size=4, evaluate_every=1)
    s4d = StateSpaceSpec(depth=1, block=BlockConfig(layer=S4DConfig(4, 2)))
    task = BIDMC("HR", every=50)
    heart_rate = [Run(task=task, model=_ds4d(task.max_length), training=how, seed=seed) for seed in (0, 1)]
    return (Run(task=SequentialMNIST(), model=s4d, training=how), *heart_rate)


def _train(study: Trained, work: Path) -> None:
    """Train the runs of a study in this process."""
    for run in study.runs:
        training.train(create(work / study.root / run.name, run), Silent())
    study.run(work)  # nothing is left to do


def _table(path: Path) -> list[list[str]]:
    return table_rows((path / "table.md").read_bytes())


@pytest.mark.usefixtures("data")
def test_general(tmp_path: Path) -> None:
    study, work, out = General(_runs()), tmp_path / "work", tmp_path / "out"
    _train(study, work)
    study.write(work, out)
    assert {path.name for path in out.iterdir()} == {"table.md", "curves.png", "runs.json", "about.json"}
    records = json.loads((out / "runs.json").read_text())
    ds4d = [record["summary"] for record in records if record["run"]["model"]["block"]["layer"]["kind"] == "DS4D"]
    errors = [summary["test_rmse"] for summary in ds4d if "test_rmse" in summary]
    rows = {label: cells for label, *cells in _table(out)}
    results = ["S4D, mini run", "DS4D, mini run", "S4D, paper", "DS4D, paper"]
    assert rows["task"] == ["chance level", *results, "differs from the paper's run"]
    assert set(rows) >= {"sMNIST, %", "BIDMC-HR, RMSE"}
    assert rows["BIDMC-HR, RMSE"][2].startswith(f"{sum(errors) / 2:.3f} ± ")
    assert rows["BIDMC-HR, RMSE"][1] == rows["sMNIST, %"][2] == "–"
    assert rows["BIDMC-HR, RMSE"][0] == f"{BIDMC('HR').chance_level():.3f}"
    assert rows["sMNIST, %"][-1] == MINI["smnist"].differs
    assert rows["sMNIST, %"][3:-1] == [reported.GENERAL[model]["sMNIST"] for model in ("S4D", "DS4D")]

    other = tmp_path / "other"  # a machine without any runs
    study.adopt(out, other)
    assert study.progress(other) == (3, 3)
    study.write(other, tmp_path / "again")
    for name in ("table.md", "runs.json"):
        assert (tmp_path / "again" / name).read_text() == (out / name).read_text()
    changed = General(tuple(replace(run, seed=run.seed + 7) for run in _runs()))
    changed.adopt(out, tmp_path / "third")
    assert changed.progress(tmp_path / "third") == (0, 3)


@pytest.mark.usefixtures("data")
def test_branch_fraction(tmp_path: Path) -> None:
    """Runs that the study "general" has finished are not run again, not even on another machine."""
    _, before, _ = _runs()
    runs = before, with_matched_fraction(before)
    first, study = General((before,)), BranchFraction(runs)
    _train(first, tmp_path / "work")
    first.write(tmp_path / "work", tmp_path / "out" / "general")
    other, out = tmp_path / "other", tmp_path / "out" / study.name
    study.adopt(out, other)
    assert study.progress(other) == (1, 2)
    training.train(create(other / study.root / runs[1].name, runs[1]), Silent())
    study.write(other, out)
    head, _, row = _table(out)
    errors = [f"{training.read_summary(other / study.root / run.name)['test_rmse']:.3f}" for run in runs]
    assert dict(zip(head, row, strict=True)) == {  # no column for S4D, which has no run
        "task": "BIDMC-HR, RMSE",
        "DS4D": errors[0],
        LABEL: errors[1],
        "p of DS4D": "0.1",
        "H/L": "0.05",  # 4 channels, 80 steps
    }
    third = tmp_path / "third"
    study.adopt(out, third)
    assert study.progress(third) == (2, 2)


def test_where_delays_are_far_apart() -> None:
    """The study has exactly the mini runs with delays on a grid at least 2/p steps apart, except Path-X."""
    ratios = {}
    for name in BENCHMARKS:
        run = mini(name, "ds4d")
        layer = run.model.layer
        if layer.delays == "grid":
            ratios[name] = layer.branch_fraction * run.task.max_length / layer.d_model
    assert {name for name, ratio in ratios.items() if ratio >= 2} - {"path-x"} == set(COARSE_GRIDS)


def test_what_is_planned() -> None:
    runs = mini_runs()
    assert len(runs) == len({run.name for run in runs}) == 2 * (12 + len(TWO_SEEDS))
    for run in runs:
        assert all(run.task.label in numbers for numbers in reported.GENERAL.values())


def test_pathfinder_images(tmp_path: Path) -> None:
    assert original_images().shape == (32, 32, 32)
    files = dict(PathfinderImages().files(tmp_path))
    assert set(files) == {"pathfinder.png", "path-x.png"}
    assert all(content.startswith(b"\x89PNG") for content in files.values())


@pytest.mark.usefixtures("data")
def test_listening(tmp_path: Path) -> None:
    task = SpeechCommands(pooling="last", every=100)
    how = Training(steps=1, batch_size=2)
    run = Run(task=task, model=_ds4d(task.max_length), training=how)
    word = WORDS[load("speech-commands")["test_y"][0]]
    study = Listening((run,), words=(word,))
    _train(study, tmp_path)
    study.write(tmp_path, tmp_path / "out")
    assert (tmp_path / "out" / f"{word}.png").read_bytes().startswith(b"\x89PNG")
    (record,) = json.loads((tmp_path / "out" / "runs.json").read_text())
    assert record["summary"] == training.read_summary(tmp_path / study.root / run.name)
