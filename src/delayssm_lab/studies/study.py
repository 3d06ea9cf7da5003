"""What a study is: points to measure, and files that show what was found.

What is measured is kept point by point in a journal as it is found, so a study that was interrupted goes on where it
was. What is shown is made from the journal alone.
"""

from __future__ import annotations

import json
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from delayssm.storage import files
from delayssm_lab.display import counted, duration
from delayssm_lab.environment import describe

Found = dict[str, float]
P = TypeVar("P")
#: File name and content.
File = tuple[str, bytes]


class Study(ABC):
    """One piece of evidence."""

    name: ClassVar[str]
    title: ClassVar[str]
    #: Added to what is said when results are there.
    request: ClassVar[str] = ""

    @abstractmethod
    def progress(self, work: Path) -> tuple[int, int]:
        """How many of its parts are done, and how many there are."""

    @abstractmethod
    def run(self, work: Path) -> None:
        """Do what is missing. `work` is where runs and journals of all studies are kept."""

    def adopt(self, out: Path, work: Path) -> None:
        """Take from results that are in `out` what is not done in `work`, as if it had been done there."""
        raise ValueError(f"results of {self.name} cannot be added to; without --add they are written anew")

    @abstractmethod
    def files(self, work: Path) -> Iterable[File]:
        """What is shown, from what is done."""

    @abstractmethod
    def seconds(self, work: Path) -> float:
        """What the parts that are done have taken, one after another."""

    def write(self, work: Path, out: Path) -> None:
        """Put the files into `out`, and about.json: where, when and how they came to be."""
        done, total = self.progress(work)
        if not done:
            raise ValueError(f"nothing of {self.name} is done in {work}, so there is nothing to show")
        began = time.perf_counter()
        content = dict(self.files(work))
        day, environment = self.made(work)
        about = {
            "title": self.title,
            "command": f"delayssm reproduce {self.name}",
            "date": day,
            "done": done,
            "total": total,
            "seconds": round(self.seconds(work) + time.perf_counter() - began),
            "environment": environment,
        }
        out.mkdir(parents=True, exist_ok=True)
        for name, data in {**content, "about.json": json.dumps(about, indent=1).encode()}.items():
            files.write(out / name, data)

    def made(self, work: Path) -> tuple[str, dict[str, str]]:
        """When and in what surroundings the results came about: unless something was measured, now and here."""
        return date.today().isoformat(), surroundings()

    def results(self, out: Path) -> tuple[str, str]:
        """What is written in `out`, and what it took, in words."""
        if not (out / "about.json").exists():
            return "none yet", "unknown"
        about = json.loads((out / "about.json").read_text())
        complete = "" if about["done"] == about["total"] else f", {about['done']} of {about['total']}"
        return f"{out} of {about['date']}{complete}", duration(about["seconds"])


class Computed(Study):
    """A study that needs no measurement: all of it is computed when it is drawn."""

    def progress(self, work: Path) -> tuple[int, int]:
        return 1, 1

    def run(self, work: Path) -> None:
        """Nothing to prepare."""

    def seconds(self, work: Path) -> float:
        return 0.0


@dataclass(frozen=True)
class Entry:
    """One line of a journal."""

    point: dict[str, Any]
    found: Found
    seconds: float
    date: str
    environment: dict[str, str]


class Journal:
    """What was found, point by point."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self) -> list[Entry]:
        """All so far; a line that a crash has cut off does not count."""
        lines = self.path.read_text().splitlines(keepends=True) if self.path.exists() else []
        return [Entry(**json.loads(line)) for line in lines if line.endswith("\n")]

    def add(self, entry: Entry) -> None:
        """Write one more."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and not self.path.read_bytes().endswith(b"\n"):
            files.write(self.path, b"".join(self.path.read_bytes().splitlines(keepends=True)[:-1]))
        files.append(self.path, json.dumps(asdict(entry)))


class Measured(Study, Generic[P]):
    """A study of points, each a frozen dataclass of plain values."""

    @abstractmethod
    def points(self) -> list[P]:
        """What is to be measured, in this order."""

    @abstractmethod
    def measure(self, point: P, work: Path) -> Found:
        """Numbers by name."""

    @abstractmethod
    def show(self, found: Mapping[P, Found]) -> Iterable[File]:
        """Files made from what was found."""

    def journal(self, work: Path) -> Journal:
        """Where it is kept."""
        return Journal(work / "studies" / f"{self.name}.jsonl")

    def progress(self, work: Path) -> tuple[int, int]:
        return len(self._known(work)), len(self.points())

    def run(self, work: Path) -> None:
        known = self._known(work)
        missing = [point for point in self.points() if point not in known]
        environment = surroundings()
        for point in counted(missing, self.name):
            began = time.perf_counter()
            found = self.measure(point, work)
            seconds = time.perf_counter() - began
            entry = Entry(_plain(point), found, seconds, date.today().isoformat(), environment)
            self.journal(work).add(entry)

    def seconds(self, work: Path) -> float:
        return sum(entry.seconds for entry in self._known(work).values())

    def made(self, work: Path) -> tuple[str, dict[str, str]]:
        last = list(self._known(work).values())[-1]
        return last.date, last.environment

    def files(self, work: Path) -> Iterable[File]:
        known = self._known(work)
        yield from self.show({point: entry.found for point, entry in known.items()})
        yield "points.json", json.dumps([asdict(entry) for entry in known.values()], indent=1).encode()

    def _known(self, work: Path) -> dict[P, Entry]:
        """What was found of this study's points, in their order."""
        found = {json.dumps(entry.point): entry for entry in self.journal(work).entries()}
        keys = {point: json.dumps(_plain(point)) for point in self.points()}
        return {point: found[key] for point, key in keys.items() if key in found}


def _plain(point: object) -> dict[str, Any]:
    return asdict(point)  # type: ignore[call-overload, no-any-return]


def surroundings() -> dict[str, str]:
    """What this process runs on, the model of the CPU included."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {**describe(), "machine": names[0] if names else platform.processor() or platform.machine()}
