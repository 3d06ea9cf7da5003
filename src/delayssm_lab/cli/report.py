"""Write an HTML report with tables and figures of runs."""

from __future__ import annotations

from pathlib import Path

import tyro

from delayssm_lab.cli.common import leave


def command(directories: tyro.conf.Positional[tuple[Path, ...]], out: Path | None = None) -> None:
    """Write an HTML report with tables and figures of runs.

    Args:
        directories: Directories of runs, or directories that contain them.
        out: Directory of the report. By default report/ in the first of the directories.
    """
    from delayssm_lab.report import page

    if not directories:
        leave(2, "delayssm: there is nothing to report; name at least one directory with runs")
    print(f"Wrote {page.write(directories, out or directories[0] / 'report').resolve()}")
