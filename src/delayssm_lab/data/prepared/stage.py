"""Hidden directory in which a data set is written before it takes its place.

    data/.mnist.0123abcd.part/lock     held by the process that writes
    data/.mnist.0123abcd.part/new      arrays that are being written
    data/.mnist.0123abcd.part/old      the version that is being replaced, for a moment

The system releases the lock when the process ends, however it ends. A stage without a process is therefore left over
from a kill or a power failure, on any machine that shares the directory.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from delayssm_lab.data.prepared.location import ABOUT

_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)


class Stage:
    """Stage of the data set that will be in `directory`. It exists from its creation until it is removed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        while True:  # until no other process has taken the new stage, not locked yet, for a leftover
            self._part = directory.parent / f".{directory.name}.{uuid.uuid4().hex}.part"
            self._part.mkdir(parents=True)
            self._lock = FileLock(self._part / "lock", timeout=0, thread_local=False)
            try:
                self._lock.acquire()
                self.new.mkdir()
            except (Timeout, FileNotFoundError):
                self.remove()
            else:
                return

    @property
    def new(self) -> Path:
        """Directory of the arrays that are being written."""
        return self._part / "new"

    def publish(self) -> None:
        """Move the new data set to its directory. If other processes do the same, the last one wins."""
        old = self._part / "old"
        while True:
            try:
                os.rename(self.new, self._directory)
                return
            except OSError as error:  # a directory that is not empty cannot be replaced in one step
                if error.errno not in _TAKEN:
                    if old.exists():
                        os.rename(old, self._directory)
                    raise
            shutil.rmtree(old, ignore_errors=True)
            with suppress(FileNotFoundError):  # another process has moved it in the meantime
                os.rename(self._directory, old)

    def remove(self) -> None:
        """Remove the stage and what is in it."""
        self._lock.release()
        shutil.rmtree(self._part, ignore_errors=True)


def remove_leftovers(directory: Path) -> None:
    """Remove stages without a process. If one was ended while it replaced the data set, complete that first."""
    for part in directory.parent.glob(f".{directory.name}.*.part"):
        lock = FileLock(part / "lock", timeout=0, thread_local=False)
        try:
            lock.acquire()
        except (Timeout, FileNotFoundError, NotADirectoryError):  # in use, or removed by another process
            continue
        try:
            for version in (part / "new", part / "old"):
                if (version / ABOUT).exists() and not directory.exists():
                    os.rename(version, directory)
            shutil.rmtree(part, ignore_errors=True)
        finally:
            lock.release()
