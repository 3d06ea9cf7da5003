"""Studies of trained models.

Runs are trained when a study needs them. What a finished run has found goes to the results at once, and every study of
the same runs goes on from there, on any machine.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from delayssm_lab.report.collect import Results, group
from delayssm_lab.study import Places, Study
from delayssm_lab.training import fingerprint
from delayssm_lab.training.record import Record
from delayssm_lab.training.run import Run
from delayssm_lab.training.store import Store
from delayssm_lab.training.sweep import sweep


def no_run(run: Run) -> bool:
    """Return False."""
    return False


def every_run(run: Run) -> bool:
    """Return True."""
    return True


@dataclass(frozen=True)
class Shelf:
    """Runs of one kind, which have a directory of their own in both places.

    Args:
        name: Name of the directories.
        keeps_weights: Returns whether the weights of a run are kept with the results.
    """

    name: str
    keeps_weights: Callable[[Run], bool] = no_run

    def store(self, places: Places) -> Store:
        """Return the finished runs."""
        return Store(places.results / "runs" / self.name)

    def train(self, runs: Sequence[Run], places: Places) -> None:
        """Train all runs that are not finished, or not by this code; raise an error at the end if any has failed."""
        store, work = self.store(places), places.work / self.name
        missing = [run for run in runs if store.find(run) is None]
        for run in missing:
            _refuse_other_code(work / run.name, run)
        by_directory = {work / run.name: run for run in missing}

        def keep(directory: Path) -> None:
            store.add(directory, self.keeps_weights(by_directory[directory]))

        if failed := [outcome for outcome in sweep(missing, work, finished=keep) if outcome.error]:
            raise ChildProcessError("; ".join(map(str, failed)))


#: Returns the record of a run, or None if there is none.
Finder = Callable[[Shelf, Run], Record | None]


def of_any_code(places: Places) -> Finder:
    """Return a function that finds the records of runs, whichever code has made them: fast, for counting."""
    return lambda shelf, run: shelf.store(places).read(run)


def of_this_code(places: Places) -> Finder:
    """Return a function that finds the records of runs that this code has made."""
    return lambda shelf, run: shelf.store(places).find(run)


def _refuse_other_code(directory: Path, run: Run) -> None:
    """Raise if other code has begun a run. Training checks only runs that go on; those that have ended count, too."""
    fingerprint.refuse_other_code(directory, run)


class OfRuns(Study):
    """A study whose steps are finished runs.

    Its progress counts runs that any code has made, because comparing fingerprints takes time. Its results show runs of
    this code only.
    """

    @abstractmethod
    def steps(self, find: Finder) -> tuple[list[Record], int]:
        """Return the records of the finished steps, and how many steps there are."""

    def progress(self, places: Places) -> tuple[int, int]:
        records, total = self.steps(of_any_code(places))
        return len(records), total

    def shown(self, places: Places) -> tuple[int, int]:
        records, total = self.steps(of_this_code(places))
        return len(records), total

    def seconds(self, places: Places) -> float:
        return total_seconds(self.steps(of_this_code(places))[0])

    def made(self, places: Places) -> tuple[str, dict[str, str]]:
        newest = max(self.steps(of_this_code(places))[0], key=lambda record: record.date)
        return newest.date, newest.environment


@dataclass(frozen=True)
class Trained(OfRuns):
    """A study of trained models.

    Args:
        runs: Runs in the order in which they are trained.
        shelf: Where they are kept.
    """

    runs: tuple[Run, ...]
    shelf: Shelf

    def steps(self, find: Finder) -> tuple[list[Record], int]:
        return records_of(self.shelf, self.runs, find), len(self.runs)

    def run(self, places: Places) -> None:
        self.shelf.train(self.runs, places)

    def records(self, places: Places) -> list[Record]:
        """Return the records of the finished runs."""
        return records_of(self.shelf, self.runs, of_this_code(places))

    def collected(self, places: Places) -> Results:
        """Return the results of the finished runs."""
        return group(self.records(places))


def records_of(shelf: Shelf, runs: Sequence[Run], find: Finder) -> list[Record]:
    """Return the records of those runs that are finished."""
    records = (find(shelf, run) for run in runs)
    return [record for record in records if record is not None]


def total_seconds(records: Iterable[Record]) -> float:
    """Return the time that finished runs took."""
    return sum(record.summary["seconds"] for record in records if record.summary is not None)
