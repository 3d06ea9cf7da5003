"""Helpers shared by the commands of `delayssm data`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from delayssm_lab.data.prepared.location import ABOUT, data_root
from delayssm_lab.data.published.dataset import DataSet


def published_root() -> Path:
    """Return the default directory of published files."""
    return data_root() / "published"


def is_prepared(dataset: DataSet) -> bool:
    """Return whether a data set has been prepared or generated."""
    return (data_root() / dataset.name / ABOUT).exists()


def without(missing: Sequence[str]) -> str:
    """Return a clause that names what a data set lacks, or nothing if it is complete."""
    return f", without {'; '.join(missing)}" if missing else ""
