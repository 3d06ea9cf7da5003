"""Ctrl-C that waits for the end of a step."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

#: Of a process that was asked to stop and has saved where it is: what a shell reports after Ctrl-C.
EXIT_CODE = 130


class Interrupted(Exception):
    """A run was asked to stop, and has saved where it is."""


class Interruption:
    """While open, the first SIGINT or SIGTERM only raises a flag; the second acts as usual.

    Signals reach the main thread only, so elsewhere nothing is changed.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        main = threading.current_thread() is threading.main_thread()
        for number in (signal.SIGINT, signal.SIGTERM) if main else ():
            self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.wanted = True
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
