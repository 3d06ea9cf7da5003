"""Published files, seen alike whether they lie in a folder or in an archive.

A name is a path with slashes, below the place where the files are. What was compressed on its own, `NAME.gz`, is shown
and read as `NAME`.
"""

from __future__ import annotations

import copy
import gzip
import os
import re
import tarfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Self, cast

from delayssm_lab.data.errors import DataError

#: Stored names and what is stored, each open until the next is asked for.
Opened = Generator[tuple[str, IO[bytes]], None, None]
_BROKEN = (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError, zipfile.BadZipFile)
_BLOCK = 512  # bytes; a tar archive ends with blocks of zeros


class Tree(ABC):
    """Names and contents of the files in one place."""

    def __init__(self, place: Path) -> None:
        self.place = place
        with self._whole(str(place)):
            stored = list(self._list())
        for name in stored:
            if name.startswith("/") or ".." in PurePosixPath(name).parts:
                raise DataError(f"{place}: refused, because it holds {name!r}, a name that leads out of it")
        if twice := [name for name, count in Counter(stored).items() if count > 1]:
            raise DataError(f"{place}: holds {twice[0]} more than once; get it again")
        plain = {str(PurePosixPath(name)): name for name in stored}
        unpacked = {shown.removesuffix(".gz"): name for shown, name in plain.items() if shown.endswith(".gz")}
        self._stored = unpacked | {shown: name for shown, name in plain.items() if not shown.endswith(".gz")}

    @property
    def names(self) -> Collection[str]:
        """Of all files."""
        return self._stored.keys()

    def below(self, base: str) -> Self:
        """The files whose names begin with `base`, without it."""
        part = copy.copy(self)
        part._stored = {shown[len(base) :]: name for shown, name in self._stored.items() if shown.startswith(base)}
        return part

    def where(self, name: str) -> str:
        """A file, for people."""
        return f"{self.place}: {self._stored.get(name, name)}"

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """One file, to be read from its beginning."""
        stored = self._stored[name]
        with self._whole(self.where(name)), closing(self._each({stored})) as found:
            yield _unpacked(*next(found))

    def read(self, name: str) -> bytes:
        """The content of one file."""
        with self.open(name) as file:
            return file.read()

    def each(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Names and contents in one pass, in the order in which they are stored."""
        shown = {self._stored[name]: name for name in names}
        with self._whole(str(self.place)), closing(self._each(shown.keys())) as found:
            for stored, file in found:
                with self._whole(self.where(shown[stored])):
                    content = _unpacked(stored, file).read()
                yield shown[stored], content

    @contextmanager
    def _whole(self, where: str) -> Iterator[None]:
        try:
            yield
        except _BROKEN as error:
            raise DataError(f"{where}: damaged or cut off ({error}); get it again") from error

    @abstractmethod
    def _list(self) -> Iterable[str]:
        """The names as they are stored."""

    @abstractmethod
    def _each(self, stored: Collection[str]) -> Opened:
        """Those of these stored names."""


class Folder(Tree):
    """The files in a folder and in the folders in it, except hidden ones."""

    def where(self, name: str) -> str:
        """A file, for people."""
        return str(self.place / self._stored.get(name, name))

    def _list(self) -> Iterator[str]:
        for folder, inner, files in os.walk(self.place):
            inner[:] = [name for name in inner if not name.startswith(".")]
            yield from (Path(folder, name).relative_to(self.place).as_posix() for name in files)

    def _each(self, stored: Collection[str]) -> Opened:
        for name in sorted(stored):
            with (self.place / name).open("rb") as file:
                yield name, file


class Zip(Tree):
    """A zip archive. Its checksums are compared as it is read."""

    def _list(self) -> Iterator[str]:
        with zipfile.ZipFile(self.place) as archive:
            yield from (entry.filename for entry in archive.infolist() if not entry.is_dir())

    def _each(self, stored: Collection[str]) -> Opened:
        with zipfile.ZipFile(self.place) as archive:
            for name in archive.namelist():
                if name in stored:
                    with archive.open(name) as file:
                        yield name, file


class Tar(Tree):
    """A tar archive, compressed or not. It is read from front to back: in a compressed one, nothing else is fast."""

    def _list(self) -> Iterator[str]:
        with tarfile.open(self.place) as archive:
            yield from (entry.name for entry in archive if entry.isfile())
            # An archive cut off between two files would look whole but for the zeros at its end.
            file = cast(IO[bytes], archive.fileobj)
            file.seek(archive.offset)
            if file.read(_BLOCK) != bytes(_BLOCK):
                raise EOFError("no end of archive")

    def _each(self, stored: Collection[str]) -> Opened:
        with tarfile.open(self.place) as archive:
            wanted = len(stored)
            for entry in archive:
                if entry.name in stored and entry.isfile():
                    yield entry.name, cast(IO[bytes], archive.extractfile(entry))
                    wanted -= 1
                if not wanted:
                    return


def search(place: Path, folders: Sequence[str], landmark: str) -> Tree | None:
    """The files beside and below the one whose name ends in `landmark`, a regular expression.

    They may lie in one of the `folders` in `place`, or in `place` itself; open, or in an archive whatever it is called.
    """
    pattern = re.compile(f"((?:.*/)?){landmark}")
    for folder in [*(place / name for name in folders), place]:
        for tree in _trees(folder):
            bases = {match[1] for name in tree.names if (match := pattern.fullmatch(name))}
            if len(bases) > 1:
                copies = " and ".join(tree.where(base) for base in sorted(bases)[:2])
                raise DataError(f"there are several copies, {copies}; leave one")
            if bases:
                return tree.below(bases.pop())
    return None


def _trees(folder: Path) -> Iterator[Tree]:
    if not folder.is_dir():
        return
    yield Folder(folder)
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        if path.suffix == ".zip":
            yield Zip(path)
        elif path.name.endswith((".tar", ".tar.gz", ".tgz")) or (path.suffix == ".gz" and _holds_tar(path)):
            yield Tar(path)


def _holds_tar(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except _BROKEN:  # a damaged file of its own: noticed by who needs it
        return False


def _unpacked(stored: str, file: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], gzip.GzipFile(fileobj=file)) if stored.endswith(".gz") else file
