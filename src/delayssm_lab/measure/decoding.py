"""Points of the study of decoding: streams of one model, measured token by token."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from delayssm.allocator import keep_freed_memory
from delayssm_lab.environment import Device
from delayssm_lab.measure.resources import seconds
from delayssm_lab.measure.stacks import StackSize
from delayssm_lab.measure.streams import Memory, Model, StackStreams, Step, Streams, random_tokens, streams_of
from delayssm_lab.study import Readings

#: Tokens before each window whose times are not counted.
WARM_UP = 2
#: A window ends after this time, and whole streams are repeated for this time. The fastest of these counts.
SECONDS = 2.0
REPEATS = 5


@dataclass(frozen=True)
class Decoding:
    """Streams of `length` tokens: windows of `window` tokens at the positions `starts`, or the whole stream.

    The mean is over windows of equal weight, so that a window that was cut short does not count less.
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
        _prepare()
        streams = streams_of(self.model, self.memory, random_tokens(self.length, self.batch_size, self.device))
        self._window(streams, self.starts[0], WARM_UP)  # loads compiled code
        if self.window is not None:
            return _readings([self._window(streams, start, self.window, SECONDS) for start in self.starts], streams)
        rounds: list[list[float]] = []
        while not rounds or (len(rounds) < REPEATS and sum(map(sum, rounds)) < SECONDS):
            rounds.append(self._window(streams, 0, self.length))
        return _readings([min(rounds, key=sum)], streams)

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
        _prepare()
        streams = StackStreams(self.model, True, random_tokens(self.length, self.batch_size, self.device))
        ages = [row * self.spacing for row in range(self.batch_size)]
        _times(streams.start_rows(ages), streams.tokens[:WARM_UP], self.device)
        return _readings([_times(streams.start_rows(ages), streams.tokens[max(ages) :], self.device)], streams)


@dataclass(frozen=True)
class SideBySide:
    """Two threads of Python, each with a bounded stream of its own, of one model.

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
        return f"all tokens; {values['mean'] / values['alone']:.2f} times one thread alone"

    @torch.no_grad()
    def measure(self) -> Readings:
        _prepare()
        before = torch.get_num_threads()
        torch.set_num_threads(self.torch_threads or before)
        try:
            return self._measure()
        finally:
            torch.set_num_threads(before)

    def _measure(self) -> Readings:
        streams = StackStreams(self.model, True, random_tokens(self.length, self.batch_size, "cpu"))
        _times(streams.start(0), streams.tokens[:WARM_UP], "cpu")
        rounds: list[tuple[list[float], list[list[float]]]] = []
        begin = time.perf_counter()
        while not rounds or (len(rounds) < REPEATS and time.perf_counter() - begin < 2 * SECONDS):
            rounds.append((self._decode(streams, 1)[0], self._decode(streams, self.threads)))
        alone = min(sum(one) for one, _ in rounds) / self.length
        return {
            **_readings(min((two for _, two in rounds), key=lambda two: sum(map(sum, two))), streams),
            "alone": alone,
        }

    def _decode(self, streams: StackStreams, count: int) -> list[list[float]]:
        """Return the times of the tokens of each of `count` threads that begin together."""
        steps = [streams.start(0) for _ in range(count)]
        together = threading.Barrier(count)
        times: list[list[float]] = [[] for _ in steps]

        def decode(i: int) -> None:
            together.wait()
            times[i] = _times(steps[i], streams.tokens, "cpu")

        threads = [threading.Thread(target=decode, args=(i,)) for i in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return times


def _prepare() -> None:
    """Make all models start from the same seed and with freed memory kept, without which GPT-2 is far slower."""
    keep_freed_memory()
    torch.manual_seed(0)


def _times(step: Step, tokens: Tensor, device: Device, limit: float = math.inf) -> list[float]:
    """Return the time of each of some tokens (T, B); at least two, and no more after `limit` seconds."""
    times: list[float] = []
    end = time.perf_counter() + limit
    for token in tokens:
        times.append(seconds(partial(step, token), device))
        if len(times) > 1 and time.perf_counter() > end:
            break
    return times


def _readings(windows: Sequence[list[float]], streams: Streams) -> Readings:
    times = torch.tensor([t for window in windows for t in window], dtype=torch.float64)
    return {
        "mean": statistics.fmean(map(statistics.fmean, windows)),
        "median": float(times.median()),
        "99th percentile": float(times.quantile(0.99)),
        "largest": float(times.max()),
        "tokens": len(times),
        "stream bytes": streams.stream_bytes,
        "shared bytes": streams.shared_bytes(),
    }
