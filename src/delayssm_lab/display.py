"""How people, logs and other programs see a run go on."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Protocol, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn, track

T = TypeVar("T")


@dataclass(frozen=True)
class Status:
    """Where a run is: loss and metric (its name, its value) of the last step, and of the last evaluation."""

    step: int
    steps: int
    loss: float
    metric: str
    value: float
    validation: float | None
    tokens_per_second: float
    evaluated: bool = False

    def words(self) -> str:
        """For a line."""
        validation = "" if self.validation is None else f"  validation {self.validation:.3f}"
        return (
            f"loss {self.loss:.3f}  {self.metric} {self.value:.3f}{validation}  {self.tokens_per_second:,.0f} tokens/s"
        )


class Display(Protocol):
    """Is told about every step."""

    def show(self, status: Status) -> None:
        """Called after each step and after each evaluation."""

    def say(self, message: str) -> None:
        """Something the user should know."""


class Silent:
    """For processes that are not the first."""

    def show(self, status: Status) -> None:
        """Nothing."""

    def say(self, message: str) -> None:
        """Nothing."""


class Bar:
    """A progress bar on a terminal."""

    def __init__(self, title: str, progress: Progress) -> None:
        self._progress = progress
        self.task = progress.add_task(title, total=None, words="")

    def show(self, status: Status) -> None:
        self._progress.update(self.task, completed=status.step, total=status.steps, words=status.words())

    def say(self, message: str) -> None:
        self._progress.console.print(message, highlight=False, soft_wrap=True)


class Lines:
    """One line for each evaluation, for logs."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._began: tuple[float, int] | None = None

    def show(self, status: Status) -> None:
        now = time.monotonic()
        if self._began is None:
            self._began = now, status.step
        if status.evaluated:
            began, step = self._began
            left = (now - began) / max(1, status.step - step) * (status.steps - status.step)
            where = f"{self._prefix}step {status.step}/{status.steps}"
            print(f"{where}  {status.words()}  {duration(left)} left", flush=True)

    def say(self, message: str) -> None:
        print(message, flush=True)


class Messages:
    """One JSON object a line, for the program that has started this one; steps at most twice a second."""

    def __init__(self) -> None:
        self._shown = 0.0

    def show(self, status: Status) -> None:
        now = time.monotonic()
        if status.evaluated or now - self._shown > 0.5:
            self._shown = now
            print(json.dumps({"status": asdict(status)}), flush=True)

    def say(self, message: str) -> None:
        print(json.dumps({"message": message}), flush=True)


class Board:
    """Where the displays of runs are, while it is open: bars on a terminal, else lines."""

    def __init__(self) -> None:
        self._bars = None
        if sys.stdout.isatty():
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[words]}"),
            )

    def __enter__(self) -> Board:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def add(self, title: str, prefix: str = "") -> Display:
        """The display of one more run; where there are several, a prefix for its lines."""
        return Lines(prefix) if self._bars is None else Bar(title, self._bars)

    def finish(self, display: Display, outcome: str, done: int, total: int) -> None:
        """Say what became of one run of many, and make room for others."""
        display.say(f"{outcome} ({done} of {total})")
        if self._bars is not None and isinstance(display, Bar):
            self._bars.remove_task(display.task)


def duration(seconds: float) -> str:
    """For people."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def counted(items: Sequence[T], title: str) -> Iterator[T]:
    """Go through items, and show how many are done: a bar on a terminal, else a line for each."""
    if sys.stdout.isatty():
        yield from track(items, title)
        return
    began = time.monotonic()
    for done, item in enumerate(items):
        left = f", {duration((time.monotonic() - began) / done * (len(items) - done))} left" if done else ""
        print(f"{title}  {done + 1} of {len(items)}: {item}{left}", flush=True)
        yield item
