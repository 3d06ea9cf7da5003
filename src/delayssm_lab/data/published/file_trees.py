"""Uniform access to files in a folder, a zip archive or a tar archive.

A name is a path with slashes, relative to the folder or archive. A file that was compressed on its own, `NAME.gz`, is
listed and read as `NAME`.
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

#: Stored names with their open files. Each file is closed when the next one is requested.
OpenFiles = Generator[tuple[str, IO[bytes]], None, None]
_DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError, zipfile.BadZipFile)
_BLOCK = 512  # bytes; a tar archive ends with blocks of zeros


class FileTree(ABC):
    """The files of one folder or archive."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._damage_reported(str(path)):
            stored = list(self._stored_names())
        for name in stored:
            if name.startswith("/") or ".." in PurePosixPath(name).parts:
                raise DataError(f"{path}: refused, because it contains {name!r}, a path outside of the archive")
        if duplicates := [name for name, count in Counter(stored).items() if count > 1]:
            raise DataError(f"{path}: contains {duplicates[0]} more than once; download it again")
        plain = {str(PurePosixPath(name)): name for name in stored}
        unpacked = {shown.removesuffix(".gz"): name for shown, name in plain.items() if shown.endswith(".gz")}
        self._stored = unpacked | {shown: name for shown, name in plain.items() if not shown.endswith(".gz")}

    @property
    def names(self) -> Collection[str]:
        """Names of all files."""
        return self._stored.keys()

    def subtree(self, prefix: str) -> Self:
        """Return the files whose names begin with `prefix`, which is removed from the names."""
        tree = copy.copy(self)
        tree._stored = {shown[len(prefix) :]: name for shown, name in self._stored.items() if shown.startswith(prefix)}
        return tree

    def path_of(self, name: str) -> str:
        """Return the path of a file for messages: `ARCHIVE: NAME` for a file in an archive."""
        return f"{self.path}: {self._stored.get(name, name)}"

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file for reading."""
        stored = self._stored[name]
        with self._damage_reported(self.path_of(name)), closing(self._open_each({stored})) as files:
            yield _decompressed(*next(files))

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with self.open(name) as file:
            return file.read()

    def read_each(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield names and contents in one pass, in the order in which the files are stored."""
        shown = {self._stored[name]: name for name in names}
        with self._damage_reported(str(self.path)), closing(self._open_each(shown.keys())) as files:
            for stored, file in files:
                with self._damage_reported(self.path_of(shown[stored])):
                    content = _decompressed(stored, file).read()
                yield shown[stored], content

    @contextmanager
    def _damage_reported(self, path: str) -> Iterator[None]:
        try:
            yield
        except _DAMAGE as error:
            raise DataError(f"{path}: damaged or incomplete ({error}); download it again") from error

    @abstractmethod
    def _stored_names(self) -> Iterable[str]:
        """List the names as they are stored, with the suffix .gz."""

    @abstractmethod
    def _open_each(self, stored: Collection[str]) -> OpenFiles:
        """Open the files with these stored names, one after the other."""


class Folder(FileTree):
    """The files in a folder and its subfolders, except hidden subfolders."""

    def path_of(self, name: str) -> str:
        """Return the path of a file for messages."""
        return str(self.path / self._stored.get(name, name))

    def _stored_names(self) -> Iterator[str]:
        for folder, subfolders, files in os.walk(self.path):
            subfolders[:] = [name for name in subfolders if not name.startswith(".")]
            yield from (Path(folder, name).relative_to(self.path).as_posix() for name in files)

    def _open_each(self, stored: Collection[str]) -> OpenFiles:
        for name in sorted(stored):
            with (self.path / name).open("rb") as file:
                yield name, file


class ZipArchive(FileTree):
    """The files in a zip archive, whose checksums are verified while reading."""

    def _stored_names(self) -> Iterator[str]:
        with zipfile.ZipFile(self.path) as archive:
            yield from (entry.filename for entry in archive.infolist() if not entry.is_dir())

    def _open_each(self, stored: Collection[str]) -> OpenFiles:
        with zipfile.ZipFile(self.path) as archive:
            for name in archive.namelist():
                if name in stored:
                    with archive.open(name) as file:
                        yield name, file


class TarArchive(FileTree):
    """The files in a tar archive, compressed or not.

    It is read from front to back, because seeking in a compressed archive is slow.
    """

    def _stored_names(self) -> Iterator[str]:
        with tarfile.open(self.path) as archive:
            yield from (entry.name for entry in archive if entry.isfile())
            # Only the zeros at the end distinguish a complete archive from one that was cut off between two files.
            file = cast(IO[bytes], archive.fileobj)
            file.seek(archive.offset)
            if file.read(_BLOCK) != bytes(_BLOCK):
                raise EOFError("no end of archive")

    def _open_each(self, stored: Collection[str]) -> OpenFiles:
        with tarfile.open(self.path) as archive:
            remaining = len(stored)
            for entry in archive:
                if entry.name in stored and entry.isfile():
                    yield entry.name, cast(IO[bytes], archive.extractfile(entry))
                    remaining -= 1
                if not remaining:
                    return


def find_tree(root: Path, folders: Sequence[str], file_pattern: str) -> FileTree | None:
    """Return the files of a data set, or None if there are none below `root`.

    They may be in one of the `folders` in `root` or in `root` itself, unpacked or in an archive of any name. Names in
    the tree are relative to the folder in which `file_pattern`, a regular expression, matches.
    """
    pattern = re.compile(f"((?:.*/)?){file_pattern}")
    for folder in [*(root / name for name in folders), root]:
        for tree in _trees(folder):
            prefixes = {match[1] for name in tree.names if (match := pattern.fullmatch(name))}
            if len(prefixes) > 1:
                copies = " and ".join(tree.path_of(prefix) for prefix in sorted(prefixes)[:2])
                raise DataError(f"there are several copies, {copies}; keep only one")
            if prefixes:
                return tree.subtree(prefixes.pop())
    return None


def _trees(folder: Path) -> Iterator[FileTree]:
    if not folder.is_dir():
        return
    yield Folder(folder)
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        if path.suffix == ".zip":
            yield ZipArchive(path)
        elif path.name.endswith((".tar", ".tar.gz", ".tgz")) or (path.suffix == ".gz" and _is_tar(path)):
            yield TarArchive(path)


def _is_tar(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except _DAMAGE:  # a damaged single file is reported when it is read
        return False


def _decompressed(stored: str, file: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], gzip.GzipFile(fileobj=file)) if stored.endswith(".gz") else file
