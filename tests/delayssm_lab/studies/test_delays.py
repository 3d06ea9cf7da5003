"""Studies of where delays start, at toy size."""

from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from delayssm.layers.block import BlockConfig
from delayssm.layers.delay_ssm import DelaySSM
from delayssm.layers.delta_memory import DeltaMemoryConfig
from delayssm_lab.models.specs import StackSpec
from delayssm_lab.recipes.delayed import MEMORIES, SMALL_MEMORIES, TASKS, TaskName, preset
from delayssm_lab.report.collect import Cell, Results
from delayssm_lab.studies.contest import Contest
from delayssm_lab.studies.delta_memory import LABELS, WithDeltaMemory, memory_contests
from delayssm_lab.studies.descent import Descent, correlated, respond, wide_kernel, width_at
from delayssm_lab.studies.initialisation import (
    Initialisation,
    Setting,
    design,
    design_runs,
    estimates,
    fraction_runs,
)
from delayssm_lab.studies.recovery import Recovery
from delayssm_lab.studies.separate_rates import SeparateRates, small_runs
from delayssm_lab.studies.suggested import (
    GRID_LABELS,
    LABEL,
    LAGS,
    PAPER_LAGS,
    SHARES,
    SuggestedAtPaperScale,
    SuggestedDelays,
    evidence,
    margins,
    paper_runs,
    suggested_contests,
)
from delayssm_lab.studies.synthetic import small_contests
from delayssm_lab.studies.trained import Shelf
from delayssm_lab.study import Places
from delayssm_lab.training.run import Run
from tests.support.runs import DS4D, TASK, tiny
from tests.support.studies import make, table_rows

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_the_lags_of_the_recipes_are_those_that_samples_show(task: TaskName) -> None:
    assert evidence(SMALL_MEMORIES[task]).lags == LAGS[task]


def test_half_of_the_channels_are_placed_or_all() -> None:
    suggested = [contest for contest in suggested_contests() if contest.run.label.startswith(LABEL)]
    for contest, task in zip(suggested, 2 * ("copy-variable", *TASKS), strict=True):
        layer = contest.run.model.layer
        placed = layer.d_model if "only" in contest.run.label else (layer.d_model + 1) // 2
        assert set(layer.delays[:placed]) <= set(LAGS[task])
        assert not set(layer.delays[placed:]) & set(LAGS[task])
        assert (
            contest.run.parameters()
            == replace(contest.run, model=contest.run.model.with_layer(delays="grid")).parameters()
        )


def test_p_is_chosen_in_the_same_way_for_all_placements() -> None:
    """On copying with a variable delay, from the same two values; the grid with p = 0.1 is that of all models."""
    deciding = [contest.run for contest in (*small_contests(), *suggested_contests())]
    deciding = [run for run in deciding if run.task == SMALL_MEMORIES["copy-variable"] and run.label.startswith("DS4D")]
    assert {(run.label, run.model.layer.branch_fraction) for run in deciding} == {
        ("DS4D", 0.1), ("DS4D, p 0.5", 0.5), (f"{LABEL}, p 0.1", 0.1), (LABEL, 0.5),
        (f"{LABEL} only, p 0.1", 0.1), (f"{LABEL} only", 0.5),
    }  # fmt: skip
    assert {run.label for run in deciding if run.model.layer.delays == "grid"} == set(GRID_LABELS)


@pytest.mark.slow
def test_suggested_delays(tmp_path: Path) -> None:
    placed = replace(tiny(DS4D.with_layer(delays=[10.0] * 8)), label=LABEL)
    contests = [(Contest(run, rates=(1e-3,), seeds=(0, 1)),) for run in (placed, tiny())]
    content = make(SuggestedDelays(*contests, tasks=(TASK,), samples=64), tmp_path)
    assert set(content) == {"table.md", "margins.md", "rates.md", "curves.png", "evidence.png", "about.json"}
    assert [row[0] for row in table_rows(content["table.md"])[2:]] == [LABEL]  # the others were not trained
    assert [row[0] for row in table_rows(content["rates.md"])[2:]] == [LABEL]


def test_margins_have_the_standard_error_of_a_difference() -> None:
    def cell(*best: float) -> Cell:
        return Cell(tuple(SimpleNamespace(best=value, finished=True) for value in best), (1e-3,))

    cells = {(TASK.label, LABEL): cell(0.8, 0.9, 1.0), (TASK.label, "DS4D"): cell(0.5, 0.6, 0.7)}
    cells |= {(TASK.label, "S4D"): cell(0.95), (TASK.label, "LSTM"): cell(0.1, 0.2)}
    results = Results([], {TASK.label: TASK}, ["LSTM", "S4D", "DS4D", LABEL], cells, [], {})
    (row,) = table_rows(margins(results, SHARES, GRID_LABELS).encode())[2:]
    assert row == [TASK.label, LABEL, "0.90 ± 0.10", "DS4D, 0.60 ± 0.10", "+0.30 ± 0.08", "S4D, 0.95", "-0.05"]
    cells[TASK.label, GRID_LABELS[1]] = cell(0.7)
    (row,) = table_rows(margins(results, SHARES, GRID_LABELS).encode())[2:]
    assert row[3:5] == ["DS4D, p 0.5, 0.70", "+0.20"]
    (row,) = table_rows(
        margins(replace(results, cells={(TASK.label, LABEL): cell(0.8)}), SHARES, GRID_LABELS).encode()
    )[2:]
    assert row == [TASK.label, LABEL, "0.80", "", "", "", ""]


def test_models_with_a_memory_have_as_many_parameters() -> None:
    assert len({contest.run for contest in memory_contests()}) == 3 * len(TASKS)
    for contest in memory_contests():
        kinds = [type(block.layer) for block in contest.run.model.blocks]
        assert [i for i, kind in enumerate(kinds) if kind is DeltaMemoryConfig] == [1]
        (task,) = (name for name, task in SMALL_MEMORIES.items() if task == contest.run.task)
        assert contest.run.parameters() == pytest.approx(preset(task, "ds4d", "small").parameters(), rel=0.02)


@pytest.mark.slow
def test_delta_memory(tmp_path: Path) -> None:
    label = LABELS["ds4d"]
    blocks = tuple(BlockConfig(layer=layer) for layer in (DS4D.layer, DeltaMemoryConfig(DS4D.d_model)))
    run = replace(tiny(), model=StackSpec(blocks=blocks, family=label), label=label)
    content = make(WithDeltaMemory((Contest(run, rates=(1e-3,), seeds=(0, 1)),), ()), tmp_path)
    assert set(content) == {"table.md", "margins.md", "rates.md", "curves.png", "about.json"}
    assert [row[0] for row in table_rows(content["table.md"])[2:]] == [label]


@pytest.mark.slow
def test_samples_show_the_lags_of_the_paper() -> None:
    assert evidence(MEMORIES["copy-variable"], 512).lags == PAPER_LAGS
    assert sorted(PAPER_LAGS) == list(range(1014 + 32, 1024 + 32 + 1))


def test_suggested_delays_at_the_papers_size(tmp_path: Path) -> None:
    for run in paper_runs():
        assert run.parameters() == preset("copy-variable", "ds4d", "paper").parameters()
    placed = replace(tiny(DS4D.with_layer(delays=[10.0] * 8)), label=LABEL)
    content = make(SuggestedAtPaperScale((placed,), Shelf("tiny"), (tiny(),)), tmp_path)
    assert set(content) == {"table.md", "curves.png", "about.json"}
    assert [row[0] for row in table_rows(content["table.md"])[2:]] == [LABEL]


@pytest.mark.slow
def test_separate_rates(tmp_path: Path) -> None:
    labels = {run.model_label for run in small_runs()}
    assert len(labels) == len({(run.training, run.model) for run in small_runs()}) == 5
    runs = tiny(), replace(tiny(dt_lr=1e-2), label="faster"), replace(tiny(dt_lr=1e-2), label="faster", seed=1)
    content = make(SeparateRates(runs), tmp_path)
    rows = table_rows(content["table.md"])[2:]
    assert [(row[0], row[2]) for row in rows] == [("DS4D", "1"), ("faster", "2")]


def test_recovery(tmp_path: Path) -> None:
    study = Recovery(
        noises=(1.0, 1e6), rows=(32,), trials=1, offsets=(-0.5, 9.0), correlations=(0.0, 0.9), widths=(1.0, 16.0),
        steps=10, channels=3,
    )  # fmt: skip
    content = make(study, tmp_path)
    assert set(content) == {"table.md", "descent.md", "descent.png", "points.jsonl", "about.json"}
    assert [row[1:] for row in table_rows(content["table.md"])[2:]] == [
        ["1", "100 %", "0.00"], ["1e+06", "0 %", "0.00"],
    ]  # fmt: skip


def test_a_kernel_of_width_1_is_that_of_the_library() -> None:
    ssm = DelaySSM(5, 8, 60, delays=[1.0, 17.3, 40.7, 58.2, 59.0], branch_fraction=0.5)
    torch.testing.assert_close(wide_kernel(ssm, 100, 1.0).T.float(), ssm.kernel(100), atol=1e-7, rtol=1e-6)


def test_a_wide_kernel_is_that_of_its_recurrence() -> None:
    """h_t = lam h_(t-1) + mu sum over j of w_j h_(t-j) + b x_t, step by step, in float64."""
    ssm, width, length = DelaySSM(1, 4, 30, delays=3.4, branch_fraction=0.5), 5.0, 80
    lam, mu, b, c, _, _ = (z[0].detach().numpy() for z in ssm.discretize())
    lags = np.arange(1, 9)
    w = np.maximum(0, 1 - np.abs(lags - float(ssm.delays().detach())) / width)
    w /= w.sum()
    h = np.zeros((length + 8, len(lam)), complex)
    for t in range(8, length + 8):
        h[t] = lam * h[t - 1] + mu * (w[:, None] * h[t - lags]).sum(0) + b * (t == 8)
    expected = torch.from_numpy(2 * (h[8:] @ c).real)
    torch.testing.assert_close(wide_kernel(ssm, length, width)[:, 0].detach(), expected, atol=1e-7, rtol=1e-5)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(2, length, 1))).float()
    y = torch.stack([torch.from_numpy(np.convolve(row, expected)[:length]) for row in x[..., 0].numpy()])
    torch.testing.assert_close(
        respond(ssm, x, width).detach()[..., 0], y.float() + x[..., 0] * ssm.D.detach(), atol=1e-5, rtol=1e-5
    )


def test_the_width_shrinks_to_interpolation() -> None:
    point = Descent(20, 10.0, 0.0, 16.0, steps=100, channels=1, max_delay=64)
    assert [width_at(step, point) for step in (0, 25, 50, 99)] == [16.0, 4.0, 1.0, 1.0]


def test_correlated_series() -> None:
    x = correlated(np.random.default_rng(0), 0.9, 400)
    assert float(x.var()) == pytest.approx(1, abs=0.05)
    assert float((x[:, 1:] * x[:, :-1]).mean()) == pytest.approx(0.9, abs=0.05)


def test_the_design_is_balanced() -> None:
    """Each pair of levels of any two options is in equally many of its 16 settings."""
    settings = design()
    assert len(set(settings)) == 16
    for one, other in combinations(("delays", "p", "phase", "dt_lr"), 2):
        pairs = Counter((getattr(setting, one), getattr(setting, other)) for setting in settings)
        assert len(set(pairs.values())) == 1, (one, other)
        assert len(pairs) == len({pair[0] for pair in pairs}) * len({pair[1] for pair in pairs})


def test_runs_of_the_design() -> None:
    runs = [*design_runs(), *fraction_runs()]
    assert len(runs) == len({run.name for run in runs}) == 2 * (16 + 9)
    for run in runs:
        layer = run.model.layer
        own = replace(run, model=run.model.with_layer(delays="grid", branch_fraction=0.1))
        assert run.parameters() == own.parameters()
        if "shared" in run.label:
            assert max(Counter(layer.delays).values()) == 4
        if "elsewhere" in run.label:
            placed = (layer.d_model + 1) // 2
            assert layer.branch_fraction == ((0.5,),) * placed + ((0.1,),) * (layer.d_model - placed)


def test_runs_with_suggested_delays_are_those_of_their_study() -> None:
    stored = {run for contest in suggested_contests() for rate in contest.rates for run in _finals(contest, rate)}
    assert len(stored & set(fraction_runs())) == 9  # copying with both fractions, the sum with one


def _finals(contest: Contest, rate: float) -> list[Run]:
    return [contest._whole(rate, seed) for seed in contest.seeds]


def test_effects_are_estimated() -> None:
    """Known effects of placement with p, of phase and of rate come out, whether or not some runs are missing."""
    random = np.random.default_rng(0)
    cells = {(setting.delays, setting.p): random.normal() for setting in design()}

    def value(setting: Setting) -> float:
        return cells[setting.delays, setting.p] + 0.3 * (setting.phase == "pi") - 0.2 * (setting.dt_lr == 1e-3)

    for settings in (design(), design()[:13]):
        found = estimates(settings, np.array([value(setting) for setting in settings]))
        means = {name: mean for name, (mean, _) in found.items()}
        assert means["phase pi"] - means["phase 0"] == pytest.approx(0.3)
        assert means["step sizes at 0.001"] - means["step sizes at 0.0001"] == pytest.approx(-0.2)
        grid = (cells["grid", 0.1] + cells["grid", 0.5]) / 2
        log = (cells["log", 0.1] + cells["log", 0.5]) / 2
        assert means["grid delays"] - means["log delays"] == pytest.approx(grid - log)
    few = estimates(design()[:2], np.ones(2))
    assert all(error is None for _, error in few.values())
    assert "log delays" not in few


def test_errors_of_effects() -> None:
    """The standard error of the difference of two levels, eight runs each, is that of their noise."""
    random = np.random.default_rng(1)
    trials = [estimates(design(), 0.1 * random.normal(size=16)) for _ in range(500)]
    errors = [trial["phase pi"][1] for trial in trials]
    spread = np.std([trial["phase pi"][0] for trial in trials])
    assert np.mean(np.square(errors)) ** 0.5 == pytest.approx(spread, rel=0.15)


def test_initialisation(tmp_path: Path) -> None:
    """One run says nothing about any option alone; four runs say something about three of them."""
    first, *rest = (replace(tiny(steps=4), label=str(setting)[:90]) for setting in design()[:4])
    settings = dict(zip((first, *rest), design(), strict=False))
    study = Initialisation(runs=(first, tiny(steps=4)), settings=settings)
    content = make(study, tmp_path)
    assert set(content) == {"fractions.md", "about.json"}
    assert [row[0] for row in table_rows(content["fractions.md"])[2:]] == ["DS4D"]
    record = study.records(Places(tmp_path / "work", tmp_path / "results"))[0]
    files = dict(study.effects([replace(record, run=run) for run in settings]))
    assert files["effects.png"].startswith(b"\x89PNG")
    assert [row[0] for row in table_rows(files["effects.md"])[2:]] == [
        "grid delays", "phase pi", "phase 0", "step sizes at 0.0001", "step sizes at 0.001",
        "grid delays, p 0.1", "grid delays, p 0.5",
    ]  # fmt: skip
