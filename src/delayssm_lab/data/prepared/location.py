"""Where prepared data sets are, and how their content is known."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

ABOUT = "about.json"


def root() -> Path:
    """The directory of all prepared data sets: the environment variable DELAYSSM_DATA, or `data`."""
    return Path(os.environ.get("DELAYSSM_DATA") or "data")


def file(place: Path, name: str) -> Path:
    """Of an array."""
    return place / f"{name}.npy"


def digest(place: Path, names: Iterable[str]) -> str:
    """A fingerprint of these arrays."""
    found = hashlib.sha256()
    for name in sorted(names):
        found.update(f"{name}\n".encode())
        with file(place, name).open("rb") as content:
            found.update(hashlib.file_digest(content, "sha256").digest())
    return found.hexdigest()
