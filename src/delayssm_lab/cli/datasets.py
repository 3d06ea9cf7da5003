"""Show, check and prepare data sets."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table

from delayssm_lab.data.errors import DataError
from delayssm_lab.data.prepared import reader as prepared
from delayssm_lab.data.prepared.location import ABOUT
from delayssm_lab.data.prepared.writer import Nowhere, Writer
from delayssm_lab.data.published.catalogue import datasets, find
from delayssm_lab.data.published.dataset import DataSet, Progress


def list_() -> None:
    """Show all data sets: what is prepared here, and where they are published."""
    table = Table("data set", "prepared here", "size", "licence", title=f"Data in {prepared.root()}")
    table.add_column("published at", overflow="fold")
    for dataset in datasets():
        checksums = all(download.checksum for download in dataset.downloads)
        table.add_row(
            f"{dataset.name}\n[dim]{dataset.title}[/]",
            _here(dataset),
            _bytes(dataset.size) + ("" if checksums else "\n[dim]without checksum[/]"),
            dataset.licence,
            dataset.page,
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def check(names: tyro.conf.Positional[tuple[str, ...]], root: Path | None = None, partial: bool = False) -> None:
    """Verify published files, and what was prepared from them, without writing anything.

    Args:
        names: of data sets.
        root: where the published files are; by default `published` in the directory of the data.
        partial: be content with a part of a data set, if that part is whole.
    """
    place = root or _published()
    for dataset in [find(name) for name in names]:
        is_prepared = _is_prepared(dataset)
        if is_prepared:
            prepared.load(dataset.name).check()
            print(f"{dataset.name}: whole as prepared in {prepared.root() / dataset.name}")
        if is_prepared and dataset.search(place) is None:
            print(f"{dataset.name}: no published files below {place}")
            continue
        with _bar(f"checking {dataset.name}") as progress:
            missing = dataset.read(place, Nowhere(), partial, progress)
        print(f"{dataset.name}: whole as published in {place}{_without(missing)}")


def prepare(
    names: tyro.conf.Positional[tuple[str, ...]],
    root: Path | None = None,
    partial: bool = False,
    download: bool = False,
) -> None:
    """Verify published files and turn them into arrays.

    Args:
        names: of data sets; `delayssm data list` shows them.
        root: where the published files are; by default `published` in the directory of the data.
        partial: be content with a part of a data set.
        download: fetch what is not there.
    """
    from delayssm_lab.data.published.download import fetch

    place = root or _published()
    for dataset in [find(name) for name in names]:
        if download:
            with _bar(f"fetching {dataset.name}") as progress:
                fetch(dataset, place, progress)
        with _bar(f"preparing {dataset.name}") as progress, Writer(dataset.name) as writer:
            missing = dataset.read(place, writer, partial, progress)
        print(f"{dataset.name} is in {writer.place}{_without(missing)}")


COMMANDS: dict[str, Callable[..., None]] = {"list": list_, "check": check, "prepare": prepare}


def _published() -> Path:
    return prepared.root() / "published"


def _is_prepared(dataset: DataSet) -> bool:
    return (prepared.root() / dataset.name / ABOUT).exists()


def _here(dataset: DataSet) -> str:
    if not _is_prepared(dataset):
        return "no\n[dim]can be generated[/]" if dataset.generated else "no"
    try:
        about = prepared.load(dataset.name).about
    except DataError as error:
        return f"[red]{escape(str(error))}[/]"
    counts = ", ".join(f"{count:,} {split}" for split, count in about["counts"].items())
    return f"{counts}\n[dim]{escape(about['origin'] + _without(about['missing']))}[/]"


def _without(missing: list[str]) -> str:
    return f", without {'; '.join(missing)}" if missing else ""


def _bytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


@contextmanager
def _bar(text: str) -> Iterator[Progress]:
    """A bar that goes when the work is done."""
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(text, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
