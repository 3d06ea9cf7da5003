"""Studies of the general benchmarks at toy size."""

from dataclasses import replace
from pathlib import Path

import pytest

from delayssm.layers.block import BlockConfig
from delayssm.layers.layer import DS4DConfig, S4DConfig
from delayssm_lab.data.catalogue import load
from delayssm_lab.data.published.speech_commands import WORDS
from delayssm_lab.display import Silent
from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.recipes.general import SMALL
from delayssm_lab.report import reported
from delayssm_lab.studies.general import General
from delayssm_lab.studies.general import small_runs as general_runs
from delayssm_lab.studies.listening import Listening
from delayssm_lab.studies.pathfinder_images import PathfinderImages, original_images
from delayssm_lab.studies.speech import Speech
from delayssm_lab.studies.speech import small_runs as speech_runs
from delayssm_lab.studies.trained import Trained
from delayssm_lab.study import Places
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


def _train(study: Trained, places: Places) -> None:
    """Train the runs of a study in this process."""
    for run in study.runs:
        training.train(create(places.work / study.shelf.name / run.name, run), Silent())
    study.run(places)  # nothing is left to train


def _table(places: Places, study: Trained) -> list[list[str]]:
    return table_rows((places.results / study.name / "table.md").read_bytes())


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """Directories of a test."""
    return Places(tmp_path / "work", tmp_path / "results")


@pytest.mark.usefixtures("data")
def test_general(places: Places) -> None:
    study = General(_runs())
    _train(study, places)
    study.write(places)
    out = places.results / "general"
    assert {path.name for path in out.iterdir()} == {"table.md", "curves.png", "about.json"}
    ds4d = [study.shelf.store(places).find(run) for run in study.runs[1:]]
    errors = [record.summary["test_rmse"] for record in ds4d if record is not None and record.summary is not None]
    rows = {label: cells for label, *cells in _table(places, study)}
    results = ["S4D, small run", "DS4D, small run", "S4D, paper", "DS4D, paper"]
    times = ["DS4D, small run, minutes", "DS4D, paper, hours"]
    assert rows["task"] == ["chance level", *results, *times, "differs from the paper's run"]
    assert set(rows) >= {"sMNIST, %", "BIDMC-HR, RMSE"}
    assert rows["BIDMC-HR, RMSE"][2].startswith(f"{sum(errors) / 2:.3f} ± ")
    assert rows["BIDMC-HR, RMSE"][1] == rows["sMNIST, %"][2] == "–"
    assert rows["BIDMC-HR, RMSE"][0] == f"{BIDMC('HR').chance_level():.3f}"
    assert rows["sMNIST, %"][-1] == SMALL["smnist"].differs
    assert rows["sMNIST, %"][5:7] == ["–", "0.3"]
    assert rows["BIDMC-HR, RMSE"][5:7] == ["0", "2.8"]
    assert rows["sMNIST, %"][3:5] == [reported.GENERAL[model]["sMNIST"] for model in ("S4D", "DS4D")]
    changed = General(tuple(replace(run, seed=run.seed + 7) for run in _runs()))
    assert changed.progress(places) == (0, 3)


@pytest.mark.usefixtures("data")
def test_speech(places: Places) -> None:
    task = SpeechCommands(pooling="last", every=100)
    how = Training(steps=1, batch_size=2)
    runs = [Run(task=task, model=_ds4d(task.max_length), training=how, label=label) for label in ("", "DS4D, other")]
    study = Speech(tuple(runs))
    _train(study, places)
    study.write(places)
    head, _, *rows = _table(places, study)
    assert head == ["model", "SC (AR), %"]
    records = [study.shelf.store(places).find(run) for run in runs]
    assert rows == [
        [record.run.model_label, f"{100 * record.summary['test_accuracy']:.2f}"]
        for record in records
        if record is not None and record.summary is not None
    ]


def test_what_is_planned() -> None:
    runs = general_runs()
    assert len(runs) == len({run.name for run in runs}) == 24
    for run in runs:
        assert all(run.task.label in numbers for numbers in reported.GENERAL.values())
    speech = speech_runs()
    assert len(speech) == len({run.name for run in speech})
    shared = {run for run in speech if run in runs}
    assert {run.name for run in shared} == {run.name for run in runs if run.task.label.startswith("SC")}


def test_pathfinder_images(tmp_path: Path) -> None:
    assert original_images().shape == (32, 32, 32)
    files = dict(PathfinderImages().files(Places(tmp_path, tmp_path)))
    assert set(files) == {"pathfinder.png", "path-x.png"}
    assert all(content.startswith(b"\x89PNG") for content in files.values())


@pytest.mark.usefixtures("data")
def test_listening(places: Places) -> None:
    task = SpeechCommands(pooling="last", every=100)
    how = Training(steps=1, batch_size=2)
    run = Run(task=task, model=_ds4d(task.max_length), training=how)
    word = WORDS[load("speech-commands")["test_y"][0]]
    study = Listening((run,), words=(word,))
    _train(study, places)
    study.write(places)
    assert (places.results / study.name / f"{word}.png").read_bytes().startswith(b"\x89PNG")
