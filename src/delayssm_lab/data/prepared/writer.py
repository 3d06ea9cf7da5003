"""Making a prepared data set: in a hidden directory beside its place, which it takes when all is done."""

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
from delayssm_lab.data.prepared.location import ABOUT, digest, file, root


class Slots(Protocol):
    """An array to be filled."""

    def __setitem__(self, index: Any, value: Any, /) -> None:
        """Fill a part of it."""


class Pieces(Protocol):
    """Pieces of different lengths, one after the other."""

    def append(self, piece: bytes | NDArray[np.uint8], /) -> None:
        """Add one."""


class Output(ABC):
    """Where a data set puts what it has read."""

    @abstractmethod
    def array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> Slots:
        """An array of zeros, to be filled."""

    @abstractmethod
    def ragged(self, name: str) -> Pieces:
        """Pieces of different lengths, to be appended: in the end, the arrays `name` and `name_offsets`."""

    @abstractmethod
    def about(self, **facts: Any) -> None:
        """Facts for about.json."""

    def put(self, name: str, array: NDArray[Any]) -> None:
        """A whole array."""
        self.array(name, array.shape, array.dtype)[...] = array


class Nowhere(Output):
    """Takes everything and keeps nothing: for reading only to check."""

    def array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> Slots:
        """Something that can be filled."""
        return _Sink()

    def ragged(self, name: str) -> Pieces:
        """Something that can be appended to."""
        return _Sink()

    def about(self, **facts: Any) -> None:
        """Nothing."""


class Writer(Output):
    """Writes one prepared data set; use it with `with`.

    What was prepared before stays until the new one is whole. After an error or an interruption nothing is left over;
    after a kill, the next writer of this name removes what was.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.place = root() / name
        self._stage = root() / f".{name}.{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex}.part"
        self._about: dict[str, Any] = {"name": name}
        self._arrays: dict[str, NDArray[Any]] = {}
        self._ragged: dict[str, _Ragged] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array of zeros, memory-mapped."""
        path = file(self._stage, name)
        self._arrays[name] = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)
        return self._arrays[name]

    def ragged(self, name: str) -> _Ragged:
        """Pieces of different lengths, to be appended."""
        self._ragged[name] = _Ragged(file(self._stage, name))
        return self._ragged[name]

    def about(self, **facts: Any) -> None:
        """Facts for about.json; each data set needs title, origin, missing and counts."""
        self._about |= facts

    def __enter__(self) -> Self:
        """Begin."""
        _remove_leftovers(self.name)
        self._stage.mkdir(parents=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Take the place, or leave no trace."""
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
        if lacking := {"title", "origin", "missing", "counts"} - self._about.keys():
            raise ValueError(f"{self.name} says nothing about its {', '.join(sorted(lacking))}")
        self._about["arrays"] = {path.stem: _facts(path) for path in sorted(self._stage.glob("*.npy"))}
        self._about["digest"] = digest(self._stage, self._about["arrays"])
        files.write(self._stage / ABOUT, json.dumps(self._about, indent=1).encode())
        before = self._stage.with_suffix(".old.part")
        if self.place.exists():  # a directory cannot be replaced in one step
            os.rename(self.place, before)
        try:
            os.rename(self._stage, self.place)
        except OSError:
            if before.exists():
                os.rename(before, self.place)
            raise
        shutil.rmtree(before, ignore_errors=True)


class _Sink:
    def __setitem__(self, index: Any, value: Any, /) -> None:
        pass

    def append(self, piece: bytes | NDArray[np.uint8], /) -> None:
        pass


class _Ragged:
    """A file of bytes that grows. Its header, which says how long it is, has room for any number."""

    def __init__(self, path: Path) -> None:
        self.offsets = [0]
        self._file = path.open("wb")
        self._head()

    def append(self, piece: bytes | NDArray[np.uint8], /) -> None:
        """Add one."""
        self.offsets.append(self.offsets[-1] + self._file.write(bytes(piece)))

    def close(self) -> None:
        """Write down how long it is."""
        self._file.seek(0)
        self._head()
        self._file.close()

    def _head(self) -> None:
        facts = {"descr": "|u1", "fortran_order": False, "shape": (self.offsets[-1],)}
        np.lib.format.write_array_header_1_0(self._file, facts)


def _facts(path: Path) -> dict[str, Any]:
    with path.open("rb") as written:
        os.fsync(written.fileno())  # what takes the place of something whole must be whole on the disk
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return {"shape": array.shape, "dtype": str(array.dtype), "bytes": path.stat().st_size}


def _remove_leftovers(name: str) -> None:
    """Of writers of this machine that are no more."""
    pattern = re.compile(rf"\.{re.escape(name)}\.{re.escape(socket.gethostname())}\.(\d+)\.\w+(\.old)?\.part")
    for path in root().glob(f".{name}.*.part"):
        match = pattern.fullmatch(path.name)
        if match and not _alive(int(match[1])):
            shutil.rmtree(path, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
