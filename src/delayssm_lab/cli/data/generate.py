"""Generate a data set instead of reading published files."""

from __future__ import annotations

from typing import Literal

import tyro

from delayssm_lab.cli.common import check_between, progress_bar
from delayssm_lab.data import limits
from delayssm_lab.data.generate.pathfinder import LEVELS, ContourLength, Size

Name = Literal[
    "listops",
    "aan",
    "pathfinder20-3",
    "pathfinder32-6",
    "pathfinder32-9",
    "pathfinder32-14",
    "pathfinder128-6",
    "pathfinder128-9",
    "pathfinder128-14",
]
_HELD_OUT = 2_000


def command(name: tyro.conf.Positional[Name], count: int | None = None, seed: int = 0) -> None:
    """Generate a data set instead of reading published files.

    ListOps and Pathfinder follow the rules of the published data sets. AAN does not: it consists of pairs of made-up
    documents of the same form, and results on it are not comparable to published ones.

    Args:
        name: Name of the data set.
        count: Number of training samples; as many again, but at most 2,000 each, are generated for validation and for
            testing. For Pathfinder, the number of images in all. By default 96,000 for ListOps and 20,000 for others.
        seed: Seed of the samples.
    """
    from delayssm_lab.data.generate import write
    from delayssm_lab.data.generate.documents import DocumentGenerator
    from delayssm_lab.data.generate.listops import ListOpsGenerator

    if count is None:
        count = 96_000 if name == "listops" else 20_000
    check_between(1, limits.GENERATED, count=count)
    check_between(0, limits.SEED, seed=seed)
    splits = {"train": count, "validation": min(count, _HELD_OUT), "test": min(count, _HELD_OUT)}
    with progress_bar(f"generating {name}") as on_progress:
        if name == "listops":
            directory = write.generate_listops(ListOpsGenerator(), splits, seed, on_progress)
        elif name == "aan":
            directory = write.generate_documents(DocumentGenerator(), splits, seed, on_progress)
        else:
            directory = write.generate_pathfinder(*_level(name), count, seed, on_progress)
    print(f"{name} is in {directory.resolve()}")


def _level(name: str) -> tuple[Size, ContourLength]:
    return next((size, length) for size, length in LEVELS if name == f"pathfinder{size}-{length}")
