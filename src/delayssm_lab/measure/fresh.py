"""Measurements in processes of their own, so that no other point shares their memory and caches."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import Protocol

#: The name that `python -m` needs; `__name__` is "__main__" in the new process.
MODULE = "delayssm_lab.measure.fresh"


class Point(Protocol):
    """A frozen dataclass that knows how to measure itself."""

    def measure(self) -> dict[str, float]:
        """Return measured numbers by name."""


def measure(point: Point) -> dict[str, float]:
    """Return `point.measure()`, called in a new Python process."""
    command = [sys.executable, "-m", MODULE]
    process = subprocess.run(command, input=pickle.dumps(point), capture_output=True, check=False)
    if process.returncode:
        lines = process.stderr.decode(errors="replace").strip().splitlines()
        cause = lines[-1] if lines else f"exit code {process.returncode}"
        raise ChildProcessError(f"measuring {point} failed: {cause}")
    values: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
    return values


if __name__ == "__main__":
    print(json.dumps(pickle.load(sys.stdin.buffer).measure()))  # noqa: T201
