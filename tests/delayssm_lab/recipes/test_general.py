"""Tests of the runs on the general benchmarks: the paper's table, and training."""

import math
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from delayssm.layers.block import BlockConfig
from delayssm.layers.layer import DS4DConfig, S4DConfig
from delayssm.layers.norms import Norm
from delayssm_lab.display import Silent
from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.recipes import general as benchmarks
from delayssm_lab.recipes.delayed import preset
from delayssm_lab.recipes.general import BENCHMARKS, PAPER, S4D_WIDTHS, SMALL, BenchmarkName, paper, small
from delayssm_lab.tasks.images import SequentialMNIST
from delayssm_lab.tasks.signals import BIDMC
from delayssm_lab.tasks.task import Split, Task
from delayssm_lab.tasks.texts import Text
from delayssm_lab.training import trainer as training
from delayssm_lab.training.evaluate import best_model, measure
from delayssm_lab.training.run import Run, Training, save
from delayssm_lab.training.run import load as load_run
from delayssm_lab.training.schedules import Cosine, MultiStep
from tests.support.runs import create, finish, read_metrics, read_summary, start, weights

#: The paper's table: depth, H, N, p, omega, norm, pre-norm, batch, lr, dt lr, weight decay, epochs.
TABLE = {
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
    spec, training = run.model, run.training
    assert isinstance(spec, StateSpaceSpec)
    assert isinstance(spec.layer, DS4DConfig)
    model = spec.depth, spec.d_model, spec.d_state, spec.layer.branch_fraction, spec.layer.phase
    norm = spec.block.norm, spec.block.prenorm
    rates = training.lr, training.dt_lr, training.weight_decay
    assert (*model, *norm, training.batch_size, *rates, training.epochs) == TABLE[name]
    assert spec.layer.init == "inv"
    assert spec.layer.delays == {"smnist": 28, "image": 32}.get(name, "grid")
    assert spec.layer.bidirectional == (name not in ("smnist", "sc-ar"))
    assert isinstance(training.schedule, MultiStep if name.startswith("bidmc") else Cosine)
    assert training.dynamics_lr is None  # A and B learn at the main rate


@pytest.mark.parametrize("name", BENCHMARKS)
def test_what_s4d_s_recipes_add(name: BenchmarkName) -> None:
    run = paper(name, "ds4d")
    assert isinstance(run.model, StateSpaceSpec)
    assert run.model.layer.dropout == {"image": 0.1}.get(name, 0.0)
    assert run.model.layer.dt_min == {"path-x": 1e-4}.get(name, 1e-3)
    assert run.training.clip is None
    warmups = {
        "sc-ar": 1000, "sc-bi": 1000, "listops": 1000, "text": 1000, "retrieval": 2500, "image": 900,
        "pathfinder": 2500, "path-x": 50_000,
    }  # fmt: skip
    assert run.training.schedule.warmup == warmups.get(name, 0)


#: Parameters of S4D and DS4D at the paper's scale. S4D has 128, 256 or 512 channels.
COUNTS = {
    "smnist": (252_938, 254_238),
    "sc-ar": (256_163, 253_541),
    "sc-bi": (305_315, 305_303),
    "bidmc-rr": (598_273, 595_741),
    "bidmc-hr": (598_273, 595_741),
    "bidmc-spo2": (598_273, 595_741),
    "listops": (403_978, 404_250),
    "text": (1_028_354, 1_025_882),
    "retrieval": (1_281_538, 1_251_668),
    "image": (3_564_298, 3_564_268),
    "pathfinder": (994_562, 1_000_958),
    "path-x": (994_562, 1_000_958),
}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_parameters_of_the_paper_s_models_to_the_digit(name: BenchmarkName) -> None:
    s4d, ds4d = paper(name, "s4d"), paper(name, "ds4d")
    assert s4d.model.d_model == S4D_WIDTHS[name]
    assert (s4d.parameters(), ds4d.parameters()) == COUNTS[name]
    assert ds4d.parameters() == pytest.approx(s4d.parameters(), rel=0.025 if name == "retrieval" else 0.0105)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_with_dynamics_per_channel_most_sizes_do_not_match(name: BenchmarkName) -> None:
    s4d, ds4d = (
        replace(run, model=run.model.with_layer(n_ssm=None)) for run in (paper(name, "s4d"), paper(name, "ds4d"))
    )
    matches = ds4d.parameters() == pytest.approx(s4d.parameters(), rel=0.0105)
    assert matches == (name in ("image", "pathfinder", "path-x"))


@pytest.mark.parametrize("name", BENCHMARKS)
def test_small_models_have_the_widths_that_match_best(name: BenchmarkName) -> None:
    s4d, budget = small(name, "s4d"), small(name, "ds4d").parameters()
    widths = [s4d.model.d_model + change for change in (0, -1, 1)]
    excess = [abs(replace(s4d, model=s4d.model.with_width(width)).parameters() - budget) for width in widths]
    assert excess[0] == min(excess)


@pytest.mark.parametrize("scale", [paper, small], ids=["paper", "small"])
@pytest.mark.parametrize("name", BENCHMARKS)
def test_both_models_have_the_same_budget(name: BenchmarkName, scale: object) -> None:
    ds4d, s4d = scale(name, "ds4d"), scale(name, "s4d")  # type: ignore[operator]
    assert s4d.task == ds4d.task
    assert replace(s4d.training, dt_lr=None) == replace(ds4d.training, dt_lr=None)
    assert s4d.training.dt_lr is s4d.training.dynamics_lr is None  # the rules of S4D
    assert s4d.training.decay_output


@pytest.mark.parametrize("scale", [paper, small], ids=["paper", "small"])
@pytest.mark.parametrize("name", BENCHMARKS)
def test_models_fit_their_tasks(name: BenchmarkName, scale: object) -> None:
    ds4d, s4d = scale(name, "ds4d"), scale(name, "s4d")  # type: ignore[operator]
    assert ds4d.model == ds4d.model.with_delays_up_to(ds4d.task.max_length)
    options = {field.name for field in fields(S4DConfig)} - {"d_model"}
    assert all(getattr(s4d.model.layer, name) == getattr(ds4d.model.layer, name) for name in options)
    assert replace(s4d.model.block, layer=ds4d.model.layer) == ds4d.model.block
    assert s4d.model.depth == ds4d.model.depth


def test_lengths_and_steps_of_full_size_runs() -> None:
    assert {name: PAPER[name].task.max_length for name in BENCHMARKS} == {
        "smnist": 784, "sc-ar": 16000, "sc-bi": 16000, "bidmc-rr": 4000, "bidmc-hr": 4000, "bidmc-spo2": 4000,
        "listops": 2048, "text": 4096, "retrieval": 4000, "image": 1024, "pathfinder": 1024, "path-x": 16384,
    }  # fmt: skip
    assert set(TABLE) == set(PAPER) == set(SMALL) == set(BENCHMARKS)


def _tiny(task: Task = BIDMC("HR", every=40), **settings: object) -> Run:  # noqa: B008
    block = BlockConfig(layer=DS4DConfig(6, 4, task.max_length, dropout=0.1), norm="batch")
    defaults = {"epochs": 2, "batch_size": 5, "evaluate_every": 3, "checkpoint_every": 4, "validation_size": None}
    return Run(task=task, model=StateSpaceSpec(depth=1, block=block), training=Training(**{**defaults, **settings}))  # type: ignore[arg-type]


@pytest.mark.usefixtures("data", "one_thread")
def test_training_by_epochs_with_a_test_at_the_end(tmp_path: Path) -> None:
    run = _tiny()
    create(tmp_path / "run", run)
    assert load_run(tmp_path / "run")[0] == run
    summary = training.train(tmp_path / "run", Silent())
    assert summary["steps"] == run.steps == math.ceil(2 * 28 / 5)
    metrics = read_metrics(tmp_path / "run")
    assert summary["rmse"] == min(entry["rmse"] for entry in metrics)
    model = best_model(tmp_path / "run", run)
    assert measure(model, run.task, Split.TEST, 100, run.seed) == pytest.approx(summary["test_rmse"], rel=1e-5)


@pytest.mark.usefixtures("data", "one_thread")
def test_batch_statistics_survive_an_interruption(tmp_path: Path) -> None:
    """Running means are saved, so that a resumed run ends with the same bits."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    create(whole, _tiny(SequentialMNIST()))
    create(parts, _tiny(SequentialMNIST()))
    expected = training.train(whole, Silent())
    run, _ = load_run(parts)
    trainer = training.Trainer(run, parts, training.make_accelerator(run), Silent())
    for _ in range(4):
        trainer.step()
        if trainer.progress.step == 3:
            trainer.evaluate()
    trainer.save()
    resumed = training.train(parts, Silent())
    for summary in (resumed, expected):
        del summary["seconds"], summary["tokens_per_second"]
    assert resumed == expected


@pytest.mark.slow
@pytest.mark.usefixtures("data", "one_thread")
@pytest.mark.parametrize(("task", "norm"), [(Text(30), "batch"), (BIDMC("HR", every=40), "layer")])
def test_two_processes_end_as_one(task: Task, norm: Norm, tmp_path: Path) -> None:
    """Compare weights, running means and test results; the rows of the processes have different lengths.

    Values with batch norm are left out: the gradient of the bias of the first layer is then rounding errors only.
    """
    run = _tiny(task, batch_size=6, epochs=None, steps=5)
    assert isinstance(run.model, StateSpaceSpec)
    spec = run.model.with_layer(dropout=0.0)  # each process would draw its own masks
    run = replace(run, model=replace(spec, block=replace(spec.block, norm=norm)))
    one, two = create(tmp_path / "one", run), create(tmp_path / "two", run)
    expected = training.train(one, Silent())
    two_processes = "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"
    code, _, errors = finish(start(*two_processes, "-m", "delayssm_lab", "resume", two))
    assert code == 0, errors
    summary = read_summary(two)
    name = task.metric.value
    assert summary is not None
    assert summary[f"test_{name}"] == pytest.approx(expected[f"test_{name}"], rel=1e-4)
    mine, theirs = weights(one), weights(two)
    assert any("running_var" in key for key in mine) == (norm == "batch")
    for key, value in mine.items():
        torch.testing.assert_close(theirs[key], value, atol=1e-4, rtol=1e-3)


@pytest.mark.usefixtures("data", "one_thread")
def test_shares_of_a_batch_must_be_equal_for_batch_norm(tmp_path: Path) -> None:
    run = _tiny(batch_size=5, epochs=None, steps=1)
    two = SimpleNamespace(num_processes=2)
    with pytest.raises(ValueError, match="a batch of 5 cannot be shared equally by 2; make batch_size a multiple of 2"):
        training.Trainer(run, tmp_path, two, Silent())  # type: ignore[arg-type]


@pytest.mark.usefixtures("data", "one_thread")
def test_patience_ends_a_run_early(tmp_path: Path) -> None:
    create(tmp_path, _tiny(epochs=None, steps=90, evaluate_every=1, patience=2, lr=1e-12))
    summary = training.train(tmp_path, Silent())
    entries = read_metrics(tmp_path)
    assert summary["steps"] == entries[-1]["step"] < 90
    assert sum(entry["step"] > summary["best_step"] for entry in entries) == 2


@pytest.mark.usefixtures("data", "one_thread")
def test_an_error_small_enough_ends_a_run_early(tmp_path: Path) -> None:
    create(tmp_path, _tiny(target=1e9))
    assert training.train(tmp_path, Silent())["steps"] == 6  # two evaluations, one every three steps


def test_epochs_or_steps() -> None:
    with pytest.raises(ValueError, match="exactly one of steps and epochs"):
        Training(batch_size=4)
    with pytest.raises(ValueError, match="exactly one of steps and epochs"):
        Training(batch_size=4, steps=3, epochs=1)
    run = replace(preset("copy-fixed", "ds4d", "small"), training=Training(epochs=1, batch_size=4))
    with pytest.raises(ValueError, match="unlimited samples and no epochs"):
        _ = run.steps


def test_every_preset_can_be_written_down(tmp_path: Path) -> None:
    for name in BENCHMARKS:
        for scale in (paper, small):
            run = scale(name, "ds4d")
            save(tmp_path / f"{name}-{scale.__name__}", run, {})
            assert load_run(tmp_path / f"{name}-{scale.__name__}")[0] == run
    assert benchmarks.paper("text", "ds4d").name == "text-ds4d-lr0.01-seed0"
