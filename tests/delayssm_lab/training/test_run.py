"""What decides a run, written down and read again."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from delayssm_lab.recipes.delayed import LEARNING_RATES, MODELS, TASKS, grid, mini, paper, preset
from delayssm_lab.training import run as runs
from delayssm_lab.training.run import Training
from delayssm_lab.training.schedules import Constant, Cosine, MultiStep
from tests.support.runs import tiny


@pytest.mark.parametrize("scale", ["paper", "mini"])
def test_every_preset_is_read_as_it_was_written(scale: str, tmp_path: Path) -> None:
    for task in TASKS:
        for model in MODELS:
            run = preset(task, model, scale)
            runs.save(tmp_path / run.name, run, {"torch": "1"})
            assert runs.load(tmp_path / run.name) == (run, {"torch": "1"})
    assert len(list(tmp_path.iterdir())) == len(TASKS) * len(MODELS)  # names tell them apart


@pytest.mark.parametrize("schedule", [Constant(), Cosine(warmup=3, final=0.1), MultiStep(at=(0.3, 0.5), decay=0.5)])
def test_every_schedule_is_read_as_it_was_written(schedule: Constant | Cosine | MultiStep, tmp_path: Path) -> None:
    run = tiny(schedule=schedule)
    runs.save(tmp_path, run, {})
    assert runs.load(tmp_path)[0] == run


def test_the_paper_s_settings() -> None:
    for task in TASKS:
        for model in MODELS:
            training = paper(task, model).training
            assert training.batch_size == 64
            assert training.steps == (2000 if task == "copy-fixed" else 8000)
            assert training.weight_decay == 0
            assert training.schedule == Constant()
            assert training.dt_lr == (1e-4 if model.startswith("ds4d") else None)
    assert LEARNING_RATES == (2e-4, 1e-3)
    ds4d = paper("copy-fixed", "ds4d").model
    assert (ds4d.branch_fraction, ds4d.init) == (0.1, "lin")  # type: ignore[union-attr]


def test_mini_has_the_paper_s_tasks_with_narrower_variable_lags() -> None:
    for task in TASKS:
        small, full = mini(task, "ds4d").task, paper(task, "ds4d").task
        assert replace(small, lags=full.lags) == full
        assert small.lags[1] == full.lags[1]
        assert small.lags[0] == full.lags[0] if task.endswith("fixed") else full.lags[0] < small.lags[0] < small.lags[1]


def test_a_grid_is_every_combination() -> None:
    found = grid(["copy-fixed", "sum-fixed"], ["ds4d", "lstm"], "mini", (1e-3, 2e-3), (0, 1, 2))
    assert len({run.name for run in found}) == len(found) == 24
    assert {run.training.lr for run in grid(["copy-fixed"], ["s4d"], "paper")} == {1e-3}


def test_unknown_and_damaged_configurations_are_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a run"):
        runs.load(tmp_path)
    runs.save(tmp_path, tiny(), {})
    path = tmp_path / "config.json"
    good = path.read_text()
    content = json.loads(good)
    content["run"]["training"]["learning_rate"] = 1
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="learning_rate"):
        runs.load(tmp_path)
    content = json.loads(good)
    content["run"]["model"]["kind"] = "Transformer"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="does not describe a run"):
        runs.load(tmp_path)
    path.write_text(good[: len(good) // 2])
    with pytest.raises(ValueError, match="damaged"):
        runs.load(tmp_path)
    path.write_text("[]")
    with pytest.raises(ValueError, match="does not describe a run"):
        runs.load(tmp_path)


def test_schedules() -> None:
    constant = Constant(warmup=3)
    assert [constant.factor(step, 100) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    cosine = Cosine(warmup=1, final=0.2)
    assert cosine.factor(0, 11) == 0.5
    assert cosine.factor(1, 11) == 1.0
    assert cosine.factor(6, 11) == pytest.approx(0.6)
    assert cosine.factor(11, 11) == pytest.approx(0.2)
    steps = MultiStep(at=(0.2, 0.4), decay=0.1)
    assert [steps.factor(step, 10) for step in range(6)] == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


@pytest.mark.parametrize(
    ("setting", "value"),
    [("steps", 0), ("batch_size", 0), ("lr", -1.0), ("lr", float("nan")), ("clip", 0.0), ("rows_at_once", 0)],
)
def test_wrong_settings_are_errors(setting: str, value: float) -> None:
    with pytest.raises(ValueError, match=setting):
        Training(**{"steps": 1, "batch_size": 1, setting: value})  # type: ignore[arg-type]
