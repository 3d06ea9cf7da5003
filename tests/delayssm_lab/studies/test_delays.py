"""Studies of where delays start, at toy size."""

from dataclasses import replace
from pathlib import Path

import pytest

from delayssm_lab.recipes.delayed import SMALL_MEMORIES, TASKS, TaskName
from delayssm_lab.studies.contest import Contest
from delayssm_lab.studies.recovery import Recovery
from delayssm_lab.studies.separate_rates import SeparateRates, small_runs
from delayssm_lab.studies.suggested import LABEL, LAGS, SuggestedDelays, evidence, suggested_contests
from tests.support.runs import DS4D, TASK, tiny
from tests.support.studies import make, table_rows

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_the_lags_of_the_recipes_are_those_that_samples_show(task: TaskName) -> None:
    assert evidence(SMALL_MEMORIES[task]).lags == LAGS[task]


def test_half_of_the_channels_are_placed() -> None:
    for contest, task in zip(suggested_contests(), ("copy-variable", *TASKS), strict=True):
        layer = contest.run.model.layer
        assert set(layer.delays[: (layer.d_model + 1) // 2]) <= set(LAGS[task])
        assert (
            contest.run.parameters()
            == replace(contest.run, model=contest.run.model.with_layer(delays="grid")).parameters()
        )


def test_suggested_delays(tmp_path: Path) -> None:
    placed = replace(tiny(DS4D.with_layer(delays=[10.0] * 8)), label=LABEL)
    contests = [(Contest(run, rates=(1e-3,), seeds=(0, 1)),) for run in (placed, tiny())]
    content = make(SuggestedDelays(*contests, tasks=(TASK,), samples=64), tmp_path)
    assert set(content) == {"table.md", "rates.md", "curves.png", "evidence.png", "about.json"}
    assert [row[0] for row in table_rows(content["table.md"])[2:]] == [LABEL]  # the others were not trained
    assert [row[0] for row in table_rows(content["rates.md"])[2:]] == [LABEL]


def test_separate_rates(tmp_path: Path) -> None:
    labels = {run.model_label for run in small_runs()}
    assert len(labels) == len({(run.training, run.model) for run in small_runs()}) == 5
    runs = tiny(), replace(tiny(dt_lr=1e-2), label="faster"), replace(tiny(dt_lr=1e-2), label="faster", seed=1)
    content = make(SeparateRates(runs), tmp_path)
    rows = table_rows(content["table.md"])[2:]
    assert [(row[0], row[2]) for row in rows] == [("DS4D", "1"), ("faster", "2")]


def test_recovery(tmp_path: Path) -> None:
    study = Recovery(
        noises=(1.0, 1e6), rows=(32,), trials=1, offsets=(-0.5, 0.5), correlations=(0.9,), steps=30, channels=3
    )
    content = make(study, tmp_path)
    assert set(content) == {"table.md", "descent.png", "points.jsonl", "about.json"}
    assert [row[1:] for row in table_rows(content["table.md"])[2:]] == [
        ["1", "100 %", "0.00"], ["1e+06", "0 %", "0.00"],
    ]  # fmt: skip
