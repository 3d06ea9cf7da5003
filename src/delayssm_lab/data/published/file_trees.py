"""Uniform access to files in a folder, a zip archive or a tar archive.

A name is a path with slashes, relative to the folder or archive. A file that was compressed on its own, `NAME.gz`, is
listed and read as `NAME`. Every file is read with a limit, and only regular files are read.
"""

from __future__ import annotations

import copy
import io
import os
import re
import stat
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, Self, cast

from delayssm_lab.data import limits
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.published import tar
from delayssm_lab.data.published.streams import bounded, damage_reported, gunzip, open_regular, report_damage

#: Stored names with their open files. Each file is closed when the next one is requested.
OpenFiles = Generator[tuple[str, IO[bytes]], None, None]
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1


class Listed(NamedTuple):
    """Name of a file as it is stored, and why it is not read: "a symbolic link", or empty if it is."""

    name: str
    refused: str = ""


class FileTree(ABC):
    """The files of one folder or archive."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(self._list()) as files:
            listed = list(_limited(path, report_damage(str(path), files)))
        self._refused = {name: reason for name, reason in listed if reason}
        plain: dict[str, str] = {}
        for name, _ in listed:
            shown = str(PurePosixPath(name))
            if shown in plain:
                raise DataError(f"{path}: contains {shown} more than once; download it again")
            plain[shown] = name
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
    def open(self, name: str, limit: int) -> Iterator[IO[bytes]]:
        """Open a file for reading. More than `limit` bytes raise DataError."""
        with closing(self.open_each([name], limit)) as files:
            yield next(files)[1]

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of a file. More than `limit` bytes raise DataError."""
        with self.open(name, limit) as file:
            return file.read()

    def open_each(self, names: Iterable[str], limit: int) -> OpenFiles:
        """Yield names and files in one pass, in the order in which the files are stored.

        Each file is closed when the next one is requested. More than `limit` bytes in any of them raise DataError.
        """
        shown = {self._stored[name]: name for name in names}
        for stored, name in shown.items():
            if stored in self._refused:
                raise DataError(f"{self.path_of(name)}: {self._refused[stored]}, which is not read; download it again")
        with closing(self._open_each(shown.keys())) as files:
            for stored, file in report_damage(str(self.path), files):
                path = self.path_of(shown[stored])
                if stored.endswith(".gz"):
                    grown = limit + limit // 8 + limits.CHUNK  # what cannot be compressed grows a little
                    file = gunzip(bounded(path, file, grown))
                yield shown[stored], bounded(path, file, limit)

    def read_each(self, names: Iterable[str], limit: int) -> Iterator[tuple[str, bytes]]:
        """Yield names and contents in one pass, in the order in which the files are stored."""
        with closing(self.open_each(names, limit)) as files:
            for name, file in files:
                yield name, file.read()

    @abstractmethod
    def _list(self) -> Generator[Listed, None, None]:
        """List the files as they are stored, with the suffix .gz."""

    @abstractmethod
    def _open_each(self, stored: Collection[str]) -> OpenFiles:
        """Open the files with these stored names, one after the other."""


class Folder(FileTree):
    """The files in a folder and its subfolders, except hidden subfolders."""

    def path_of(self, name: str) -> str:
        """Return the path of a file for messages."""
        return str(self.path / self._stored.get(name, name))

    def _list(self) -> Generator[Listed, None, None]:
        for folder, subfolders, files in os.walk(self.path, onerror=_report_unreadable):
            subfolders[:] = [name for name in subfolders if not name.startswith(".")]
            names = (Path(folder, name).relative_to(self.path).as_posix() for name in files)
            yield from (Listed(name) for name in names if name.isprintable())  # other files are not published ones

    def _open_each(self, stored: Collection[str]) -> OpenFiles:
        for name in sorted(stored):
            with open_regular(self.path / name) as file:
                yield name, file


class ZipArchive(FileTree):
    """The files in a zip archive, whose checksums are verified while reading."""

    def _list(self) -> Generator[Listed, None, None]:
        with self._open_archive() as archive:
            for entry in archive.infolist():
                if not entry.is_dir():
                    yield Listed(entry.filename, _refused(entry))

    def _open_each(self, stored: Collection[str]) -> OpenFiles:
        with self._open_archive() as archive:
            for name in archive.namelist():
                if name in stored:
                    with damage_reported(f"{self.path}: {name}"):
                        file = archive.open(name)
                    with file:
                        yield name, file

    @contextmanager
    def _open_archive(self) -> Iterator[zipfile.ZipFile]:
        with _ZipSource(cast(io.RawIOBase, open_regular(self.path))) as source, zipfile.ZipFile(source) as archive:
            yield archive


class TarArchive(FileTree):
    """The files in a tar archive, compressed with gzip or not.

    It is read from front to back, because seeking in a compressed archive is slow.
    """

    def _list(self) -> Generator[Listed, None, None]:
        with _open_tar(self.path) as stream:
            yield from (Listed(entry.name, entry.refused) for entry in tar.read_entries(stream))

    def _open_each(self, stored: Collection[str]) -> OpenFiles:
        remaining = len(stored)
        with _open_tar(self.path) as stream:
            for entry in tar.read_entries(stream) if remaining else ():
                if entry.name in stored:
                    yield entry.name, entry.content
                    remaining -= 1
                    if not remaining:
                        return


def find_tree(root: Path, folders: Sequence[str], file_pattern: str) -> FileTree | None:
    """Return the files of a data set, or None if there are none below `root`.

    They may be in one of the `folders` in `root` or in `root` itself, unpacked or in an archive of any name. Names in
    the tree are relative to the folder in which `file_pattern`, a regular expression, matches.
    """
    if root.exists() and not root.is_dir():
        raise DataError(f"{root}: not a directory; name the directory of the published files")
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
    with damage_reported(str(folder)):
        paths = sorted(path for path in folder.iterdir() if path.name.isprintable() and not path.is_dir())
    for path in paths:
        if path.suffix == ".zip":
            yield ZipArchive(path)
        elif path.name.endswith((".tar", ".tar.gz", ".tgz")) or (path.suffix == ".gz" and _is_tar(path)):
            yield TarArchive(path)


def _limited(path: Path, listed: Iterable[Listed]) -> Iterator[Listed]:
    """Yield the listed files. Names that are too many, too long, or lead out of the archive raise DataError."""
    total = 0
    for number, item in enumerate(listed):
        total += len(item.name)
        if number >= limits.ENTRIES or total > limits.NAMES_BYTES:
            raise DataError(f"{path}: more than {limits.ENTRIES:,} files, or {limits.NAMES_BYTES:,} bytes of names")
        if len(item.name) > limits.NAME_BYTES or not item.name.isprintable():
            raise DataError(f"{path}: refused, because it contains {item.name[:80]!a}, which is not a plain name")
        if item.name.startswith("/") or ".." in PurePosixPath(item.name).parts:
            raise DataError(f"{path}: refused, because it contains {item.name!r}, a path outside of the archive")
        yield item


def _report_unreadable(error: OSError) -> None:
    raise DataError(f"{error.filename}: could not be read ({error.strerror})") from error


def _refused(entry: zipfile.ZipInfo) -> str:
    """Return why a file in a zip archive is not read; empty if it is."""
    mode = entry.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        return "a symbolic link" if stat.S_ISLNK(mode) else "a device or pipe"
    if entry.flag_bits & _ENCRYPTED:
        return "an encrypted file"
    return "" if entry.compress_type in _METHODS else f"a file compressed by method {entry.compress_type}"


class _ZipSource(io.BufferedReader):
    """File of a zip archive, whose directory is loaded only if it is not too large."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read at most `size` bytes."""
        if size is not None and size > limits.ZIP_DIRECTORY_BYTES:
            raise ValueError(f"its directory is larger than the limit of {limits.ZIP_DIRECTORY_BYTES:,} bytes")
        return super().read(size)


@contextmanager
def _open_tar(path: Path) -> Iterator[IO[bytes]]:
    with open_regular(path) as file:
        compressed = file.peek(2)[:2] == b"\x1f\x8b"  # type: ignore[attr-defined]
        yield gunzip(file) if compressed else file


def _is_tar(path: Path) -> bool:
    try:
        with damage_reported(str(path)), _open_tar(path) as stream:
            return tar.begins_archive(stream)
    except DataError:  # a damaged single file is reported when it is read
        return False
