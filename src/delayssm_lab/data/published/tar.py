"""Reader of tar archives from front to back, in bounded memory.

It reads what published archives consist of: headers of the old, POSIX and GNU formats, and long names of both kinds.
Other entries, such as links and devices, are named but not followed. Unlike tarfile, it keeps no list of entries, has
limits for headers that extend others, and notices an archive that ends without its closing zeros.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, cast

from delayssm_lab.data import limits

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BLOCK = 512
_REGULAR = (b"0", b"\0", b"7")  # 7 is a contiguous file
_DIRECTORY = b"5"
_LONG_NAME, _LONG_LINK = b"L", b"K"
_EXTENDED, _GLOBAL = b"x", b"g"
_REFUSED = {
    b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a named pipe",
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One entry of an archive.

    Args:
        name: Path in the archive.
        refused: What it is if it is not a regular file, such as "a symbolic link"; otherwise empty.
        content: Content, to be read before the next entry is requested.
    """

    name: str
    refused: str
    content: IO[bytes]


def read_entries(stream: IO[bytes]) -> Iterator[Entry]:
    """Yield all entries except directories.

    Damage raises ValueError or EOFError. After the last entry, the rest is read, so that checksums of a compressed
    archive are verified.
    """
    extensions: dict[bytes, bytes] = {}
    pending, total = 0, 0
    while (header := _read_exactly(stream, _BLOCK)) != bytes(_BLOCK):
        kind, size = _parse(header)
        if kind in _REGULAR and b"size" in extensions:
            size = _number(extensions[b"size"], base=10)
        total += _BLOCK + size
        if total > limits.ARCHIVE_BYTES:
            raise ValueError(f"larger than the limit of {limits.ARCHIVE_BYTES:,} bytes")
        if kind in (_LONG_NAME, _LONG_LINK, _EXTENDED, _GLOBAL):
            pending += 1
            if pending > limits.TAR_EXTENSIONS or size > limits.TAR_HEADER_BYTES:
                raise ValueError(f"headers beyond the limit of {limits.TAR_HEADER_BYTES:,} bytes")
            extensions |= _parse_extension(kind, _read_exactly(stream, size + -size % _BLOCK)[:size])
            continue
        name = extensions.get(b"GNU.sparse.name") or extensions.get(b"path") or _name(header)
        if kind in _REGULAR and not name.endswith(b"/"):
            content = _Section(stream, size)
            sparse = any(key.startswith(b"GNU.sparse.") for key in extensions)
            yield Entry(_decode(name), "a sparse file" if sparse else "", cast(IO[bytes], content))
            content.skip()
        elif kind in _REFUSED:
            yield Entry(_decode(name), _REFUSED[kind], io.BytesIO())
        elif kind not in (_DIRECTORY, *_REGULAR):
            raise ValueError(f"{_decode(name)!r} is of the kind {kind!r}, which is not supported")
        extensions, pending = {}, 0
    while not stream.seekable() and (rest := stream.read(limits.CHUNK)):
        total += len(rest)
        if total > limits.ARCHIVE_BYTES:
            raise ValueError(f"larger than the limit of {limits.ARCHIVE_BYTES:,} bytes")


def begins_archive(stream: IO[bytes]) -> bool:
    """Return whether a stream begins with the header of an entry."""
    try:
        _parse(_read_exactly(stream, _BLOCK))
    except (EOFError, ValueError):
        return False
    return True


class _Section(io.RawIOBase):
    """The next `size` bytes of a stream, and the padding after them."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._stream, self._left, self._padding = stream, size, -size % _BLOCK

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read at most what is left."""
        target = memoryview(buffer).cast("B")[: self._left]
        part = self._stream.read(len(target))
        if len(part) < len(target):
            raise EOFError("a file is cut off")
        target[:] = part
        self._left -= len(part)
        return len(part)

    def skip(self) -> None:
        """Move the stream behind the section."""
        left = self._left + self._padding
        self._left = 0
        if self._stream.seekable():
            self._stream.seek(left, os.SEEK_CUR)
            return
        while left:
            left -= len(_read_exactly(self._stream, min(left, limits.CHUNK)))


def _parse(header: bytes) -> tuple[bytes, int]:
    """Return the kind and the size of an entry. Raise ValueError if the header does not match its checksum."""
    blanked = header[:148] + b" " * 8 + header[156:]
    unsigned = sum(blanked)
    signed = unsigned - 256 * sum(byte > 127 for byte in blanked)  # as some old programs compute it
    if _number(header[148:156]) not in (unsigned, signed):
        raise ValueError("not a tar archive, or a damaged one: a header does not match its checksum")
    kind = header[156:157]
    stored = header[124:136]
    size = int.from_bytes(stored[1:], "big") if stored[0] == 0x80 else _number(stored)
    return kind, 0 if kind in (_DIRECTORY, *_REFUSED) else size


def _number(field: bytes, base: int = 8) -> int:
    digits = field.split(b"\0")[0].strip()
    if digits and not digits.isdigit():
        raise ValueError(f"{digits!r} is not a number")
    return int(digits or b"0", base)


def _name(header: bytes) -> bytes:
    name, prefix = header[:100].split(b"\0")[0], header[345:500].split(b"\0")[0]
    return prefix + b"/" + name if prefix and header[257:263] == b"ustar\0" else name


def _parse_extension(kind: bytes, content: bytes) -> dict[bytes, bytes]:
    """Return what a header says about the next entry: a name, or records of a length, a key and a value."""
    if kind == _LONG_LINK:
        return {}
    if kind == _LONG_NAME:
        return {b"path": content.split(b"\0")[0]}
    records = {}
    while content:
        digits = content[:8].split(b" ")[0]
        length = _number(digits, base=10)
        key, equals, value = content[len(digits) + 1 : length - 1].partition(b"=")
        if not equals or content[length - 1 : length] != b"\n":
            raise ValueError("a header is damaged")
        records[key] = value
        content = content[length:]
    return {} if kind == _GLOBAL else records  # what is said about all entries is a comment


def _decode(name: bytes) -> str:
    return name.decode(errors="surrogateescape")


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise EOFError("no end of archive")
    return content
