"""Bounded reading of files from outside: regular files only, up to a limit, with errors that name the file."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, AnyStr, BinaryIO, TypeVar, cast

from delayssm_lab.data import limits
from delayssm_lab.data.errors import DataError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

T = TypeVar("T")

#: What readers of archives raise for bytes that they did not expect. RuntimeError includes encryption, methods that are
#: not implemented, and recursion.
_DAMAGE = (
    ArithmeticError, EOFError, LookupError, OSError, RuntimeError, ValueError, struct.error, zlib.error,
    zipfile.BadZipFile,
)  # fmt: skip
_GZIP = 16 + zlib.MAX_WBITS


@contextmanager
def damage_reported(path: str) -> Iterator[None]:
    """Turn the errors of readers into a DataError that names the file."""
    try:
        yield
    except DataError:
        raise
    except _DAMAGE as error:
        raise DataError(f"{path}: damaged or incomplete ({error}); download it again") from error


def report_damage(path: str, items: Iterator[T]) -> Iterator[T]:
    """Iterate, and turn the errors of the iterator, but not those of its consumer, into DataErrors."""
    while True:
        with damage_reported(path):
            try:
                item = next(items)
            except StopIteration:
                return
        yield item


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file, or raise DataError: a pipe would block, and a device may never end."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise DataError(f"{path}: not a regular file; replace it by the published one")
        return path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: could not be read ({error.strerror})") from error


def bounded(path: str, stream: IO[bytes], limit: int) -> IO[bytes]:
    """Return a stream that raises DataError beyond `limit` bytes and for damage. `path` names the file in messages."""
    return cast(IO[bytes], io.BufferedReader(_Bounded(path, stream, limit), limits.CHUNK))


def gunzip(stream: IO[bytes]) -> IO[bytes]:
    """Return the decompressed content of a gzip file, whose checksums are verified."""
    return cast(IO[bytes], io.BufferedReader(_Gunzip(stream), limits.CHUNK))


def bounded_lines(path: str, file: IO[AnyStr], limit: int) -> Iterator[AnyStr]:
    """Yield lines with their ends. A line that is longer than `limit` raises DataError."""
    number = 0
    while line := file.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise DataError(f"{path}, line {number}: longer than the limit of {limit:,}; download it again")
        yield line


class _Bounded(io.RawIOBase):
    def __init__(self, path: str, stream: IO[bytes], limit: int) -> None:
        self._path, self._stream, self._limit = path, stream, limit
        self._done = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read at most one chunk."""
        target = memoryview(buffer).cast("B")
        with damage_reported(self._path):
            part = self._stream.read(min(len(target), limits.CHUNK))
        self._done += len(part)
        if self._done > self._limit:
            raise DataError(f"{self._path}: larger than the limit of {self._limit:,} bytes; download it again")
        target[: len(part)] = part
        return len(part)


class _Gunzip(io.RawIOBase):
    """Content of a gzip file. Unlike GzipFile, it reads headers of any length in bounded time and memory."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._compressed = b""
        self._member = zlib.decompressobj(_GZIP)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read at most as much as the next chunk of the compressed file contains."""
        target = memoryview(buffer).cast("B")
        while True:
            if self._member.eof and not self._begin_member():
                return 0
            part = self._member.decompress(self._compressed, len(target))
            self._compressed = (
                self._member.unconsumed_tail
            )  # at the end of a member, unused_data holds the rest instead
            if part:
                target[: len(part)] = part
                return len(part)
            if not self._compressed and not self._member.eof:
                self._compressed = self._stream.read(limits.CHUNK)
                if not self._compressed:
                    raise EOFError("the compressed data end too early")

    def _begin_member(self) -> bool:
        """Go on to the next member, and return whether there is one. Zeros may follow each."""
        self._compressed = self._member.unused_data.lstrip(b"\0")
        while not self._compressed and (chunk := self._stream.read(limits.CHUNK)):
            self._compressed = chunk.lstrip(b"\0")
        if self._compressed:
            self._member = zlib.decompressobj(_GZIP)
        return bool(self._compressed)
