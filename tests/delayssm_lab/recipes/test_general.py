"""The general benchmarks: the recipes of their runs, and training by them."""

import math
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from delayssm_lab.display import Silent
from delayssm_lab.models import specs
from delayssm_lab.recipes import general as benchmarks
from delayssm_lab.recipes.delayed import preset
from delayssm_lab.recipes.general import BENCHMARKS, ORIGINAL_WIDTHS, TABLE, TASKS, BenchmarkName, mini, paper
from delayssm_lab.tasks.images import SequentialMNIST
from delayssm_lab.tasks.signals import BIDMC
from delayssm_lab.tasks.texts import Text
from delayssm_lab.training import checkpoint
from delayssm_lab.training import trainer as training
from delayssm_lab.training.evaluate import load_model, on_test_samples
from delayssm_lab.training.run import AnyTask, Run, Training
from delayssm_lab.training.run import load as load_run
from delayssm_lab.training.schedules import Cosine, MultiStep
from tests.support.runs import create, finish, start

#: The paper's table: depth, H, N, p, omega, norm, pre-norm, batch, lr, dt lr, weight decay, epochs.
PAPER = {
    "smnist": (6, 115, 64, 0.015, 0, "batch", True, 64, 1e-3, 1e-4, 0.05, 20),
    "sc-ar": (6, 114, 64, 0.1, math.pi, "batch", True, 16, 1e-2, 1e-4, 0.05, 40),
    "sc-bi": (6, 116, 64, 0.1, math.pi, "batch", True, 16, 1e-2, 1e-4, 0.05, 40),
    "bidmc-rr": (6, 101, 256, 0.1, math.pi, "layer", True, 32, 1e-2, 1e-4, 0.05, 500),
    "bidmc-hr": (6, 101, 256, 0.05, math.pi, "batch", True, 32, 1e-2, 1e-4, 0.05, 500),
    "bidmc-spo2": (6, 101, 256, 0.1, math.pi, "batch", True, 32, 1e-2, 1e-4, 0.05, 500),
    "listops": (8, 116, 64, 0.1, math.pi, "batch", False, 50, 1e-2, 5e-4, 0.05, 40),
    "text": (6, 242, 64, 0.1, math.pi, "batch", True, 16, 1e-2, 1e-4, 0.05, 32),
    "retrieval": (6, 242, 64, 0.1, math.pi, "batch", True, 64, 1e-2, 1e-4, 0.05, 20),
    "image": (6, 497, 64, 0.01, 0, "layer", False, 50, 1e-2, 1e-4, 0.05, 200),
    "pathfinder": (6, 243, 64, 0.1, math.pi, "batch", True, 64, 4e-3, 5e-4, 0.03, 200),
    "path-x": (6, 243, 64, 0.1, math.pi, "batch", True, 16, 5e-4, 1e-4, 0.05, 50),
}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_paper_s_table_to_the_digit(name: BenchmarkName) -> None:
    run = paper(name, "ds4d")
    spec, how = run.model, run.training
    assert isinstance(spec, specs.DS4D)
    found = (spec.depth, spec.d_model, spec.d_state, spec.branch_fraction, spec.phase, spec.norm, spec.prenorm)
    assert (*found, how.batch_size, how.lr, how.dt_lr, how.weight_decay, how.epochs) == PAPER[name]
    assert spec.init == "inv"
    assert spec.delays == {"smnist": 28, "image": 32}.get(name)
    assert spec.bidirectional == (name not in ("smnist", "sc-ar"))
    assert isinstance(how.schedule, MultiStep if name.startswith("bidmc") else Cosine)
    assert how.dynamics_lr is None  # A and B learn at the main rate


@pytest.mark.parametrize("scale", [paper, mini], ids=["paper", "mini"])
@pytest.mark.parametrize("name", BENCHMARKS)
def test_parameters_are_matched(name: BenchmarkName, scale: object) -> None:
    ds4d, s4d = scale(name, "ds4d"), scale(name, "s4d")  # type: ignore[operator]
    assert s4d.parameters() == pytest.approx(ds4d.parameters(), rel=0.01)
    assert s4d.task == ds4d.task
    same = {"dt_lr": None, "dynamics_lr": None}
    assert replace(s4d.training, **same) == replace(ds4d.training, **same)  # the same budget
    assert s4d.training.dynamics_lr == s4d.training.dt_lr == min(1e-3, s4d.training.lr)


def test_widths_of_the_original_recipes() -> None:
    """Where the paper's sizes match them within 1 %, and where they do not."""
    close = {}
    for name, width in ORIGINAL_WIDTHS.items():
        ds4d = paper(name, "ds4d")
        shared = {field.name: getattr(ds4d.model, field.name) for field in fields(specs.StateSpace)}
        original = replace(ds4d, model=specs.S4D(**{**shared, "d_model": width}))
        close[name] = abs(ds4d.parameters() / original.parameters() - 1) < 0.01
    assert {name for name, is_close in close.items() if is_close} == {"image", "pathfinder", "path-x"}


def test_lengths_and_steps_of_full_size_runs() -> None:
    assert {name: TASKS[name].max_length for name in BENCHMARKS} == {
        "smnist": 784, "sc-ar": 16000, "sc-bi": 16000, "bidmc-rr": 4000, "bidmc-hr": 4000, "bidmc-spo2": 4000,
        "listops": 2048, "text": 4096, "retrieval": 4000, "image": 1024, "pathfinder": 1024, "path-x": 16384,
    }  # fmt: skip
    assert set(TABLE) == set(TASKS) == set(BENCHMARKS)


def _tiny(task: AnyTask = BIDMC("HR", every=40), **settings: object) -> Run:  # noqa: B008
    spec = specs.DS4D(d_model=6, depth=1, d_state=4, norm="batch", dropout=0.1)
    chosen = {"epochs": 2, "batch_size": 5, "evaluate_every": 3, "checkpoint_every": 4, "validation_size": None}
    return Run(task=task, model=spec, training=Training(**{**chosen, **settings}))  # type: ignore[arg-type]


@pytest.mark.usefixtures("data", "one_thread")
def test_training_by_epochs_with_a_test_at_the_end(tmp_path: Path) -> None:
    run = _tiny()
    training.create(tmp_path / "run", run)
    assert load_run(tmp_path / "run")[0] == run
    summary = training.train(tmp_path / "run", Silent())
    assert summary["steps"] == run.steps == math.ceil(2 * 28 / 5)
    metrics = training.read_metrics(tmp_path / "run")
    assert summary["rmse"] == min(entry["rmse"] for entry in metrics)
    model, _ = load_model(tmp_path / "run")
    assert on_test_samples(model, run, 100) == pytest.approx(summary["test_rmse"], rel=1e-5)


@pytest.mark.usefixtures("data", "one_thread")
def test_batch_statistics_survive_an_interruption(tmp_path: Path) -> None:
    """Running means are part of what is saved, so a run that goes on ends with the same bits."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    training.create(whole, _tiny(SequentialMNIST()))
    training.create(parts, _tiny(SequentialMNIST()))
    expected = training.train(whole, Silent())
    run, _ = load_run(parts)
    trainer = training.Trainer(run, parts, training.make_accelerator(run), Silent())
    for _ in range(4):
        trainer.step()
        if trainer.progress.step == 3:
            trainer.evaluate()
    trainer.save()
    found = training.train(parts, Silent())
    for summary in (found, expected):
        del summary["seconds"], summary["tokens_per_second"]
    assert found == expected


@pytest.mark.usefixtures("data", "one_thread")
@pytest.mark.parametrize(("task", "norm"), [(Text(30), "batch"), (BIDMC("HR", every=40), "layer")])
def test_two_processes_end_as_one(task: AnyTask, norm: str, tmp_path: Path) -> None:
    """Running means, test results and all, with rows of other lengths in each.

    Not for values with batch norm: the bias of the first layer then has no gradient but rounding errors.
    """
    run = _tiny(task, batch_size=6, epochs=None, steps=5)
    run = replace(run, model=replace(run.model, norm=norm, dropout=0.0))  # masks are drawn by each process
    one, two = create(tmp_path / "one", run), create(tmp_path / "two", run)
    expected = training.train(one, Silent())
    two_processes = "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"
    code, _, errors = finish(start(*two_processes, "-m", "delayssm", "resume", two))
    assert code == 0, errors
    found = training.read_summary(two)
    name = task.metric.value
    assert found[f"test_{name}"] == pytest.approx(expected[f"test_{name}"], rel=1e-4)
    weights = [checkpoint.read(checkpoint.best(directory))[0] for directory in (one, two)]
    assert any("running_var" in key for key in weights[0]) == (norm == "batch")
    for key, value in weights[0].items():
        torch.testing.assert_close(weights[1][key], value, atol=1e-4, rtol=1e-3)


@pytest.mark.usefixtures("data", "one_thread")
def test_shares_of_a_batch_must_be_equal_for_batch_norm(tmp_path: Path) -> None:
    run = _tiny(batch_size=5, epochs=None, steps=1)
    two = SimpleNamespace(num_processes=2)
    with pytest.raises(ValueError, match="a batch of 5 cannot be shared by 2; make it a multiple of that"):
        training.Trainer(run, tmp_path, two, Silent())  # type: ignore[arg-type]


@pytest.mark.usefixtures("data", "one_thread")
def test_patience_ends_a_run_early(tmp_path: Path) -> None:
    training.create(tmp_path, _tiny(epochs=None, steps=90, evaluate_every=1, patience=2, lr=1e-12))
    summary = training.train(tmp_path, Silent())
    entries = training.read_metrics(tmp_path)
    assert summary["steps"] == entries[-1]["step"] < 90
    assert sum(entry["step"] > summary["best_step"] for entry in entries) == 2


@pytest.mark.usefixtures("data", "one_thread")
def test_an_error_small_enough_ends_a_run_early(tmp_path: Path) -> None:
    training.create(tmp_path, _tiny(target=1e9))
    assert training.train(tmp_path, Silent())["steps"] == 3


def test_epochs_or_steps() -> None:
    with pytest.raises(ValueError, match="either how many steps or how many epochs"):
        Training(batch_size=4)
    with pytest.raises(ValueError, match="either how many steps or how many epochs"):
        Training(batch_size=4, steps=3, epochs=1)
    run = replace(preset("copy-fixed", "ds4d", "mini"), training=Training(epochs=1, batch_size=4))
    with pytest.raises(ValueError, match="no end of samples, so no epochs"):
        _ = run.steps


def test_every_preset_can_be_written_down(tmp_path: Path) -> None:
    for name in BENCHMARKS:
        for scale in (paper, mini):
            run = scale(name, "ds4d")
            training.create(tmp_path / f"{name}-{scale.__name__}", run)
            assert load_run(tmp_path / f"{name}-{scale.__name__}")[0] == run
    assert benchmarks.paper("text", "ds4d").name == "text-ds4d-lr0.01-seed0"
