"""Tests of runs: presets, settings, schedules, and config.json."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from delayssm import param_groups
from delayssm.layers.layer import DS4DConfig
from delayssm_lab.models.specs import Spec, StateSpaceSpec
from delayssm_lab.recipes.delayed import (
    LEARNING_RATES,
    MODELS,
    TASKS,
    ModelName,
    Scale,
    grid,
    models_of,
    paper,
    preset,
    small,
)
from delayssm_lab.training import run as runs
from delayssm_lab.training.run import Training
from delayssm_lab.training.schedules import Constant, Cosine, MultiStep
from tests.support.runs import DS4D, LSTM, tiny

_TOKENS = {"kind": "Tokens", "vocab_size": 5, "d_model": 8}


@pytest.mark.parametrize("scale", ["paper", "small"])
def test_every_preset_is_read_as_it_was_written(scale: str, tmp_path: Path) -> None:
    models = models_of(scale)
    for task in TASKS:
        for model in models:
            run = preset(task, model, scale)
            runs.save(tmp_path / run.name, run, {"torch": "1"})
            assert runs.load(tmp_path / run.name) == (run, {"torch": "1"})
    assert len(list(tmp_path.iterdir())) == len(TASKS) * len(models)  # names tell them apart


@pytest.mark.parametrize("schedule", [Constant(), Cosine(warmup=3, final=0.1), MultiStep(at=(0.3, 0.5), decay=0.5)])
def test_every_schedule_is_read_as_it_was_written(schedule: Constant | Cosine | MultiStep, tmp_path: Path) -> None:
    run = tiny(schedule=schedule)
    runs.save(tmp_path, run, {})
    assert runs.load(tmp_path)[0] == run


def test_the_paper_s_settings() -> None:
    for task in TASKS:
        for model in MODELS:
            run = paper(task, model)
            training = run.training
            assert training.batch_size == 64
            assert training.steps == (2000 if task == "copy-fixed" else 8000)
            assert training.weight_decay == 0
            assert training.schedule == Constant()
            assert training.dt_lr is None
            with torch.device("meta"):
                built = run.build()
            for lr in LEARNING_RATES:
                rates = {group["name"]: group["lr"] for group in param_groups(built, lr)}
                step_size = {"step_size": 1e-4} if model.startswith("ds4d") else {"step_size": lr}
                dynamics = {"dynamics": lr, "output": lr, **step_size} if "s4d" in model else {}
                assert rates == {"main": lr, "no_decay": lr, **dynamics}
    assert LEARNING_RATES == (2e-4, 1e-3)
    ds4d = paper("copy-fixed", "ds4d").model
    assert isinstance(ds4d, StateSpaceSpec)
    assert isinstance(ds4d.layer, DS4DConfig)
    assert (ds4d.layer.branch_fraction, ds4d.layer.init) == (0.1, "lin")


@pytest.mark.parametrize(("scale", "model"), [("paper", "ds4d"), ("paper", "ds4d-narrow"), ("small", "ds4d")])
def test_delays_reach_the_length_of_the_sequences(scale: Scale, model: ModelName) -> None:
    for task in TASKS:
        run = preset(task, model, scale)
        assert isinstance(run.model, StateSpaceSpec)
        assert run.model == run.model.with_delays_up_to(run.task.max_length)


def test_small_tasks_are_a_quarter_of_the_paper_s_with_as_many_lags() -> None:
    for task in TASKS:
        little, full = small(task, "ds4d").task, paper(task, "ds4d").task
        assert little.lags[1] - little.lags[0] == full.lags[1] - full.lags[0]
        assert (4 * little.lags[1], 4 * little.data_length) == (full.lags[1], full.data_length)
        assert 4 * len(little.mapping.weights()) == len(full.mapping.weights()) or task.startswith("copy")


def test_the_narrow_model_exists_at_the_paper_s_size_only() -> None:
    with pytest.raises(ValueError, match=r"ds4d-narrow.*choose --scale paper"):
        preset("copy-fixed", "ds4d-narrow", "small")


def test_a_grid_is_every_combination() -> None:
    runs_ = grid(["copy-fixed", "sum-fixed"], ["ds4d", "lstm"], "small", (1e-3, 2e-3), (0, 1, 2))
    assert len({run.name for run in runs_}) == len(runs_) == 24
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
    with pytest.raises(ValueError, match=r"does not describe a run.*StateSpaceSpec.*not 'Transformer' @ run\.model"):
        runs.load(tmp_path)
    path.write_text(good[: len(good) // 2])
    with pytest.raises(ValueError, match="damaged"):
        runs.load(tmp_path)
    path.write_text("[]")
    with pytest.raises(ValueError, match=r"config\.json is damaged \(it is no JSON object\)"):
        runs.load(tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        {"contour": "paper"},
        {"branch_fraction": (0.01, 0.5)},
        {"contour": "float32", "delays": 7.0, "init": "inv", "input": "absorbed"},
    ],
    ids=lambda options: ", ".join(options),
)
def test_options_of_the_layers_are_read_as_they_were_written(options: dict[str, Any], tmp_path: Path) -> None:
    run = tiny(DS4D.with_layer(**options))
    runs.save(tmp_path, run, {})
    loaded, _ = runs.load(tmp_path)
    assert loaded == run
    assert isinstance(loaded.model, StateSpaceSpec)
    assert {name: getattr(loaded.model.layer, name) for name in options} == options
    assert loaded != tiny()


def _layer(content: Any) -> dict[str, Any]:
    layer: dict[str, Any] = content["model"]["block"]["layer"]
    return layer


@pytest.mark.parametrize(
    ("spec", "damage", "message"),
    [
        (DS4D, lambda c: _layer(c).update(colour=1), r"DS4D has no option colour.* @ run\.model\.block"),
        (DS4D, lambda c: _layer(c).pop("d_model"), r"DS4D lacks d_model @ run\.model\.block"),
        (DS4D, lambda c: _layer(c).update(kind="S5"), r"'S5'.* @ run\.model\.block"),
        (DS4D, lambda c: _layer(c).update(kind="TokenModel"), r"TokenModel.* @ run\.model\.block"),
        (DS4D, lambda c: c["model"]["block"].update(layer=_TOKENS), r"must be S4D or DS4D, not Tok.* @ run\.model"),
        (DS4D, lambda c: _layer(c).update(contour="round"), r'contour must be "exact", .*not \'round\''),
        (DS4D, lambda c: _layer(c).update(d_state="4"), r"d_state of DS4D must be of type int, not '4'"),
        (DS4D, lambda c: c["model"]["block"].pop("kind"), r"None.* @ run\.model\.block"),
        (DS4D, lambda c: c["model"].update(width=8), r"extra fields found \(width\) @ run\.model"),
        (DS4D, lambda c: c["model"].pop("depth"), r"required field missing @ run\.model\.depth"),
        (DS4D, lambda c: c["model"].pop("kind"), r"kind must be one of StateSpaceSpec, .*not None @ run\.model"),
        (LSTM, lambda c: c["model"].update(heads=2), r"extra fields found \(heads\) @ run\.model"),
        (LSTM, lambda c: c["model"].pop("d_model"), r"required field missing @ run\.model\.d_model"),
        (LSTM, lambda c: c.update(model=[]), r"kind must be one of .*not None @ run\.model"),
    ],
)
def test_wrong_options_of_a_model_are_one_error(
    spec: Spec, damage: Callable[[Any], object], message: str, tmp_path: Path
) -> None:
    runs.save(tmp_path, tiny(spec), {})
    path = tmp_path / "config.json"
    content = json.loads(path.read_text())
    damage(content["run"])
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))} does not describe a run .*: .*{message}"):
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
    [
        ("steps", 0),
        ("batch_size", 0),
        ("lr", -1.0),
        ("lr", float("nan")),
        ("clip", 0.0),
        ("rows_at_once", 0),
        ("weight_decay", -0.1),
        ("weight_decay", float("nan")),
        ("target", float("nan")),
    ],
)
def test_wrong_settings_are_errors(setting: str, value: float) -> None:
    with pytest.raises(ValueError, match=setting):
        Training(**{"steps": 1, "batch_size": 1, setting: value})  # type: ignore[arg-type]


def test_a_task_that_runs_do_not_know_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(
        TypeError, match=r"str is not a task of this package; pass it to delayssm_lab\.cli\.main in a script"
    ):
        runs.save(tmp_path / "run", replace(tiny(), task="copy"), {})  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constant(warmup=-1), "warmup must be at least 0, not -1"),
        (lambda: Cosine(warmup=-1), "warmup must be at least 0, not -1"),
        (lambda: Cosine(final=float("nan")), "final must be a number of at least 0, not nan"),
        (lambda: MultiStep(at=(0.5,), warmup=-2), "warmup must be at least 0, not -2"),
        (lambda: MultiStep(at=(0.5,), decay=0.0), "decay must be a positive number, not 0"),
    ],
)
def test_wrong_schedules_are_errors(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda c: c["training"].update(steps="12"), r"must be of type int, not '12' @ run\.training\.steps"),
        (lambda c: c["training"].update(steps=1.5), r"must be of type int, not 1\.5 @ run\.training\.steps"),
        (lambda c: c["training"].update(decay_output="false"), r"must be of type bool, not 'false' @ .*decay_output"),
        (lambda c: c["training"].update(lr="fast"), r"must be of type float, not 'fast' @ run\.training\.lr"),
        (lambda c: c["training"].update(lr=-1), r"lr must be a positive number, not -1"),
        (lambda c: c.update(seed=True), r"must be of type int, not True @ run\.seed"),
        (lambda c: c.update(seed=-1), r"seed must be at least 0"),
        (lambda c: c["task"].update(lags=[8, 6]), r"lags must be two numbers of at least 0.* @ run\.task"),
    ],
)
def test_the_reason_of_a_wrong_value_is_told(damage: Callable[[Any], object], message: str, tmp_path: Path) -> None:
    runs.save(tmp_path, tiny(), {})
    path = tmp_path / "config.json"
    content = json.loads(path.read_text())
    damage(content["run"])
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))} does not describe a run .*: .*{message}"):
        runs.load(tmp_path)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("copy", "ds4d", "small"), "there is no task 'copy'; there are copy-fixed, copy-variable, "),
        (("copy-fixed", "s5", "small"), "there is no model 's5'; there are ds4d, "),
        (("copy-fixed", "ds4d", "big"), "there is no scale 'big'; there are small, paper"),
    ],
)
def test_names_that_are_unknown(names: tuple[Any, Any, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        grid([names[0]], [names[1]], names[2])
