"""Paths and fingerprints of prepared data sets."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

#: File that describes a prepared data set, beside its arrays.
ABOUT = "about.json"
#: Format of prepared data. The number goes up when arrays of the same names change their meaning.
FORMAT = "delayssm data 1"


def data_root() -> Path:
    """Return the directory of all prepared data sets: the environment variable DELAYSSM_DATA, or `data`."""
    return Path(os.environ.get("DELAYSSM_DATA") or "data")


def array_path(directory: Path, name: str) -> Path:
    """Return the path of an array in the directory of a data set."""
    return directory / f"{name}.npy"


def digest(directory: Path, names: Iterable[str]) -> str:
    """Return the sha256 over the names and the contents of arrays."""
    total = hashlib.sha256()
    for name in sorted(names):
        total.update(f"{name}\n".encode())
        with array_path(directory, name).open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()
