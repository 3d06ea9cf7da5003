"""What the machine itself can do: dense products and memory, measured in the run that is compared with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from delayssm_lab.environment import Device
from delayssm_lab.measure.resources import fastest
from delayssm_lab.study import File, Readings

ONE_THREAD = ", one thread"


@dataclass(frozen=True)
class Limits:
    """A float32 product of two large matrices, and a = b + 3 c over arrays that no cache holds.

    On a CPU both are measured with all threads and with one.
    """

    device: Device = "cpu"
    side: int = 4096
    elements: int = 1 << 26

    def measure(self) -> Readings:
        values, threads = self._rates(), torch.get_num_threads()
        if self.device == "cpu":
            torch.set_num_threads(1)
            values |= {name + ONE_THREAD: rate for name, rate in self._rates().items()}
            torch.set_num_threads(threads)
        return values

    def _rates(self) -> Readings:
        """Return GFLOPS and, as in STREAM, GB/s of what the sum reads and writes."""
        a, b, c = (torch.ones(self.side, self.side, device=self.device) for _ in range(3))
        product = fastest(lambda: torch.mm(b, c, out=a), 5, self.device)
        a, b, c = (torch.ones(self.elements, device=self.device) for _ in range(3))
        triad = fastest(lambda: torch.add(b, c, alpha=3, out=a), 10, self.device)
        return {"GFLOPS": 2 * self.side**3 / product / 1e9, "GB/s": 3 * b.nbytes / triad / 1e9}


LIMITS = Limits()


def show_limits(results: Mapping[Any, Readings]) -> Iterator[File]:
    """Yield a line to stand below the tables of a study, if its limits have been measured."""
    for point, values in results.items():
        if isinstance(point, Limits):
            rates = (_both(values, name) for name in ("GFLOPS", "GB/s"))
            line = "Limits of the machine in this run: dense products {}, memory {}.\n".format(*rates)
            yield "limits.md", line.encode()


def _both(values: Readings, unit: str) -> str:
    one_thread = values.get(unit + ONE_THREAD)
    return f"{values[unit]:.0f} {unit}" + ("" if one_thread is None else f" (one thread {one_thread:.0f})")
