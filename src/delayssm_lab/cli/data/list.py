"""List all data sets with their state, size, licence and origin."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from delayssm_lab.cli.common import console
from delayssm_lab.cli.data.common import is_prepared, without
from delayssm_lab.data.catalogue import datasets, load
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.prepared.location import data_root
from delayssm_lab.data.published.dataset import DataSet


def command() -> None:
    """List all data sets with their state, size, licence and origin."""
    table = Table("data set", "prepared here", "size", "licence", title=f"Data in {data_root()}")
    table.add_column("published at", overflow="fold")
    for dataset in datasets():
        checksums = all(download.checksum for download in dataset.downloads)
        table.add_row(
            f"{dataset.name}\n[dim]{dataset.title}[/]",
            _state(dataset),
            _file_size(dataset.size) + ("" if checksums else "\n[dim]without checksum[/]"),
            dataset.licence,
            dataset.page,
        )
    console().print(table)


def _state(dataset: DataSet) -> str:
    """Describe the prepared arrays, in the markup of rich."""
    if not is_prepared(dataset):
        return "no\n[dim]can be generated[/]" if dataset.can_generate else "no"
    try:
        about = load(dataset.name).about
    except DataError as error:
        return f"[red]{escape(str(error))}[/]"
    counts = ", ".join(f"{count:,} {split}" for split, count in about["counts"].items())
    return f"{counts}\n[dim]{escape(about['origin'] + without(about['missing']))}[/]"


def _file_size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
