"""Verify published files and convert them to arrays."""

from __future__ import annotations

from pathlib import Path

import tyro

from delayssm_lab.cli.common import progress_bar
from delayssm_lab.cli.data.common import published_root, require_names, without
from delayssm_lab.data.catalogue import find
from delayssm_lab.data.prepared.writer import Writer
from delayssm_lab.data.published.download import fetch


def command(
    names: tyro.conf.Positional[tuple[str, ...]],
    root: Path | None = None,
    partial: bool = False,
    download: bool = False,
) -> None:
    """Verify published files and convert them to arrays.

    Damaged or incomplete files are an error.

    Args:
        names: One or more names of data sets, as `delayssm data list` shows them.
        root: Directory of the published files. By default published/ in the directory of the data.
        partial: Accept incomplete data sets, if the files that are there are undamaged.
        download: Download published files that are missing.
    """
    require_names(names, "prepare")
    root = root or published_root()
    for dataset in [find(name) for name in names]:
        if download:
            with progress_bar(f"downloading {dataset.name}") as on_progress:
                fetch(dataset, root, on_progress)
        with progress_bar(f"preparing {dataset.name}") as on_progress, Writer(dataset.name) as writer:
            missing = dataset.read(root, writer, partial, on_progress)
        print(f"{dataset.name} is in {writer.directory}{without(missing)}")
