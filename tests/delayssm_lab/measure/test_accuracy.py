"""Studies of accuracy at toy size, and the journal of measured points."""

import json
from pathlib import Path

import pytest
import torch

from delayssm_lab.measure.fft_accuracy import FFTAccuracy
from delayssm_lab.measure.kernel_accuracy import COLUMNS, KernelAccuracy
from delayssm_lab.report import reported
from delayssm_lab.study import Places
from tests.support.studies import make, table_rows

pytestmark = pytest.mark.usefixtures("one_thread")

ACCURACY = FFTAccuracy(lengths=(16, 48), seeds=(0, 1), longer=((600, 2),), depth=2, d_model=4, d_state=4)


def test_fft_accuracy(tmp_path: Path) -> None:
    content = make(ACCURACY, tmp_path)
    assert set(content) == {"table.md", "errors.png", "points.json", "about.json"}
    points = json.loads(content["points.json"])
    sizes = [(16, 0, 4), (16, 1, 4), (48, 0, 4), (48, 1, 4), (600, 0, 2)]
    assert [tuple(p["point"].values()) for p in points] == sizes
    again = ACCURACY.measure(ACCURACY.points()[2], tmp_path)
    assert points[2]["values"] == again
    assert json.loads(content["about.json"])["environment"] == points[-1]["environment"]
    assert 0 < again["relative RMSE, ours"] < again["relative RMSE, paper's setting"] / 10
    assert 0 < again["relative RMSE, bounded stream"] < again["relative RMSE, paper's setting"] / 10
    mean = sum(p["values"]["relative RMSE, ours"] for p in points[:2]) / 2
    rows = {row[0]: row[1:] for row in table_rows(content["table.md"])}
    assert rows["relative RMSE, our setting, our code"][0].startswith(f"{mean:.2e} ± ")
    assert rows["error"] == ["L 16", "L 48", "L 600, H 2"]
    longest = points[-1]["values"]["relative RMSE, bounded stream"]
    assert 0 < longest <= 1e-6
    assert rows["relative RMSE, our setting, bounded stream"][2] == f"{longest:.2e}"
    assert rows["relative RMSE, paper's setting, our code"][2] == "–"


def test_the_numbers_of_the_paper_stay_in_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = FFTAccuracy(lengths=(1024,), seeds=(0, 1), longer=(), depth=1, d_model=2, d_state=2)
    before = make(study, tmp_path)
    monkeypatch.setattr(reported, "FFT_RELATIVE_RMSE", {1024: (4.2, 0.0)})
    after = make(study, tmp_path)
    tables = [table_rows(content["table.md"]) for content in (before, after)]
    changed = [old[0] for old, new in zip(*tables, strict=True) if old != new and old[0]]
    assert [name for name in changed if not name.startswith("-")] == ["relative RMSE, as the paper reports"]


def test_an_interrupted_study_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = FFTAccuracy.measure
    asked: list[object] = []

    def interrupted(self: FFTAccuracy, point: object, places: Places) -> dict[str, float]:
        asked.append(point)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return measure(self, point, places)  # type: ignore[arg-type]

    monkeypatch.setattr(FFTAccuracy, "measure", interrupted)
    places = Places(tmp_path, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        ACCURACY.run(places)
    assert ACCURACY.progress(places) == (2, 5)
    journal = ACCURACY.journal(places).path
    journal.write_text(journal.read_text() + '{"point": {"len')  # as a crash would leave it
    assert ACCURACY.progress(places) == (2, 5)
    ACCURACY.run(places)
    assert asked == [*ACCURACY.points()[:3], *ACCURACY.points()[2:]]
    assert ACCURACY.progress(places) == (5, 5)


def test_kernel_accuracy(tmp_path: Path) -> None:
    study = KernelAccuracy(lengths=(2, 150), delays=(1.0, 2.5, 99.0), max_delay=100, d_state=8)
    content = make(study, tmp_path)
    assert set(content) == {"table.md", "points.json", "about.json"}
    points = json.loads(content["points.json"])
    assert len(points) == 8
    head, _, *rows = table_rows(content["table.md"])
    assert head == ["length", *COLUMNS]
    assert [row[0] for row in rows] == ["2", "150"]
    worst = max(point["values"]["paper's contour, L 150"] for point in points)
    assert rows[1][4] == f"{worst:.1e}"
    exact, rounded, float32, papers = map(float, rows[1][1:])
    assert exact < 1e-8 < rounded < 2e-7 < papers
    assert float32 < 1e-5


@torch.no_grad()
def test_the_paper_s_setting_is_the_same_model() -> None:
    """Stacks that are compared differ in nothing but the contour."""
    point = ACCURACY.points()[0]
    exact, papers = (ACCURACY._build(point, contour).state_dict() for contour in ("exact", "paper"))
    assert exact.keys() == papers.keys()
    assert all(torch.equal(exact[name], papers[name]) for name in exact)
