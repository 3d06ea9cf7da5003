"""Studies of the general benchmarks at toy size."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from delayssm_lab.data.catalogue import load
from delayssm_lab.data.published.speech_commands import WORDS
from delayssm_lab.display import Silent
from delayssm_lab.models import specs
from delayssm_lab.recipes.general import BENCHMARKS, mini
from delayssm_lab.studies import paper
from delayssm_lab.studies.branch_fraction import LABEL, WIDE, BranchFraction, spaced
from delayssm_lab.studies.general import TWICE, General, mini_runs
from delayssm_lab.studies.listening import Listening
from delayssm_lab.studies.pathfinder_images import Samples, original_images
from delayssm_lab.studies.trained import Trained
from delayssm_lab.tasks.images import SequentialMNIST
from delayssm_lab.tasks.signals import BIDMC, SpeechCommands
from delayssm_lab.training import trainer as training
from delayssm_lab.training.run import Run, Training
from tests.support.runs import create

pytestmark = pytest.mark.usefixtures("one_thread")


def _runs() -> tuple[Run, ...]:
    how = Training(steps=2, batch_size=4, evaluate_every=1)
    sizes = {"d_model": 4, "depth": 1, "d_state": 2}
    ds4d, s4d = specs.DS4D(**sizes), specs.S4D(**sizes)  # type: ignore[arg-type]
    heart = [Run(task=BIDMC("HR", every=50), model=ds4d, training=how, seed=seed) for seed in (0, 1)]
    return (Run(task=SequentialMNIST(), model=s4d, training=how), *heart)


def _train(study: Trained, work: Path) -> None:
    """As `study.run` would, but in this process."""
    for run in study.runs:
        training.train(create(work / study.root / run.name, run), Silent())
    study.run(work)  # nothing is left to do


@pytest.mark.usefixtures("data")
def test_general(tmp_path: Path) -> None:
    study, work, out = General(_runs()), tmp_path / "work", tmp_path / "out"
    _train(study, work)
    study.write(work, out)
    assert {path.name for path in out.iterdir()} == {"table.md", "curves.png", "runs.json", "about.json"}
    records = json.loads((out / "runs.json").read_text())
    mine = [record["summary"] for record in records if record["run"]["model"]["kind"] == "DS4D"]
    errors = [summary["test_rmse"] for summary in mine if "test_rmse" in summary]
    table = (out / "table.md").read_text()
    rows = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]] for line in table.splitlines()}
    assert set(rows) >= {"sMNIST, %", "BIDMC-HR, RMSE"}
    assert rows["BIDMC-HR, RMSE"][2].startswith(f"{sum(errors) / 2:.3f} ± ")
    assert rows["BIDMC-HR, RMSE"][0] == f"{BIDMC('HR').chance_level():.3f}"
    assert rows["sMNIST, %"][3:] == list(paper.GENERAL["sMNIST"])

    other = tmp_path / "other"  # a machine that has done nothing
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
    """Runs that the other study has finished are not run again, on another machine either."""
    _, before, _ = _runs()
    runs = before, spaced(before)
    first, study = General((before,)), BranchFraction(runs)
    _train(first, tmp_path / "work")
    first.write(tmp_path / "work", tmp_path / "out" / "general")
    other, out = tmp_path / "other", tmp_path / "out" / study.name
    study.adopt(out, other)
    assert study.progress(other) == (1, 2)
    training.train(create(other / study.root / runs[1].name, runs[1]), Silent())
    study.write(other, out)
    head, _, row = (line.split("|")[1:-1] for line in (out / "table.md").read_text().splitlines())
    found = dict(zip(map(str.strip, head), map(str.strip, row), strict=True))
    errors = [f"{training.read_summary(other / study.root / run.name)['test_rmse']:.3f}" for run in runs]
    assert found == {
        "task": "BIDMC-HR, RMSE",
        "S4D": "not run",
        "DS4D": errors[0],
        LABEL: errors[1],
        "p of DS4D": "0.1",
        "H/L": "0.05",  # 4 channels, 80 times
    }
    third = tmp_path / "third"
    study.adopt(out, third)
    assert study.progress(third) == (2, 2)


def test_where_delays_are_far_apart() -> None:
    """The study has all small runs with delays on a grid of at least 2/p steps, but for Path-X, and no others."""
    ratios = {}
    for name in BENCHMARKS:
        run = mini(name, "ds4d")
        if run.model.delays is None:
            ratios[name] = run.model.branch_fraction * run.task.max_length / run.model.d_model
    assert {name for name, ratio in ratios.items() if ratio >= 2} - {"path-x"} == set(WIDE)


def test_what_is_planned() -> None:
    runs = mini_runs()
    assert len(runs) == len({run.name for run in runs}) == 2 * (12 + len(TWICE))
    for run in runs:
        assert run.task.label in paper.GENERAL


def test_images_beside_the_original_s(tmp_path: Path) -> None:
    assert original_images().shape == (32, 32, 32)
    files = dict(Samples().files(tmp_path))
    assert set(files) == {"pathfinder.png", "path-x.png"}
    assert all(content.startswith(b"\x89PNG") for content in files.values())


@pytest.mark.usefixtures("data")
def test_listening(tmp_path: Path) -> None:
    task = SpeechCommands(pooling="last", every=100)
    how = Training(steps=1, batch_size=2)
    run = Run(task=task, model=specs.DS4D(d_model=4, depth=1, d_state=2), training=how)
    word = WORDS[load("speech-commands")["test_y"][0]]
    study = Listening((run,), words=(word,))
    _train(study, tmp_path)
    study.write(tmp_path, tmp_path / "out")
    assert (tmp_path / "out" / f"{word}.png").read_bytes().startswith(b"\x89PNG")
    (record,) = json.loads((tmp_path / "out" / "runs.json").read_text())
    assert record["summary"] == training.read_summary(tmp_path / study.root / run.name)
