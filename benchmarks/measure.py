"""Fresh processes, best times, peak memory, tables."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence


def seconds(function: Callable[[], object], repeats: int, warmup: int = 2) -> float:
    """The best of several runs: what the machine can do when nothing else disturbs it."""
    for _ in range(warmup):
        function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def fresh(module: str, *arguments: object) -> dict[str, float]:
    """Run `python -m benchmarks.<module> <arguments>` and read the JSON that it prints last."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table."""
    print(f"\n## {title}\n")
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    line = lambda row: "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"  # noqa: E731
    print(line(head))
    print("|" + "|".join("-" * (w + 2) for w in widths) + "|")
    for row in rows:
        print(line(row))
    sys.stdout.flush()
