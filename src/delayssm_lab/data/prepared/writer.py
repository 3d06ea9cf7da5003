"""Writer of prepared data sets.

A data set is written into a hidden directory, which is renamed to its final name once it is complete.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import uuid
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from delayssm.storage import files
from delayssm_lab.data.prepared.location import ABOUT, array_path, data_root, digest


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
    the unfinished files are removed. After a kill, the next writer of the same name removes them.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.directory = data_root() / name
        self._stage = data_root() / f".{name}.{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex}.part"
        self._about: dict[str, Any] = {"name": name}
        self._arrays: dict[str, NDArray[Any]] = {}
        self._ragged: dict[str, _RaggedFile] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Create a memory-mapped array of zeros."""
        path = array_path(self._stage, name)
        self._arrays[name] = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)
        return self._arrays[name]

    def ragged(self, name: str) -> _RaggedFile:
        """Create a ragged array that is written to disk as it grows."""
        self._ragged[name] = _RaggedFile(array_path(self._stage, name))
        return self._ragged[name]

    def about(self, **facts: Any) -> None:
        """Add facts to about.json. Every data set needs title, origin, missing and counts."""
        self._about |= facts

    def __enter__(self) -> Self:
        """Create the hidden directory."""
        _remove_leftovers(self.name)
        self._stage.mkdir(parents=True)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Move the complete data set to its directory, or remove the unfinished files after an error."""
        try:
            for ragged in self._ragged.values():
                ragged.close()
            if error is None:
                self._finish()
        finally:
            shutil.rmtree(self._stage, ignore_errors=True)

    def _finish(self) -> None:
        for name, ragged in self._ragged.items():
            self.put(f"{name}_offsets", np.array(ragged.offsets, np.int64))
        for array in self._arrays.values():
            array.flush()  # type: ignore[attr-defined]
        if missing := {"title", "origin", "missing", "counts"} - self._about.keys():
            raise ValueError(f"{ABOUT} of {self.name} has no {', '.join(sorted(missing))}; pass them to Writer.about")
        self._about["arrays"] = {path.stem: _array_facts(path) for path in sorted(self._stage.glob("*.npy"))}
        self._about["digest"] = digest(self._stage, self._about["arrays"])
        files.write(self._stage / ABOUT, json.dumps(self._about, indent=1).encode())
        previous = self._stage.with_suffix(".old.part")
        if self.directory.exists():  # a directory that is not empty cannot be replaced in one step
            os.rename(self.directory, previous)
        try:
            os.rename(self._stage, self.directory)
        except OSError:
            if previous.exists():
                os.rename(previous, self.directory)
            raise
        shutil.rmtree(previous, ignore_errors=True)


class _Sink:
    def __setitem__(self, index: Any, value: Any, /) -> None:
        pass

    def append(self, piece: bytes | NDArray[np.uint8], /) -> None:
        pass


class _RaggedFile:
    """A .npy file of bytes that grows.

    The header holds the length. It is padded, so that it can be overwritten with the final length.
    """

    def __init__(self, path: Path) -> None:
        self.offsets = [0]
        self._file = path.open("wb")
        self._write_header()

    def append(self, piece: bytes | NDArray[np.uint8], /) -> None:
        """Append one piece."""
        self.offsets.append(self.offsets[-1] + self._file.write(bytes(piece)))

    def close(self) -> None:
        """Write the final length into the header and close the file."""
        self._file.seek(0)
        self._write_header()
        self._file.close()

    def _write_header(self) -> None:
        header = {"descr": "|u1", "fortran_order": False, "shape": (self.offsets[-1],)}
        np.lib.format.write_array_header_1_0(self._file, header)


def _array_facts(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        os.fsync(file.fileno())  # the array must be on disk before it replaces an earlier one
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return {"shape": array.shape, "dtype": str(array.dtype), "bytes": path.stat().st_size}


def _remove_leftovers(name: str) -> None:
    """Remove the unfinished files of processes on this machine that no longer run."""
    pattern = re.compile(rf"\.{re.escape(name)}\.{re.escape(socket.gethostname())}\.(\d+)\.\w+(\.old)?\.part")
    for path in data_root().glob(f".{name}.*.part"):
        match = pattern.fullmatch(path.name)
        if match and not _is_running(int(match[1])):
            shutil.rmtree(path, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
