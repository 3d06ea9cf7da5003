"""Killing of processes at random moments, and while they write a file."""

import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.runs import finish

#: Seconds that a process may take to begin, and to write one file.
PATIENCE = 120


def kill(process: subprocess.Popen[str], began: Callable[[], bool], folder: Path, moment: random.Random) -> str:
    """Kill a process and return when: while it began, at a random moment of its work, or while it wrote a file.

    Args:
        process: The process, which has just been started.
        began: Returns whether it has begun its work.
        folder: Directory in or below which it writes.
        moment: Source of the random moments.
    """
    try:
        when = _await_a_moment(process, began, folder, moment)
    finally:
        process.kill()
        code, _, errors = finish(process)
    assert code == -signal.SIGKILL, (code, errors)
    return when


def _await_a_moment(
    process: subprocess.Popen[str], began: Callable[[], bool], folder: Path, moment: random.Random
) -> str:
    when = moment.choice(["beginning", *["working"] * 4, *["writing"] * 5])
    if when == "beginning":
        _wait(process, lambda: False, moment.uniform(0, 2))
    else:
        assert _wait(process, began, PATIENCE), "it has not begun"
        if when == "working":
            _wait(process, lambda: False, moment.uniform(0, 0.2))
        else:
            assert _wait(process, lambda: any(folder.rglob("*.part")), PATIENCE), "it writes nothing"
    return when


def _wait(process: subprocess.Popen[str], condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition and return whether it has come about."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        assert process.poll() is None, "the process has ended by itself"
        time.sleep(0.0005)  # files that are being written are there for some milliseconds
    return True
