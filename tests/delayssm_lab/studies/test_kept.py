"""Points that take long are stored with the results, and measurements of speed are not."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from delayssm_lab.studies.forecasting import Forecasting
from delayssm_lab.studies.recovery import Recovery
from delayssm_lab.study import File, Kept, Measured, Places, Readings
from tests.support.studies import make_at


@dataclass(frozen=True)
class Point:
    n: int
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Squares(Measured[Point]):
    """Squares of numbers; `stops_at` interrupts the measurement of one."""

    name = "squares"
    title = "Squares"
    stops_at: int = -1

    def points(self) -> list[Point]:
        return [Point(n) for n in range(4)]

    def measure(self, point: Point, places: Places) -> Readings:
        if point.n == self.stops_at:
            raise KeyboardInterrupt
        return {"square": point.n**2}

    def show(self, results: Mapping[Point, Readings]) -> Iterable[File]:
        yield "table.md", " ".join(f"{values['square']:g}" for values in results.values()).encode()


@dataclass(frozen=True)
class KeptSquares(Squares, Kept[Point]): ...


def test_a_kept_study_goes_on_from_its_results_on_another_machine(tmp_path: Path) -> None:
    here, there = (Places(tmp_path / work, tmp_path / "results") for work in ("here", "there"))
    with pytest.raises(KeyboardInterrupt):
        KeptSquares(stops_at=2).run(here)
    KeptSquares().write(here)
    assert (here.results / "squares" / "table.md").read_bytes() == b"0 1"
    assert not here.work.exists()
    assert KeptSquares().progress(there) == (2, 4)
    content = make_at(KeptSquares(stops_at=1), there)  # which is not measured again
    assert content["table.md"] == b"0 1 4 9"
    assert set(content) == {"table.md", "points.jsonl", "about.json"}
    assert content["points.jsonl"].count(b"\n") == 4


def test_a_point_that_was_cut_off_is_measured_again(tmp_path: Path) -> None:
    places = Places(tmp_path / "work", tmp_path / "results")
    KeptSquares().run(places)
    journal = KeptSquares().journal(places)
    journal.path.write_bytes(journal.path.read_bytes()[:-20])
    assert KeptSquares().progress(places) == (3, 4)
    assert make_at(KeptSquares(), places)["points.jsonl"].count(b"\n") == 4


def test_what_is_measured_is_measured_afresh_on_another_machine(tmp_path: Path) -> None:
    here, there = (Places(tmp_path / work, tmp_path / "results") for work in ("here", "there"))
    content = make_at(Squares(), here)
    assert set(content) == {"table.md", "points.json", "about.json"}
    assert Squares().progress(there) == (0, 4)


def test_studies_that_train_are_kept() -> None:
    assert all(issubclass(study, Kept) for study in (Forecasting, Recovery))
