"""Reader of prepared data sets: one directory each, with memory-mapped arrays and about.json, which describes them.

    data/mnist/about.json, train_x.npy, train_y.npy, test_x.npy, test_y.npy

A ragged array holds pieces of different lengths. It is stored as a flat array of bytes and an array of offsets; piece i
is flat[offsets[i] : offsets[i + 1]].
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delayssm_lab.data import limits
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.prepared.location import ABOUT, FORMAT, array_path, digest

_TYPES = {"title": str, "origin": str, "missing": list, "counts": dict, "digest": str, "arrays": dict}
_ARRAY_TYPES = {"shape": list, "dtype": str, "bytes": int}


class Prepared(Mapping[str, NDArray[Any]]):
    """A prepared data set: a mapping from names to read-only, memory-mapped arrays."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._open: dict[str, NDArray[Any]] = {}
        for name, facts in self._arrays.items():
            path = array_path(directory, name)
            size = path.stat().st_size if path.is_file() else 0
            if size != facts["bytes"]:
                raise DataError(f"{path}: {size:,} bytes instead of {facts['bytes']:,}; prepare {directory.name} again")

    @cached_property
    def about(self) -> dict[str, Any]:
        """Content of about.json: name, title, origin, missing, counts, arrays, digest and facts of the data set."""
        path = self.directory / ABOUT
        try:
            if not path.is_file() or path.stat().st_size > limits.ABOUT_BYTES:
                raise ValueError(f"not a file of at most {limits.ABOUT_BYTES:,} bytes")
            about: dict[str, Any] = json.loads(path.read_bytes())
            _check_types(about, _TYPES)
            if about.get("format") != FORMAT:
                raise ValueError(f"its format is {about.get('format')!r}, not {FORMAT!r}")
            _check_types(about["counts"], dict.fromkeys(about["counts"], int))
            for name, facts in about["arrays"].items():
                if not re.fullmatch(r"\w+", name):
                    raise ValueError(f"{name!r} is not the name of an array")
                _check_types(facts, _ARRAY_TYPES)
            return about
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{path}: damaged ({error}); prepare {self.directory.name} again") from error

    @property
    def digest(self) -> str:
        """The sha256 of the names and the contents of all arrays, as they were when the data set was prepared."""
        return str(self.about["digest"])

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return an array, memory-mapped."""
        if name not in self._open:
            facts, path = self._arrays[name], array_path(self.directory, name)
            try:
                array = np.lib.format.open_memmap(path, mode="r")  # never loads objects, which are pickled
            except (ArithmeticError, EOFError, OSError, RuntimeError, TypeError, ValueError) as error:
                raise DataError(f"{path}: damaged ({error}); prepare {self.directory.name} again") from error
            if [list(array.shape), str(array.dtype)] != [facts["shape"], facts["dtype"]]:
                raise DataError(
                    f"{path}: {array.dtype} {array.shape} is not what {ABOUT} says; prepare {self.directory.name} again"
                )
            self._open[name] = array
        return self._open[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the arrays."""
        return iter(self._arrays)

    def __len__(self) -> int:
        """Return the number of arrays."""
        return len(self._arrays)

    def check(self) -> None:
        """Raise DataError if the content of any array has changed since it was prepared."""
        for name in self:
            self[name]
        if digest(self.directory, self) != self.digest:
            raise DataError(
                f"{self.directory}: its content has changed since it was prepared; prepare {self.directory.name} again"
            )

    @property
    def _arrays(self) -> dict[str, dict[str, Any]]:
        arrays: dict[str, dict[str, Any]] = self.about["arrays"]
        return arrays


def _check_types(facts: object, types: Mapping[str, type]) -> None:
    if not isinstance(facts, dict):
        raise ValueError(f"{str(facts)[:80]!r} is not an object")
    for key, expected in types.items():
        if not isinstance(facts.get(key), expected):
            raise ValueError(f"{key} is not a {expected.__name__}")
