"""The studies of recall at toy size, whole and in part."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from delayssm.layers.layer import DS4DConfig
from delayssm_lab.models.specs import HybridSpec
from delayssm_lab.recipes.recall import RECALLS
from delayssm_lab.report.collect import group
from delayssm_lab.studies.contest import Contest
from delayssm_lab.studies.recall import MODELS, Recall, RecallLayers, hybrid_contests, recall_contests, table
from delayssm_lab.study import Places
from delayssm_lab.tasks.associative import AssociativeRecall
from delayssm_lab.tasks.recall import RecallTask
from delayssm_lab.tasks.selective import SelectiveCopying
from delayssm_lab.training.record import Record
from delayssm_lab.training.run import Run
from tests.support.runs import LSTM, tiny
from tests.support.studies import make_at, table_rows

pytestmark = pytest.mark.usefixtures("one_thread")

PAIRS, PLACES = AssociativeRecall(8, 2, 12), SelectiveCopying(6, 2, 6)
HYBRID = HybridSpec(depth=1, layer=DS4DConfig(6, 4, 8), taps=2)


def _contest(run: Run, task: RecallTask) -> Contest:
    return Contest(replace(run, task=task), rates=(1e-3,), seeds=(0,))  # type: ignore[arg-type]


@pytest.mark.slow
def test_recall_in_part_and_then_whole(tmp_path: Path) -> None:
    places = Places(tmp_path / "work", tmp_path / "results")
    lstm, hybrid = _contest(tiny(LSTM), PAIRS), _contest(tiny(HYBRID), PLACES)
    study = Recall((lstm, hybrid))
    Recall((lstm,)).run(places)
    study.write(places)
    about = json.loads((places.results / "recall" / "about.json").read_text())
    assert (about["done"], about["total"]) == (2, 4)
    _, _, chance, *rows = table_rows((places.results / "recall" / "table.md").read_bytes())
    assert chance == ["chance level", "0.17"]
    assert [row[0] for row in rows] == ["LSTM"]

    content = make_at(study, places)
    assert set(content) == {"table.md", "rates.md", "curves.png", "about.json"}
    head, _, chance, *rows = table_rows(content["table.md"])
    assert head == ["model", PAIRS.label, PLACES.label]
    assert chance == ["chance level", "0.17", "0.25"]
    assert [[cell != "" for cell in row] for row in rows] == [[True, True, False], [True, False, True]]
    assert [row[0] for row in rows] == ["LSTM", HYBRID.family]

    layers = make_at(RecallLayers((hybrid,), others=(lstm,)), places)  # nothing is left to train
    assert set(layers) == set(content)
    assert layers["table.md"] == content["table.md"]
    assert [row[0] for row in table_rows(layers["rates.md"])[2:]] == [HYBRID.family]


def test_what_the_studies_plan() -> None:
    contests = recall_contests()
    assert len(contests) == len(MODELS) * len(RECALLS) == 18
    assert {contest.rates for contest in (*contests, *hybrid_contests())} == {(2e-4, 1e-3, 4e-3)}
    assert {contest.seeds for contest in (*contests, *hybrid_contests())} == {(0, 1, 2)}
    names = {contest.run.name for contest in (*contests, *hybrid_contests())}
    assert len(names) == len(contests) + len(hybrid_contests()) == 18 + 7


def test_the_table_has_a_row_for_each_model() -> None:
    runs = [replace(tiny(LSTM), task=PAIRS), replace(tiny(HYBRID), task=PLACES)]
    records = [Record(run, {}, "2026-01-01", [{"step": 1, "accuracy": 0.5}], {}, [], [], []) for run in runs]
    head, _, *rows = table_rows(table(group(records)).encode())
    assert head == ["model", PAIRS.label, PLACES.label]
    assert rows == [
        ["chance level", "0.17", "0.25"],
        ["LSTM", "0.50", ""],
        ["DS4D, convolution of 2", "", "0.50"],
    ]
