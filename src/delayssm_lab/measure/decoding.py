"""Points of the study of decoding: streams of one model, measured token by token."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from delayssm_lab.environment import Device
from delayssm_lab.measure.resources import seconds
from delayssm_lab.measure.stacks import StackSize
from delayssm_lab.measure.streams import Memory, Model, StackStreams, Step, Streams, random_tokens, streams_of
from delayssm_lab.study import Readings

#: Tokens before each window whose times are not counted.
WARM_UP = 2
#: A window ends after this time. Whole streams are repeated for this time, and not more often than this.
SECONDS = 2.0
REPEATS = 5


@dataclass(frozen=True)
class Decoding:
    """Streams of `length` tokens: windows of `window` tokens at the positions `starts`, or the whole stream.

    Windows have equal weight, so that one that was cut short does not count less.
    """

    threads: ClassVar[int] = 1
    model: Model
    memory: Memory | None
    batch_size: int
    length: int
    starts: tuple[int, ...] = (0,)
    window: int | None = None  # None for the whole stream
    device: Device = "cpu"

    @property
    def label(self) -> str:
        """Model and memory, for tables."""
        return f"{self.model.family}, H {self.model.d_model}" + (f", {self.memory}" if self.memory else "")

    def extent(self, values: Readings) -> str:
        """Return what was measured, for tables."""
        if self.window is None:
            return "all tokens"
        count = len(self.starts)
        return f"{count} window{'' if count == 1 else 's'}, {values['tokens']:,.0f} tokens"

    @torch.no_grad()
    def measure(self) -> Readings:
        streams = streams_of(self.model, self.memory, random_tokens(self.length, self.batch_size, self.device))
        self._window(streams, self.starts[0], WARM_UP)  # loads compiled code
        if self.window is not None:
            return readings([self._window(streams, start, self.window, SECONDS) for start in self.starts], streams)
        return readings([_fastest(lambda: self._window(streams, 0, self.length))], streams)

    def _window(self, streams: Streams, start: int, count: int, limit: float = math.inf) -> list[float]:
        """Return the times of some tokens; at least two, and no more after `limit` seconds."""
        before = min(start, WARM_UP)
        step = streams.start(start - before)
        for tokens in streams.tokens[start - before : start]:
            step(tokens)
        return _times(step, streams.tokens[start : start + count], self.device, limit)


@dataclass(frozen=True)
class DifferentAges:
    """Bounded streams of which row i begins with a prompt of i * `spacing` tokens, until the oldest is complete."""

    threads: ClassVar[int] = 1
    model: StackSize
    batch_size: int
    length: int
    spacing: int
    device: Device = "cpu"

    @property
    def label(self) -> str:
        """Model and memory, for tables."""
        return f"{self.model.label}, bounded, rows of different age"

    def extent(self, values: Readings) -> str:
        """Return what was measured, for tables."""
        return f"last {values['tokens']:,.0f} tokens"

    @torch.no_grad()
    def measure(self) -> Readings:
        streams = StackStreams(self.model, True, random_tokens(self.length, self.batch_size, self.device))
        ages = [row * self.spacing for row in range(self.batch_size)]
        _times(streams.start_rows(ages), streams.tokens[:WARM_UP], self.device)
        times = _fastest(lambda: _times(streams.start_rows(ages), streams.tokens[max(ages) :], self.device))
        return readings([times], streams)


@dataclass(frozen=True)
class SideBySide:
    """Two threads of Python, each with a bounded stream of its own, of one model; and one such stream alone.

    `torch_threads` is the number of threads that each decoder uses itself; None for all that torch has.
    """

    threads: ClassVar[int] = 2
    model: StackSize
    length: int
    torch_threads: int | None = None
    batch_size: int = 1

    @property
    def label(self) -> str:
        """Model and memory, for tables."""
        own = "" if self.torch_threads is None else f", torch.set_num_threads({self.torch_threads})"
        return f"{self.model.label}, bounded, two threads of Python{own}"

    def extent(self, values: Readings) -> str:
        """Return what was measured, for tables."""
        return f"all tokens; {values['mean'] / values['alone']:.2f} times one stream alone"

    @torch.no_grad()
    def measure(self) -> Readings:
        before = torch.get_num_threads()
        torch.set_num_threads(self.torch_threads or before)
        try:
            return self._measure()
        finally:
            torch.set_num_threads(before)

    def _measure(self) -> Readings:
        streams = StackStreams(self.model, True, random_tokens(self.length, self.batch_size, "cpu"))
        _times(streams.start(0), streams.tokens[:WARM_UP], "cpu")
        alone, together = [], []
        for _ in range(REPEATS):
            alone.append(_times(streams.start(0), streams.tokens, "cpu"))
            together.append(self._together(streams))
        values = readings(min(together, key=lambda times: sum(map(sum, times))), streams)
        return {**values, "alone": min(map(statistics.fmean, alone))}

    def _together(self, streams: StackStreams) -> list[list[float]]:
        """Return the times of the tokens of each thread. They begin together."""
        steps = [streams.start(0) for _ in range(self.threads)]
        begin = threading.Barrier(len(steps))

        def decode(step: Step) -> list[float]:
            begin.wait()
            return _times(step, streams.tokens, "cpu")

        with ThreadPoolExecutor(len(steps)) as pool:
            return list(pool.map(decode, steps))


def _times(step: Step, tokens: Tensor, device: Device, limit: float = math.inf) -> list[float]:
    """Return the time of each of some tokens (T, B); at least two, and no more after `limit` seconds."""
    times: list[float] = []
    end = time.perf_counter() + limit
    for token in tokens:
        times.append(seconds(partial(step, token), device))
        if len(times) > 1 and time.perf_counter() > end:
            break
    return times


def _fastest(measure: Callable[[], list[float]]) -> list[float]:
    """Return the times of the fastest of several repetitions, or of one if that takes long."""
    rounds = [measure()]
    while len(rounds) < REPEATS and sum(map(sum, rounds)) < SECONDS:
        rounds.append(measure())
    return min(rounds, key=sum)


def readings(windows: Sequence[list[float]], streams: Streams) -> Readings:
    """Return the statistics of some windows, each of the same weight, and the memory of the streams."""
    times, order = torch.tensor([t for window in windows for t in window], dtype=torch.float64).sort()
    shares = torch.cat([torch.full((len(window),), 1 / len(window) / len(windows)) for window in windows])
    below = shares.double()[order].cumsum(0)

    def quantile(share: float) -> float:
        return float(times[min(int((below < share).sum()), len(times) - 1)])

    return {
        "mean": statistics.fmean(map(statistics.fmean, windows)),
        "median": quantile(0.5),
        "99th percentile": quantile(0.99),
        "largest": float(times[-1]),
        "tokens": len(times),
        "stream bytes": streams.stream_bytes,
        "shared bytes": streams.shared_bytes(),
    }
