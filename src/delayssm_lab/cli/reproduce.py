"""Reproduce the studies behind the tables and figures in results/."""

from __future__ import annotations

from pathlib import Path

import tyro

from delayssm_lab.cli.common import console, leave
from delayssm_lab.training.interrupt import EXIT_CODE, Interrupted


def command(
    names: tyro.conf.Positional[tuple[str, ...]],
    list: bool = False,
    so_far: bool = False,
    work: Path = Path("runs"),
    out: Path = Path("results"),
) -> None:
    """Reproduce the studies behind the tables and figures in results/.

    Each study measures what is still missing and then writes its tables and figures to results/NAME. An interrupted
    study continues where it stopped. Finished runs in results/runs are used again as long as settings and code agree.

    Args:
        names: Names of studies. Without any, all studies are listed.
        list: List all studies with their progress.
        so_far: Measure nothing; write results from what is already measured.
        work: Directory of runs and measurements, from which studies continue.
        out: Directory of the results.
    """
    from rich.table import Table

    from delayssm_lab.studies.catalogue import studies
    from delayssm_lab.study import Places
    from delayssm_lab.training import disk

    for directory in (work, out):  # before anything is measured that could not be kept
        disk.check_directory(directory)
    places = Places(work, out)
    known = {study.name: study for study in studies()}
    if unknown := sorted(set(names) - set(known)):
        leave(2, f"delayssm: there is no study {', '.join(unknown)}; there are {', '.join(known)}")
    if list or not names:
        table = Table("study", "shows", "done here", "results", "duration")
        for study in known.values():
            table.add_row(study.name, study.title, study.done(places), *study.results(places))
        console().print(table)
        return
    for name in names:
        study = known[name]
        try:
            if not so_far:
                study.run(places)
        except (Interrupted, KeyboardInterrupt):
            done, total = study.progress(places)
            leave(
                EXIT_CODE,
                f"Interrupted: {done} of {total} are done. Repeat the command to continue, or add --so-far to write "
                "what is done.",
            )
        study.write(places)
        print(f"Wrote {out / name}{study.request}")
