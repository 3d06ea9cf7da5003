"""How fast data sets are made, on one core, beside what the original generators were seen to take."""

import os
from itertools import islice

from benchmarks import measure
from delayssm_lab.data.generate.listops import ListOps
from delayssm_lab.data.generate.pathfinder import pathfinder

#: Seconds per sample of the originals, on one core: seen elsewhere, not measured in this run.
ORIGINAL = {"Pathfinder, 32 x 32": 0.4, "Path-X, 128 x 128": 4.2, "ListOps": 8 * 60 / 100_000}


def main() -> None:
    """Print the table."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    found = {
        "Pathfinder, 32 x 32": measure.seconds(lambda: pathfinder(32, 14).images(1000, 0), 3, 1) / 1000,
        "Path-X, 128 x 128": measure.seconds(lambda: pathfinder(128, 14).images(100, 0), 3, 1) / 100,
        "ListOps": measure.seconds(lambda: list(islice(ListOps().rows(10_000, 0), 10_000)), 3, 1) / 10_000,
    }
    rows = [
        [name, f"{1e3 * seconds:.2f}", f"{1e3 * ORIGINAL[name]:g}", f"{ORIGINAL[name] / seconds:,.0f}"]
        for name, seconds in found.items()
    ]
    measure.table(
        "Generators, milliseconds per sample on one core", ["data set", "ours", "the original", "times faster"], rows
    )


if __name__ == "__main__":
    main()
