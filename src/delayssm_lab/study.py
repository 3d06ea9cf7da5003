"""Studies: points to measure, and files that present the results.

Readings are appended to a journal as soon as a point is measured, so an interrupted study resumes where it stopped: on
the same machine, or on any if its journal is part of the results. Files are made from the journal alone.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any, Generic, TypeVar

from delayssm.storage import files
from delayssm_lab.display import counted, duration
from delayssm_lab.environment import describe
from delayssm_lab.training import disk

#: Measured numbers by name.
Readings = dict[str, float]
#: File name and content.
File = tuple[str, bytes]
P = TypeVar("P")


@dataclass(frozen=True)
class Places:
    """The two directories of studies.

    Args:
        work: Runs and journals, from which an interrupted study continues on the same machine.
        results: Files that belong to the repository. A study writes to NAME in it, finished runs are in `runs`, and
            points that take long are in NAME/points.jsonl.
    """

    work: Path = Path("runs")
    results: Path = Path("results")


class Study(ABC):
    """A piece of evidence that `delayssm reproduce NAME` makes: tables, figures and the data behind them."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name on the command line and of the directory of results."""

    @property
    @abstractmethod
    def title(self) -> str:
        """One line on what the study shows."""

    @property
    def request(self) -> str:
        """Text printed after the results have been written."""
        return ""

    @abstractmethod
    def progress(self, places: Places) -> tuple[int, int]:
        """Return how many steps of the study are done, and how many there are."""

    def shown(self, places: Places) -> tuple[int, int]:
        """Return how many steps the results show, and how many there are.

        That is the progress, unless some steps were done by other code, whose results are not mixed with this code's.
        """
        return self.progress(places)

    @abstractmethod
    def run(self, places: Places) -> None:
        """Do the steps that are missing."""

    @abstractmethod
    def files(self, places: Places) -> Iterable[File]:
        """Yield the files of the results, made from the finished steps."""

    @abstractmethod
    def seconds(self, places: Places) -> float:
        """Return the total time of the finished steps, in seconds."""

    def write(self, places: Places) -> None:
        """Write the files of the results, and about.json with the command, date, machine and versions."""
        done, total = self.shown(places)
        if not done:
            finished, _ = self.progress(places)
            reason = f"all {finished} finished steps of {self.name} were done by other code" if finished else ""
            raise ValueError(
                f"{reason or f'no step of {self.name} is finished'}, so there are no results to write; "
                f"begin with `delayssm reproduce {self.name}`"
            )
        start = time.perf_counter()
        content = dict(self.files(places))
        day, environment = self.made(places)
        about = {
            "title": self.title,
            "command": f"delayssm reproduce {self.name}",
            "date": day,
            "done": done,
            "total": total,
            "seconds": round(self.seconds(places) + time.perf_counter() - start),
            "files": sorted(content),
            "environment": environment,
        }
        out = places.results / self.name
        files.make_directory(out)
        for name, data in {**content, "about.json": json.dumps(about, indent=1).encode()}.items():
            files.write(out / name, data)

    def made(self, places: Places) -> tuple[str, dict[str, str]]:
        """Return the date and the environment of the results: today's and this process's, unless recorded."""
        return date.today().isoformat(), describe()

    def done(self, places: Places) -> str:
        """Describe the finished steps, for the list of studies."""
        done, total = self.progress(places)
        return f"{done} of {total}"

    def results(self, places: Places) -> tuple[str, str]:
        """Describe the results and the time they took, for the list of studies."""
        out = places.results / self.name
        if not (out / "about.json").exists():
            return "none yet", "unknown"
        try:
            about = json.loads((out / "about.json").read_bytes())
            complete = "" if about["done"] == about["total"] else f", {about['done']} of {about['total']}"
            described = f"{out} of {about['date']}{complete}", duration(about["seconds"])
            missing = [name for name in about.get("files", ()) if not (out / name).exists()]
            other = about["total"] != self.progress(places)[1]
        except (KeyError, TypeError, ValueError) as error:
            return f"{out / 'about.json'} is damaged ({error!r})", "unknown"
        if missing:
            return f"{out} has lost {', '.join(missing)}", described[1]
        return f"{described[0]}{', by an earlier version of the study' if other else ''}", described[1]


class Computed(Study):
    """A study without measurements, computed when its files are written."""

    def progress(self, places: Places) -> tuple[int, int]:
        return 1, 1

    def done(self, places: Places) -> str:
        return "no steps"

    def run(self, places: Places) -> None:
        """Do nothing: there are no steps."""

    def seconds(self, places: Places) -> float:
        return 0.0


@dataclass(frozen=True)
class Entry:
    """One line of a journal."""

    point: dict[str, Any]
    values: Readings
    seconds: float
    date: str
    environment: dict[str, str]


class Journal:
    """A file with one line of JSON for each measured point."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self) -> list[Entry]:
        """Read all entries, ignoring a last line that was cut off by a crash."""
        lines = files.read(self.path).splitlines(keepends=True) if self.path.exists() else []
        return [self._entry(number, line) for number, line in enumerate(lines, 1) if line.endswith(b"\n")]

    def _entry(self, number: int, line: bytes) -> Entry:
        place, remedy = f"line {number} of {self.path}", "delete the line to measure its point again"
        try:
            return Entry(**disk.parse_object(line, place, remedy))
        except TypeError as error:
            raise ValueError(f"{place} is damaged ({error}); {remedy}") from error

    def add(self, entry: Entry) -> None:
        """Append an entry, after removing a last line that was cut off."""
        files.make_directory(self.path.parent)
        if self.path.exists() and not self.path.read_bytes().endswith(b"\n"):
            files.write(self.path, b"".join(self.path.read_bytes().splitlines(keepends=True)[:-1]))
        files.append(self.path, json.dumps(asdict(entry)))


class Measured(Study, Generic[P]):
    """A study that measures points, each a frozen dataclass of plain values."""

    @abstractmethod
    def points(self) -> list[P]:
        """Return the points in the order in which they are measured."""

    @abstractmethod
    def measure(self, point: P, places: Places) -> Readings:
        """Measure one point."""

    @abstractmethod
    def show(self, results: Mapping[P, Readings]) -> Iterable[File]:
        """Yield tables and figures of the points that have been measured."""

    def journal(self, places: Places) -> Journal:
        """Return the journal of this study."""
        return Journal(places.work / "studies" / f"{self.name}.jsonl")

    def progress(self, places: Places) -> tuple[int, int]:
        return len(self._known(places)), len(self.points())

    def run(self, places: Places) -> None:
        known = self._known(places)
        missing = [point for point in self.points() if point not in known]
        environment = describe()
        for point in counted(missing, self.name):
            start = time.perf_counter()
            values = self.measure(point, places)
            seconds = time.perf_counter() - start
            self.journal(places).add(Entry(_plain(point), values, seconds, date.today().isoformat(), environment))

    def seconds(self, places: Places) -> float:
        return sum(entry.seconds for entry in self._known(places).values())

    def made(self, places: Places) -> tuple[str, dict[str, str]]:
        last = list(self._known(places).values())[-1]
        return last.date, last.environment

    def files(self, places: Places) -> Iterable[File]:
        known = self._known(places)
        yield from self.show({point: entry.values for point, entry in known.items()})
        yield "points.json", json.dumps([asdict(entry) for entry in known.values()], indent=1).encode()

    def _known(self, places: Places) -> dict[P, Entry]:
        """Return the journal's entries of this study's points, in the order of the points."""
        entries = {json.dumps(entry.point): entry for entry in self.journal(places).entries()}
        keys = {point: json.dumps(_plain(point)) for point in self.points()}
        return {point: entries[key] for point, key in keys.items() if key in entries}


class Kept(Measured[P]):
    """A measured study whose points take long, such as those that train.

    Its journal is part of the results, so that a study that was interrupted goes on from there on any machine.
    """

    def journal(self, places: Places) -> Journal:
        return Journal(places.results / self.name / "points.jsonl")

    def files(self, places: Places) -> Iterable[File]:
        return self.show({point: entry.values for point, entry in self._known(places).items()})


def _plain(point: object) -> dict[str, Any]:
    return asdict(point)  # type: ignore[call-overload, no-any-return]
