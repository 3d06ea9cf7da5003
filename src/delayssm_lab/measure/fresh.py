"""Functions that run in a process of their own, so that memory and warm caches are theirs alone."""

from __future__ import annotations

import json
import subprocess
import sys


def call(module: str, *arguments: object) -> dict[str, float]:
    """Run `python -m MODULE ARGUMENTS` and read the JSON object that it prints last."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found
