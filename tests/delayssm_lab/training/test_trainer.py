"""Tests of training: what a run does, and what it leaves."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from delayssm.layers.block import BlockConfig
from delayssm.layers.layer import DS4DConfig
from delayssm_lab.display import Silent, Status
from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.tasks.task import Split
from delayssm_lab.training import evaluate
from delayssm_lab.training import trainer as training
from delayssm_lab.training.run import load, save
from tests.support import runs
from tests.support.runs import (
    DS4D,
    TASK,
    create,
    read_metrics,
    read_summary,
    tiny,
)

pytestmark = pytest.mark.usefixtures("one_thread")


class Recorder:
    """Display that records what it is shown."""

    def __init__(self) -> None:
        self.shown: list[Status] = []
        self.said: list[str] = []

    def show(self, status: Status) -> None:
        self.shown.append(status)

    def say(self, message: str) -> None:
        self.said.append(message)


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
    loaded, _ = load(directory)
    model = evaluate.best_model(directory, loaded)
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
    a, b = runs.state(whole), runs.state(parts)
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
    assert {t.dtype for t in runs.weights(tmp_path).values() if t.is_floating_point()} == {torch.float32}
    exact = create(tmp_path / "exact", tiny())
    training.train(exact, Silent())
    assert not torch.equal(runs.weights(exact)["head.weight"], runs.weights(tmp_path)["head.weight"])


def test_a_loss_that_is_not_a_number_stops_the_run(tmp_path: Path) -> None:
    directory = create(tmp_path, tiny(lr=1e30, clip=None))
    with pytest.raises(FloatingPointError, match="a lower learning rate"):
        training.train(directory, Silent())
    assert read_summary(directory) is None


def test_another_run_is_not_overwritten(tmp_path: Path) -> None:
    create(tmp_path, tiny())
    create(tmp_path, tiny())
    with pytest.raises(FileExistsError, match="holds another run"):
        create(tmp_path, tiny(seed=1))


def test_a_changed_environment_is_mentioned(tmp_path: Path) -> None:
    directory, recorder = create(tmp_path, tiny()), Recorder()
    runs.train_to(directory, 4)
    run, _ = load(directory)
    save(directory, run, {**training.describe(), "torch": "1.0"})
    training.train(directory, recorder)
    assert len(recorder.said) == 1
    assert "torch 1.0 -> " in recorder.said[0]
