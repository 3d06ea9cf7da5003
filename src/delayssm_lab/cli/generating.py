"""delayssm data generate."""

from __future__ import annotations

from typing import Literal

import tyro
from rich.console import Console
from rich.progress import Progress

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


def generate(name: tyro.conf.Positional[Name], count: int | None = None, seed: int = 0) -> None:
    """Make a data set instead of reading published files.

    listops and pathfinder follow the rules of the published ones. aan does not: it is pairs of made-up documents of the
    same form, and results on it are not comparable.

    Args:
        name: of the data set whose place it takes.
        count: how many samples to train on; besides, as many for validation and for testing, but not more than 2,000
            each. For pathfinder, how many images in all. By default 96,000 for listops and 20,000 for others.
        seed: other seeds give other samples.
    """
    from delayssm_lab.data.generate import write
    from delayssm_lab.data.generate.documents import Documents
    from delayssm_lab.data.generate.listops import ListOps

    if count is None:
        count = 96_000 if name == "listops" else 20_000
    if count < 1 or seed < 0:
        raise ValueError(f"count must be at least 1 and seed at least 0, not {count} and {seed}")
    splits = {"train": count, "validation": min(count, _HELD_OUT), "test": min(count, _HELD_OUT)}
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        if name == "listops":
            place = write.listops(ListOps(), splits, seed, show)
        elif name == "aan":
            place = write.documents(Documents(), splits, seed, show)
        else:
            place = write.pathfinder(*_level(name), count, seed, show)
    print(f"{name} is in {place.resolve()}")


def _level(name: str) -> tuple[Size, ContourLength]:
    return next((size, length) for size, length in LEVELS if name == f"pathfinder{size}-{length}")
