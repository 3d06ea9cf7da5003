"""Base class of published data sets: where their files come from, and how the files become arrays."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from delayssm_lab.data.errors import DataError, printable
from delayssm_lab.data.prepared.writer import Output
from delayssm_lab.data.published.file_trees import FileTree, find_tree

T = TypeVar("T")

#: Callback that receives the amount of work done and the total.
OnProgress = Callable[[int, int], None]


def ignore_progress(done: int, total: int) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Download:
    """A published file. The checksum has the form "md5:0123..."; None if none is published."""

    file: str
    url: str
    checksum: str | None


@dataclass
class ReadContext:
    """Source, destination and progress of reading one data set.

    Args:
        tree: Published files.
        out: Destination of the arrays.
        counts: Number of published samples by split.
        partial: Whether an incomplete data set is accepted.
        on_progress: Callback for progress.
        missing: What was found to be missing.
        total: Number of steps.
        done: Number of steps done.
    """

    tree: FileTree
    out: Output
    counts: Mapping[str, int]
    partial: bool
    on_progress: OnProgress
    missing: list[str] = field(default_factory=list)
    total: int = 0
    done: int = 0

    def advance(self) -> None:
        """Report that one more step is done."""
        self.done += 1
        self.on_progress(self.done, self.total)

    def check_counts(self, counts: Mapping[str, int]) -> None:
        """Raise DataError if there are more samples than published.

        Readers call it before they allocate arrays or lists for that many.
        """
        for split, published in self.counts.items():
            if counts.get(split, 0) > published:
                raise DataError(
                    f"{self.tree.path}: {counts[split]:,} samples for {split}, more than the {published:,} "
                    "published; remove files that do not belong to it"
                )

    def count(self, split: str, rows: Iterable[T]) -> Iterator[T]:
        """Yield rows of a split, and report each as done. Raise DataError as soon as they are more than published."""
        for number, row in enumerate(rows, 1):
            self.check_counts({split: number})
            yield row
            self.advance()

    def report_missing(self, missing: Iterable[str]) -> None:
        """Record what is missing. Raise DataError if there is any, unless `partial`."""
        self.missing += map(printable, missing)
        if self.missing and not self.partial:
            raise DataError(
                f"{self.tree.path}: incomplete, without {'; '.join(self.missing)}. "
                f"Download the rest, or accept an incomplete data set with --partial"
            )


@dataclass(frozen=True, kw_only=True)
class DataSet(ABC):
    """A data set: its origin, and how its published files are read.

    Args:
        name: Name in commands and paths.
        title: Human-readable name.
        licence: Licence of the published files.
        page: Web page of the data set.
        size: Size of the published files in bytes; approximate if no exact size is known.
        downloads: Published files.
        counts: Number of published samples by split.
        file_pattern: Regular expression that its file names match.
        release: Folder of its files if one release holds several data sets; by default the name.
        can_generate: Whether the data set can also be generated.
    """

    name: str
    title: str
    licence: str
    page: str
    size: int
    downloads: tuple[Download, ...]
    counts: Mapping[str, int]
    file_pattern: str
    release: str = ""
    can_generate: bool = False

    @property
    def folder(self) -> str:
        """Name of the folder for downloads."""
        return self.release or self.name

    def find_files(self, root: Path) -> FileTree | None:
        """Return the published files, or None if there are none below `root`.

        They may be in a folder named after the data set or in `root` itself, unpacked or in an archive.
        """
        return find_tree(root, (self.name, self.name.replace("-", "_"), self.folder), self.file_pattern)

    def require_files(self, root: Path) -> FileTree:
        """Return the published files below `root`. Raise DataError if there are none."""
        tree = self.find_files(root)
        if tree is None:
            files = ", ".join(download.file for download in self.downloads)
            where = " below" if root.is_dir() else ", because there is no directory"
            raise DataError(
                f"no files of {self.name}{where} {root.resolve()}. Download them with --download, "
                f"or put {files} from {self.page} into {(root / self.folder).resolve()}"
            )
        return tree

    def missing_downloads(self, root: Path) -> list[Download]:
        """Return the downloads that are not below `root`."""
        tree = self.find_files(root)
        if tree is None:
            return [*self.downloads]
        files = {download.file.removesuffix(".gz"): download for download in self.downloads}
        return [files[name] for name in files if re.fullmatch(self.file_pattern, name) and name not in tree.names]

    def read(
        self, root: Path, out: Output, partial: bool = False, on_progress: OnProgress = ignore_progress
    ) -> list[str]:
        """Verify the published files below `root`, convert them to arrays, and return what is missing.

        Damaged files raise DataError. So do missing files or samples, unless `partial`.
        """
        context = ReadContext(self.require_files(root), out, self.counts, partial, on_progress)
        counts = self._read(context)
        context.check_counts(counts)
        fewer = {split: n for split, n in self.counts.items() if counts.get(split, 0) < n}
        context.report_missing(
            f"{n - counts.get(split, 0):,} of {n:,} samples for {split}" for split, n in fewer.items()
        )
        out.about(title=self.title, origin="published", missing=context.missing, counts=counts)
        return context.missing

    @abstractmethod
    def _read(self, context: ReadContext) -> dict[str, int]:
        """Write all arrays and return the number of samples by split."""


def verify_checksum(path: str, pieces: Iterable[bytes], checksum: str) -> None:
    """Raise DataError if a content, in pieces, does not match a checksum of the form "md5:0123..."."""
    algorithm, _, expected = checksum.partition(":")
    digest = hashlib.new(algorithm)
    for piece in pieces:
        digest.update(piece)
    actual = digest.hexdigest()
    if actual != expected:
        raise DataError(f"{path}: damaged, its {algorithm} is {actual} instead of {expected}; download it again")


def decode_utf8(path: str, content: bytes) -> str:
    """Return the text of a file. Raise DataError if it is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}); download it again") from error
