"""Processes that write data sets and are killed at a chosen moment."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from delayssm_lab.data.generate.listops import ListOpsGenerator
from delayssm_lab.data.generate.write import generate_listops
from delayssm_lab.data.prepared.writer import Writer
from tests.support import published

#: What changes the disk. Between two of these, a kill leaves the same files.
_EVENTS = ("open", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "shutil.rmtree")


def prepare(root: Path) -> None:
    """Prepare a tiny version of Speech Commands, whose files are made in `root` if there are none."""
    dataset = published.speech_commands(root)
    with Writer(dataset.name) as writer:
        dataset.read(root, writer)


def generate(root: Path) -> None:
    """Generate a few expressions. `root` is not used."""
    generate_listops(ListOpsGenerator(min_length=10, max_length=100), {"train": 30, "test": 5}, seed=3)


def run(write: Callable[[Path], None], root: Path, data: Path, kill_at: int, log: Path) -> None:
    """Write a data set into `data`, and kill this process before the `kill_at`-th change below `data`.

    Whatever the process has changed is counted in `log`, one byte each.
    """
    os.environ["DELAYSSM_DATA"] = str(data)
    moments = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    count = 0

    def notice(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        if event in _EVENTS and str(arguments[0]).startswith(str(data)):
            count += 1
            os.write(moments, b".")
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(notice)
    write(root)
