"""What a published data set is: where its files come from, and how they become arrays."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from delayssm_lab.data.errors import DataError
from delayssm_lab.data.prepared.writer import Output
from delayssm_lab.data.published.trees import Tree, search

#: Is told how much is done, and of how much.
Progress = Callable[[int, int], None]


def silent(done: int, total: int) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Download:
    """A published file. The checksum is like "md5:0123..."; None where none is known."""

    file: str
    url: str
    checksum: str | None


@dataclass
class Reading:
    """Reading one data set: from where, to where, and what was found missing."""

    tree: Tree
    out: Output
    partial: bool
    progress: Progress
    missing: list[str] = field(default_factory=list)
    total: int = 0
    done: int = 0

    def step(self) -> None:
        """Another of `total` is done."""
        self.done += 1
        self.progress(self.done, self.total)

    def lacks(self, missing: Iterable[str]) -> None:
        """Note what is missing. That is an error, unless a part is enough."""
        self.missing += missing
        if self.missing and not self.partial:
            raise DataError(
                f"{self.tree.place}: incomplete, without {'; '.join(self.missing)}. "
                f"Get the rest, or take what is there: --partial"
            )


@dataclass(frozen=True, kw_only=True)
class DataSet(ABC):
    """One data set.

    Args:
        name: in commands and paths.
        title: for people.
        licence: under which it is published.
        page: where it is published.
        size: of the published files in bytes, as far as known.
        downloads: the published files.
        counts: how many samples are published, by split.
        landmark: how the names of its files end, as a regular expression.
        release: the folder of its files, where one release holds several data sets; otherwise that is its name.
        generated: whether this library can also make such data.
    """

    name: str
    title: str
    licence: str
    page: str
    size: int
    downloads: tuple[Download, ...]
    counts: Mapping[str, int]
    landmark: str
    release: str = ""
    generated: bool = False

    @property
    def folder(self) -> str:
        """Where downloads go."""
        return self.release or self.name

    def search(self, place: Path) -> Tree | None:
        """Its files below `place`: in a folder called like it or in `place` itself, unpacked or in an archive."""
        return search(place, (self.name, self.name.replace("-", "_"), self.folder), self.landmark)

    def find(self, place: Path) -> Tree:
        """Its files below `place`, which must be there."""
        found = self.search(place)
        if found is None:
            wanted = ", ".join(download.file for download in self.downloads)
            raise DataError(
                f"no files of {self.name} below {place.resolve()}. Let them be fetched: --download. "
                f"Or put {wanted} from {self.page} into {(place / self.folder).resolve()}"
            )
        return found

    def absent(self, place: Path) -> list[Download]:
        """Downloads that are needed: all if nothing is there, or those files that are not."""
        found = self.search(place)
        if found is None:
            return [*self.downloads]
        files = {download.file.removesuffix(".gz"): download for download in self.downloads}
        return [files[name] for name in files if re.fullmatch(self.landmark, name) and name not in found.names]

    def read(self, place: Path, out: Output, partial: bool = False, progress: Progress = silent) -> list[str]:
        """Verify the published files below `place` and turn them into arrays.

        What is damaged is an error. So is what is incomplete, unless `partial`. Gives what is missing.
        """
        reading = Reading(self.find(place), out, partial, progress)
        found = self._read(reading)
        for split, published in self.counts.items():
            if found.get(split, 0) > published:
                raise DataError(
                    f"{reading.tree.place}: {found[split]:,} samples for {split}, more than the {published:,} published"
                )
        fewer = {split: n for split, n in self.counts.items() if found.get(split, 0) < n}
        reading.lacks(f"{n - found.get(split, 0):,} of {n:,} samples for {split}" for split, n in fewer.items())
        out.about(title=self.title, origin="published", missing=reading.missing, counts=found)
        return reading.missing

    @abstractmethod
    def _read(self, reading: Reading) -> dict[str, int]:
        """Write all arrays; gives how many samples there are, by split."""


def verify(where: str, content: bytes, checksum: str) -> None:
    """Compare with a checksum like "md5:0123..."."""
    kind, _, expected = checksum.partition(":")
    found = hashlib.new(kind, content).hexdigest()
    if found != expected:
        raise DataError(f"{where}: damaged, its {kind} is {found} instead of {expected}; get it again")


def text(where: str, content: bytes) -> str:
    """Of a file that must be UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: not UTF-8 text ({error.reason} at byte {error.start}); get it again") from error
