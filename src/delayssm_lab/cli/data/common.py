"""Helpers shared by the commands of `delayssm data`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from delayssm_lab.cli.common import leave
from delayssm_lab.data.catalogue import datasets
from delayssm_lab.data.prepared.location import ABOUT, data_root
from delayssm_lab.data.published.dataset import DataSet


def published_root() -> Path:
    """Return the default directory of published files."""
    return data_root() / "published"


def is_prepared(dataset: DataSet) -> bool:
    """Return whether a data set has been prepared or generated."""
    return (data_root() / dataset.name / ABOUT).exists()


def require_names(names: Sequence[str], action: str) -> None:
    """Leave with the exit code of wrong usage if no data set is named. `action` is what would be done with it."""
    if not names:
        published = ", ".join(dataset.name for dataset in datasets() if dataset.downloads)
        leave(2, f"delayssm: there is nothing to {action}; name at least one data set: {published}")


def without(missing: Sequence[str]) -> str:
    """Return a clause that names what a data set lacks, or nothing if it is complete."""
    return f", without {'; '.join(missing)}" if missing else ""
