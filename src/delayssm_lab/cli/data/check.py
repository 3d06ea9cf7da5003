"""Verify published files and the arrays prepared from them."""

from __future__ import annotations

from pathlib import Path

import tyro

from delayssm_lab.cli.common import progress_bar
from delayssm_lab.cli.data.common import is_prepared, published_root, require_names, without
from delayssm_lab.data.catalogue import find, load
from delayssm_lab.data.prepared.location import data_root
from delayssm_lab.data.prepared.writer import NullOutput


def command(names: tyro.conf.Positional[tuple[str, ...]], root: Path | None = None, partial: bool = False) -> None:
    """Verify published files and the arrays prepared from them.

    Nothing is written. Damaged or incomplete files are an error.

    Args:
        names: One or more names of data sets, as `delayssm data list` shows them.
        root: Directory of the published files. By default published/ in the directory of the data.
        partial: Accept incomplete data sets, if the files that are there are undamaged.
    """
    require_names(names, "check")
    root = root or published_root()
    for dataset in [find(name) for name in names]:
        prepared = is_prepared(dataset)
        if prepared:
            load(dataset.name).check()
            print(f"{dataset.name}: prepared arrays in {data_root() / dataset.name} are undamaged")
        if prepared and dataset.find_files(root) is None:
            print(f"{dataset.name}: no published files below {root}")
            continue
        with progress_bar(f"checking {dataset.name}") as on_progress:
            missing = dataset.read(root, NullOutput(), partial, on_progress)
        print(f"{dataset.name}: published files in {root} are undamaged{without(missing)}")
