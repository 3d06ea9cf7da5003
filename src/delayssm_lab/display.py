"""Displays of a run's progress for terminals, logs and other programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Protocol, TextIO, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn, track

T = TypeVar("T")


@dataclass(frozen=True)
class Status:
    """Progress of a run after a step or an evaluation.

    Args:
        step: Steps done.
        steps: Steps in all.
        loss: Training loss, of the last step or on average since the last evaluation.
        metric: Name of the metric.
        value: Metric on the training samples, of the same steps as the loss.
        validation: Metric of the last evaluation; None before the first.
        tokens_per_second: Training speed.
        evaluated: Whether an evaluation has just ended.
    """

    step: int
    steps: int
    loss: float
    metric: str
    value: float
    validation: float | None
    tokens_per_second: float
    evaluated: bool = False

    def __str__(self) -> str:
        validation = "" if self.validation is None else f"  validation {self.validation:.3f}"
        return (
            f"loss {self.loss:.3f}  {self.metric} {self.value:.3f}{validation}  {self.tokens_per_second:,.0f} tokens/s"
        )


class Display(Protocol):
    """Receiver of the progress of a run."""

    def show(self, status: Status) -> None:
        """Show the status after a step or an evaluation."""

    def say(self, message: str) -> None:
        """Show a message to the user."""


class Silent:
    """Display that shows nothing, for all processes but the first."""

    def show(self, status: Status) -> None:
        """Ignore the status."""

    def say(self, message: str) -> None:
        """Ignore the message."""


class Bar:
    """Progress bar on a terminal."""

    def __init__(self, title: str, progress: Progress) -> None:
        self._progress = progress
        self.task = progress.add_task(title, total=None, status="")

    def show(self, status: Status) -> None:
        """Move the bar."""
        self._progress.update(self.task, completed=status.step, total=status.steps, status=str(status))

    def say(self, message: str) -> None:
        """Print a message above the bars."""
        self._progress.console.print(message, highlight=False, markup=False, soft_wrap=True)


class Lines:
    """Display for logs that prints one line per evaluation."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._start: tuple[float, int] | None = None

    def show(self, status: Status) -> None:
        """Print a line if an evaluation has just ended."""
        now = time.monotonic()
        if self._start is None:
            self._start = now, status.step
        if status.evaluated:
            start, first_step = self._start
            left = (now - start) / max(1, status.step - first_step) * (status.steps - status.step)
            print(
                f"{self._prefix}step {status.step}/{status.steps}  {status}  {duration(left)} left",
                flush=True,
            )

    def say(self, message: str) -> None:
        """Print a message."""
        print(message, flush=True)


class Messages:
    """Display for the program that started this process: one JSON object per line, steps at most twice a second.

    Args:
        file: Where they are written; nothing else should be.
    """

    def __init__(self, file: TextIO) -> None:
        self._file, self._last = file, 0.0

    def show(self, status: Status) -> None:
        """Send the status, unless another was sent less than half a second ago."""
        now = time.monotonic()
        if status.evaluated or now - self._last > 0.5:
            self._last = now
            print(json.dumps({"status": asdict(status)}), file=self._file, flush=True)

    def say(self, message: str) -> None:
        """Send a message."""
        print(json.dumps({"message": message}), file=self._file, flush=True)


class Board:
    """Context manager for the displays of several runs: bars on a terminal, otherwise lines."""

    def __init__(self) -> None:
        self._bars = None
        if sys.stdout.isatty():
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[status]}"),
            )

    def __enter__(self) -> Board:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def add(self, title: str, prefix: str = "") -> Display:
        """Return a display for one more run: a bar with a title, or lines with a prefix."""
        return Lines(prefix) if self._bars is None else Bar(title, self._bars)

    def finish(self, display: Display, outcome: str, done: int, total: int) -> None:
        """Print the outcome of a run, the `done`-th of `total`, and remove its bar."""
        display.say(f"{outcome} ({done} of {total})")
        if self._bars is not None and isinstance(display, Bar):
            self._bars.remove_task(display.task)


def duration(seconds: float) -> str:
    """Format a duration in seconds or minutes."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def counted(items: Sequence[T], title: str) -> Iterator[T]:
    """Iterate over items and show how many are done: a bar on a terminal, otherwise a line for each."""
    if sys.stdout.isatty():
        yield from track(items, title)
        return
    start = time.monotonic()
    for done, item in enumerate(items):
        left = f", {duration((time.monotonic() - start) / done * (len(items) - done))} left" if done else ""
        print(f"{title}  {done + 1} of {len(items)}: {item}{left}", flush=True)
        yield item
