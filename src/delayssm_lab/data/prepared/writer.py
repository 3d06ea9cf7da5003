"""Writer of prepared data sets.

A data set is written into a hidden directory, which is renamed to its final name once it is complete. The space for an
array is allocated before it is filled, so that a full disk is an error at once.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from delayssm.storage import files
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.prepared.location import ABOUT, FORMAT, array_path, data_root, digest
from delayssm_lab.data.prepared.stage import Stage, remove_leftovers

#: Errors of file systems that cannot allocate space without writing.
_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_ZEROS = bytes(1 << 20)


class Fillable(Protocol):
    """An array whose elements can be assigned."""

    def __setitem__(self, index: Any, value: Any, /) -> None:
        """Assign the elements at an index."""


class Appendable(Protocol):
    """A ragged array to which pieces can be appended."""

    def append(self, piece: bytes | NDArray[np.uint8], /) -> None:
        """Append one piece."""


class Output(ABC):
    """Destination of the arrays and facts of a data set."""

    @abstractmethod
    def array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> Fillable:
        """Create an array of zeros to be filled."""

    @abstractmethod
    def ragged(self, name: str) -> Appendable:
        """Create a ragged array of bytes, stored as the arrays `name` and `name_offsets`."""

    @abstractmethod
    def about(self, **facts: Any) -> None:
        """Add facts to about.json."""

    def put(self, name: str, array: NDArray[Any]) -> None:
        """Store a complete array."""
        self.array(name, array.shape, array.dtype)[...] = array


class NullOutput(Output):
    """An output that discards everything, for reading files only to verify them."""

    def array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> Fillable:
        """Return an array that discards what is assigned."""
        return _Sink()

    def ragged(self, name: str) -> Appendable:
        """Return a ragged array that discards what is appended."""
        return _Sink()

    def about(self, **facts: Any) -> None:
        """Discard the facts."""


class Writer(Output):
    """Context manager that writes one prepared data set.

    An earlier version of the data set stays in place until the new one is complete. After an error or an interruption,
    the unfinished files are removed. After a kill, the next writer of the same name removes them. Several processes may
    write the same data set; the one that finishes last wins.
    """

    _stage: Stage

    def __init__(self, name: str) -> None:
        self.name = name
        self.directory = data_root() / name
        self._about: dict[str, Any] = {"format": FORMAT, "name": name}
        self._arrays: dict[str, NDArray[Any]] = {}
        self._ragged: dict[str, _RaggedFile] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Create a memory-mapped array of zeros, whose space is allocated."""
        path = array_path(self._stage.new, name)
        with _failure_named(array_path(self.directory, name)):
            self._arrays[name] = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)
            _allocate(path)
        return self._arrays[name]

    def ragged(self, name: str) -> _RaggedFile:
        """Create a ragged array that is written to disk as it grows."""
        self._ragged[name] = _RaggedFile(array_path(self._stage.new, name), array_path(self.directory, name))
        return self._ragged[name]

    def about(self, **facts: Any) -> None:
        """Add facts to about.json. Every data set needs title, origin, missing and counts."""
        self._about |= facts

    def __enter__(self) -> Self:
        """Create the hidden directory."""
        try:
            remove_leftovers(self.directory)
            if self.directory.exists() and not self.directory.is_dir():
                raise DataError(f"{self.directory}: not a directory; remove it, or set DELAYSSM_DATA to another place")
            self._stage = Stage(self.directory)
        except OSError as error:
            raise OSError(
                error.errno,
                f"could not create {self.directory}: {error.strerror}; set DELAYSSM_DATA to a directory for the data",
            ) from error
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Move the complete data set to its directory, or remove the unfinished files after an error."""
        try:
            if error is None:
                self._finish()
        finally:
            for ragged in self._ragged.values():
                ragged.discard()
            self._arrays.clear()  # closes their files
            self._stage.remove()

    def _finish(self) -> None:
        for name, ragged in self._ragged.items():
            ragged.close()
            self.put(f"{name}_offsets", np.array(ragged.offsets, np.int64))
        for name, array in self._arrays.items():
            with _failure_named(array_path(self.directory, name)):
                array.flush()  # type: ignore[attr-defined]
        if missing := {"title", "origin", "missing", "counts"} - self._about.keys():
            raise ValueError(f"{ABOUT} of {self.name} has no {', '.join(sorted(missing))}; pass them to Writer.about")
        self._about["arrays"] = {path.stem: _array_facts(path) for path in sorted(self._stage.new.glob("*.npy"))}
        self._about["digest"] = digest(self._stage.new, self._about["arrays"])
        with _failure_named(self.directory / ABOUT):
            files.write(self._stage.new / ABOUT, json.dumps(self._about, indent=1).encode())
        self._stage.publish()


class _Sink:
    def __setitem__(self, index: Any, value: Any, /) -> None:
        pass

    def append(self, piece: bytes | NDArray[np.uint8], /) -> None:
        pass


class _RaggedFile:
    """A .npy file of bytes that grows.

    The header holds the length. It is padded, so that it can be overwritten with the final length. `shown` is the path
    for messages.
    """

    def __init__(self, path: Path, shown: Path) -> None:
        self.offsets = [0]
        self._shown = shown
        with _failure_named(shown):
            self._file = path.open("wb")
            self._write_header()

    def append(self, piece: bytes | NDArray[np.uint8], /) -> None:
        """Append one piece."""
        with _failure_named(self._shown):
            self.offsets.append(self.offsets[-1] + self._file.write(bytes(piece)))

    def close(self) -> None:
        """Write the final length into the header and close the file."""
        with _failure_named(self._shown):
            self._file.seek(0)
            self._write_header()
            self._file.close()

    def discard(self) -> None:
        """Close the file, if it is still open, without caring about its content."""
        with suppress(OSError):
            self._file.close()

    def _write_header(self) -> None:
        header = {"descr": "|u1", "fortran_order": False, "shape": (self.offsets[-1],)}
        np.lib.format.write_array_header_1_0(self._file, header)


@contextmanager
def _failure_named(path: Path) -> Iterator[None]:
    """Name the file that could not be written. What is at `path` itself is not touched before all is written."""
    try:
        yield
    except OSError as error:
        kept = "; the data set that was there before is untouched" if path.exists() else ""
        raise OSError(error.errno, f"could not write {path}: {os.strerror(error.errno or 0)}{kept}") from error


def _allocate(path: Path) -> None:
    """Allocate the space of a file of zeros. Without it, filling a memory map on a full disk kills the process."""
    with path.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        if size > shutil.disk_usage(path.parent).free:  # without filling the disk of others first
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                if error.errno not in _NOT_SUPPORTED:
                    raise
            else:
                return
        np.lib.format.read_magic(file)
        np.lib.format.read_array_header_1_0(file)
        for begin in range(file.tell(), size, len(_ZEROS)):
            file.write(_ZEROS[: size - begin])


def _array_facts(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        os.fsync(file.fileno())  # the array must be on disk before it replaces an earlier one
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return {"shape": array.shape, "dtype": str(array.dtype), "bytes": path.stat().st_size}
