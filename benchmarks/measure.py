"""Fresh processes, best times, peak memory, tables."""

import time
from collections.abc import Callable, Sequence

from delayssm_lab.measure.fresh import call
from delayssm_lab.report.tables import markdown


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
    return call(f"benchmarks.{module}", *arguments)


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table."""
    print(f"\n## {title}\n\n{markdown(head, rows)}", end="", flush=True)
