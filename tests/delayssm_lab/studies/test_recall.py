"""The studies of recall at toy size, whole and in part."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from delayssm.layers.layer import DS4DConfig
from delayssm_lab.models.specs import HybridSpec
from delayssm_lab.recipes.recall import HYBRIDS, RECALLS
from delayssm_lab.studies.contest import Contest
from delayssm_lab.studies.recall import MODELS, Recall, RecallLayers, hybrid_contests, recall_contests
from delayssm_lab.study import Places
from delayssm_lab.tasks.associative import AssociativeRecall
from delayssm_lab.tasks.recall import RecallTask
from delayssm_lab.tasks.selective import SelectiveCopying
from delayssm_lab.training.run import Run
from tests.support.runs import DS4D, LSTM, tiny
from tests.support.studies import make_at, table_rows

pytestmark = pytest.mark.usefixtures("one_thread")

PAIRS, PLACES = AssociativeRecall(8, 2, 12), SelectiveCopying(6, 2, 6)
HYBRID = HybridSpec(depth=1, layer=DS4DConfig(6, 4, 8), taps=2, heads=1, head_size=2)


def _contest(run: Run, task: RecallTask) -> Contest:
    return Contest(replace(run, task=task), rates=(1e-3,), seeds=(0, 1))  # type: ignore[arg-type]


def test_recall_in_part_and_then_whole(tmp_path: Path) -> None:
    places = Places(tmp_path / "work", tmp_path / "results")
    contests = tuple(_contest(tiny(model), task) for model in (DS4D, LSTM) for task in (PAIRS, PLACES))
    Recall(contests[:1]).run(places)
    study = Recall(contests)
    study.write(places)
    about = json.loads((places.results / "recall" / "about.json").read_text())
    assert (about["done"], about["total"]) == (3, 12)
    _, _, chance, *rows = table_rows((places.results / "recall" / "table.md").read_bytes())
    assert chance == ["chance level", "0.17"]
    assert [row[0] for row in rows] == ["DS4D"]

    content = make_at(study, places)
    assert set(content) == {"table.md", "rates.md", "curves.png", "about.json"}
    head, _, chance, *rows = table_rows(content["table.md"])
    assert head == ["model", PAIRS.label, PLACES.label]
    assert chance == ["chance level", "0.17", "0.25"]
    assert [row[0] for row in rows] == ["LSTM", "DS4D"]
    assert all(cell.endswith("(2 seeds, lr 0.001)") for row in rows for cell in row[1:])

    layers = RecallLayers((_contest(tiny(HYBRID), PAIRS),), others=contests[::2])
    rows = table_rows(make_at(layers, places)["table.md"])
    assert [row[0] for row in rows[3:]] == ["LSTM", "DS4D", "DS4D, convolution of 2, 1 delta head"]


def test_what_the_studies_plan() -> None:
    contests = recall_contests()
    assert len(contests) == len(MODELS) * len(RECALLS) == 18
    assert {contest.rates for contest in (*contests, *hybrid_contests())} == {(2e-4, 1e-3, 4e-3)}
    assert {contest.seeds for contest in (*contests, *hybrid_contests())} == {(0, 1, 2)}
    names = {contest.run.name for contest in (*contests, *hybrid_contests())}
    assert len(names) == 18 + len(HYBRIDS)
