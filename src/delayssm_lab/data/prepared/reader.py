"""Data sets as this library reads them: arrays in files, memory-mapped, and about.json, which says what they are.

    data/mnist/about.json, train_x.npy, train_y.npy, test_x.npy, test_y.npy

Pieces of different lengths are a flat array of bytes and one of offsets: piece i is flat[offsets[i] : offsets[i + 1]].
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delayssm_lab.data.errors import DataError
from delayssm_lab.data.prepared.location import ABOUT, digest, file, root
from delayssm_lab.data.prepared.writer import Writer

__all__ = ["Prepared", "Writer", "load", "root"]


class Prepared(Mapping[str, NDArray[Any]]):
    """One prepared data set: read-only arrays by name."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._open: dict[str, NDArray[Any]] = {}
        for name, facts in self._arrays.items():
            path = file(place, name)
            found = path.stat().st_size if path.exists() else 0
            if found != facts["bytes"]:
                raise DataError(f"{path}: {found:,} bytes instead of {facts['bytes']:,}; prepare {place.name} again")

    @cached_property
    def about(self) -> dict[str, Any]:
        """What it is: name, title, origin, missing, counts, arrays, digest and what is particular to it."""
        path = self.place / ABOUT
        try:
            found: dict[str, Any] = json.loads(path.read_bytes())
            return found | {"arrays": dict(found["arrays"])}
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: damaged ({error}); prepare {self.place.name} again") from error

    def __getitem__(self, name: str) -> NDArray[Any]:
        """An array, memory-mapped."""
        if name not in self._open:
            facts, path = self._arrays[name], file(self.place, name)
            try:
                array = np.load(path, mmap_mode="r", allow_pickle=False)
            except ValueError as error:
                raise DataError(f"{path}: damaged ({error}); prepare {self.place.name} again") from error
            if [list(array.shape), str(array.dtype)] != [facts["shape"], facts["dtype"]]:
                raise DataError(f"{path}: {array.dtype} {array.shape} is not what {ABOUT} says; prepare it again")
            self._open[name] = array
        return self._open[name]

    def __iter__(self) -> Iterator[str]:
        """Names of the arrays."""
        return iter(self._arrays)

    def __len__(self) -> int:
        """How many arrays."""
        return len(self._arrays)

    def check(self) -> None:
        """Compare all content with the checksum."""
        if digest(self.place, self) != self.about["digest"]:
            raise DataError(f"{self.place}: its content has changed since it was prepared; prepare it again")

    @property
    def _arrays(self) -> dict[str, dict[str, Any]]:
        arrays: dict[str, dict[str, Any]] = self.about["arrays"]
        return arrays


def load(name: str) -> Prepared:
    """A data set that was prepared here."""
    place = root() / name
    if (place / ABOUT).exists():
        return Prepared(place)
    from delayssm_lab.data.published.catalogue import find  # it knows all data sets, and they know this module

    dataset = find(name)
    published = f"Prepare it: delayssm data prepare {name} --download, or --root DIR if its published files are in DIR"
    made = f"{'Or make' if dataset.downloads else 'Make'} it: delayssm data generate {name}"
    ways = [published] * bool(dataset.downloads) + [made] * dataset.generated
    raise DataError(f"{name} is not prepared in {root().resolve()}. {'. '.join(ways)}")
