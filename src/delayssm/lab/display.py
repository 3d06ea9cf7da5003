"""How people, logs and other programs see a run go on."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


@dataclass(frozen=True)
class Status:
    """Where a run is. Loss and accuracy on training data are of the last step; validation is of the last evaluation."""

    step: int
    steps: int
    loss: float
    accuracy: float
    validation: float | None
    tokens_per_second: float
    evaluated: bool = False

    def words(self) -> str:
        """For a line."""
        validation = "" if self.validation is None else f"  validation {self.validation:.3f}"
        return f"loss {self.loss:.3f}  accuracy {self.accuracy:.3f}{validation}  {self.tokens_per_second:,.0f} tokens/s"


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
        self._task = progress.add_task(title, total=None, words="")

    def show(self, status: Status) -> None:
        self._progress.update(self._task, completed=status.step, total=status.steps, words=status.words())

    def say(self, message: str) -> None:
        self._progress.console.print(message, highlight=False)

    @property
    def task(self) -> TaskID:
        """The line of this run in the progress display."""
        return self._task


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
            print(f"{where}  {status.words()}  {left / 60:.1f} min left", flush=True)

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


def progress_bars(console: Console) -> Progress:
    """Bars with a description, the number of steps, the time left, and what `Status.words` says."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[words]}"),
        console=console,
    )


def is_terminal() -> bool:
    """Whether somebody is watching."""
    return sys.stdout.isatty()
