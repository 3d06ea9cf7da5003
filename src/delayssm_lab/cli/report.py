"""Write an HTML report with tables and figures of runs."""

from __future__ import annotations

import sys
from pathlib import Path

import tyro

from delayssm_lab.cli.common import leave


def command(directories: tyro.conf.Positional[tuple[Path, ...]], out: Path | None = None) -> None:
    """Write an HTML report with tables and figures of runs.

    Args:
        directories: One or more paths of runs, or of directories that contain runs.
        out: Directory of the report. By default report/ in the first of the directories.
    """
    from delayssm_lab.report import page
    from delayssm_lab.report.collect import collect

    if not directories:
        leave(2, "delayssm: there is nothing to report; name at least one directory with runs")
    results = collect(directories)
    print(f"Wrote {page.write_results(results, out or directories[0] / 'report').resolve()}")
    for directory, reason in results.left_out.items():
        print(f"Left out {directory}: {reason}", file=sys.stderr)
