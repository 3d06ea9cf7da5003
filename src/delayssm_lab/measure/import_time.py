"""Time that `import delayssm` takes beyond `import torch`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from delayssm_lab.measure.measurement import Isolated
from delayssm_lab.report import tables
from delayssm_lab.study import File, Readings

CODE = "import torch, time; start = time.perf_counter(); import delayssm; print(time.perf_counter() - start)"


@dataclass(frozen=True)
class Import:
    """One import, in a process that has loaded nothing but torch."""

    round: int

    def measure(self) -> Readings:
        process = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
        return {"seconds": float(process.stdout)}


@dataclass(frozen=True)
class ImportTime(Isolated[Import]):
    """Several imports, the fastest and the slowest of which are shown."""

    name = "import-time"
    title = "Time of `import delayssm` beyond `import torch`"

    rounds: int = 5

    def points(self) -> list[Import]:
        return [Import(i) for i in range(self.rounds)]

    def show(self, results: Mapping[Import, Readings]) -> Iterable[File]:
        times = [values["seconds"] for values in results.values()]
        row = [f"{min(times):.2f}", f"{max(times):.2f}", str(len(times))]
        yield "table.md", tables.markdown(["fastest, s", "slowest, s", "imports"], [row]).encode()
