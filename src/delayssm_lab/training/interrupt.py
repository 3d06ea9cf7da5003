"""Handling of Ctrl-C and SIGTERM that lets the current step end and a checkpoint be written."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

#: Exit code after an interruption, the one that shells report after Ctrl-C.
EXIT_CODE = 130
#: Notice of a first signal.
NOTICE = "Stopping after this step. Interrupt again to stop at once, without saving it."


class Interrupted(Exception):
    """Raised when a run was interrupted, after its checkpoint has been written."""


def leave_imports_at_once() -> None:
    """Let Ctrl-C end the process at once, with one line, while modules are being imported.

    Nothing is lost then. An exception could not pass through the code in C++ that imports run, which would abort.
    """
    signal.signal(signal.SIGINT, _leave_imports)


def _leave_imports(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            sys.stderr.write("Interrupted.\n")
            sys.stderr.flush()
            os._exit(EXIT_CODE)
        frame = frame.f_back
    raise KeyboardInterrupt


class Interruption:
    """Context manager that turns the first SIGINT or SIGTERM into the flag `requested`. The second acts as usual.

    Python delivers signals to the main thread only. In other threads this context manager has no effect.

    Args:
        notice: Line that tells the user that the first signal has arrived, as a step can take minutes. Empty: none.
    """

    def __init__(self, notice: str = "") -> None:
        self.requested = False
        self._notice = notice
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        main = threading.current_thread() is threading.main_thread()
        for number in (signal.SIGINT, signal.SIGTERM) if main else ():
            self._handlers[number] = signal.signal(number, self._request)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._restore()

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        self._restore()
        if self._notice:  # by os.write, because a handler may run in the middle of a call of print
            os.write(2, f"{self._notice}\n".encode())

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}
