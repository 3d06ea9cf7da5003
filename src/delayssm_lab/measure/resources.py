"""Time and memory of calls on a device."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import psutil
import torch

from delayssm_lab.environment import Device, peak_memory, synchronize


def seconds(function: Callable[[], object], device: Device = "cpu") -> float:
    """Return the wall-clock time of one call."""
    synchronize(device)
    start = time.perf_counter()
    function()
    synchronize(device)
    return time.perf_counter() - start


def fastest(function: Callable[[], object], repeats: int, device: Device = "cpu") -> float:
    """Return the wall-clock time of the fastest of several calls, the one that was disturbed least."""
    return min(seconds(function, device) for _ in range(repeats))


def fastest_in_turn(functions: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the time of the fastest call of each function. They take turns, so that a disturbance meets them all."""
    times = [{name: seconds(function) for name, function in functions.items()} for _ in range(rounds)]
    return {name: min(turn[name] for turn in times) for name in functions}


def rows_that_fit(step: Callable[[int], object], batch_size: int, device: Device) -> int:
    """Return the batch size, halved until a step of that many rows fits in memory.

    The memory of a row is the difference between the peaks of `step(1)` and `step(2)`.
    """
    peaks = []
    for rows in (1, 2):
        step(rows)
        peaks.append(peak_memory(device))
    limit = 0.85 * available_memory(device)
    rows = batch_size
    while rows > 1 and peaks[0] + (rows - 1) * (peaks[1] - peaks[0]) > limit:
        rows //= 2
    return rows


def available_memory(device: Device) -> int:
    """Return the bytes that this process can have in all, including what it has already."""
    if device == "cpu":
        return int(psutil.virtual_memory().available + psutil.Process().memory_info().rss)
    return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved()
