"""Print the size and the parameter count of every model."""

from __future__ import annotations

from delayssm_lab.cli import missing
from delayssm_lab.cli.common import console
from delayssm_lab.recipes.delayed import Scale


def command(scale: Scale = "paper") -> None:
    """Print the size and the parameter count of every model.

    Args:
        scale: Sizes of the paper, or smaller ones that train on a laptop.
    """
    from rich.table import Table

    from delayssm_lab.recipes.sizes import benchmark_rows, language_rows, rows

    unavailable: list[ModuleNotFoundError] = []
    delayed = "tasks", "model", "layers", "width", "heads", "state", "parameters"
    general = "task", "model", "layers", "width", "state", "parameters", "/ S4D"
    for title, columns, content in (
        (f"Delayed memory, scale '{scale}'", delayed, rows(scale, unavailable)),
        (f"Benchmarks, scale '{scale}'", general, benchmark_rows(scale)),
        ("Language", delayed, language_rows(unavailable)),
    ):
        table = Table(title=title)
        for column in columns:
            table.add_column(column, justify="left" if column in ("task", "tasks", "model") else "right")
        for row in content:
            table.add_row(*row)
        console().print(table)
    for error in unavailable[:1]:
        print(f"The other models are left out: {missing(error)}")
