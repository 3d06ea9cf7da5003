"""Sweeps: many runs on one machine, each in its own process."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from delayssm_lab.display import Board, Display, Status
from delayssm_lab.environment import available_cores
from delayssm_lab.tasks.task import Metric
from delayssm_lab.training.directory import create
from delayssm_lab.training.interrupt import EXIT_CODE, NOTICE, Interrupted, Interruption
from delayssm_lab.training.logbook import Summary, read_summary
from delayssm_lab.training.run import Run, load

#: What Python runs to train the run in a directory. A script with tasks of its own puts itself here.
worker_command = ["-m", "delayssm_lab.training.worker"]


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run: its summary, or a message about what went wrong."""

    directory: Path
    summary: Summary | None = None
    error: str | None = None

    def __str__(self) -> str:
        if self.summary is None:
            return f"{self.directory.name}: {self.error}"
        metric = next(metric for metric in Metric if metric.value in self.summary)
        return f"{self.directory.name}: {metric.label} {self.summary[metric.value]:.3f}"


class Worker:
    """A run in its own process. What the process prints goes to log.txt, and its messages have a pipe of their own."""

    def __init__(self, directory: Path, threads: int, environment: dict[str, str], display: Display) -> None:
        self.directory, self.display = directory, display
        thread_counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), str(threads))
        self._log = directory / "log.txt"
        with self._log.open("w") as log:
            messages, of_worker = os.pipe()
            self._messages = os.fdopen(messages, "rb")
            with os.fdopen(of_worker, "wb"):  # which the worker inherits, and which is closed here
                self._process = subprocess.Popen(
                    # Unbuffered, so that the log has an error after everything that was printed before it.
                    [sys.executable, "-u", *worker_command, str(directory), str(of_worker)],
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **thread_counts, **environment},
                    pass_fds=[of_worker],
                    start_new_session=True,  # so that Ctrl-C reaches this process only, which forwards it once
                )
        self._incomplete = b""
        self._stopping = False

    def fileno(self) -> int:
        """Return the file descriptor of the worker's messages."""
        return self._messages.fileno()

    def read(self) -> bool:
        """Wait for messages and show them. Return False when there will be no more."""
        content = os.read(self.fileno(), 1 << 16)
        *lines, self._incomplete = (self._incomplete + content).split(b"\n")
        for message in map(json.loads, lines):
            if "status" in message:
                self.display.show(Status(**message["status"]))
            else:
                self.display.say(message["message"])
        return bool(content)

    def ask_to_stop(self) -> None:
        """Ask the worker to write a checkpoint and exit. It is asked only once, as a second signal would kill it."""
        if not self._stopping:
            self._stopping = True
            self._process.send_signal(signal.SIGINT)

    def wait(self) -> None:
        """Wait until the worker has exited, without showing its messages."""
        while os.read(self.fileno(), 1 << 16):
            pass
        self._messages.close()
        self._process.wait()

    def outcome(self) -> Outcome:
        """Return the outcome of the run, once there are no more messages."""
        self._messages.close()
        code = self._process.wait()
        if code == 0:
            return Outcome(self.directory, summary=read_summary(self.directory, load(self.directory)[0]))
        if code == EXIT_CODE:
            return Outcome(self.directory, error="interrupted")
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return Outcome(self.directory, error=f"{lines[-1] if lines else f'exit code {code}'} (see {self._log})")


def prepare(runs: Sequence[Run], root: str | Path) -> tuple[list[Path], dict[Path, Outcome]]:
    """Create a directory for each run, and return the directories and the outcomes of finished runs."""
    directories = [Path(root) / run.name for run in runs]
    if repeated := sorted({str(d) for d in directories if directories.count(d) > 1}):
        raise ValueError(f"several runs have the directory {', '.join(repeated)}; give them different seeds or labels")
    for run, directory in zip(runs, directories, strict=True):
        create(directory, run)
    summaries = {directory: read_summary(directory, run) for run, directory in zip(runs, directories, strict=True)}
    return directories, {d: Outcome(d, summary) for d, summary in summaries.items() if summary is not None}


def visible_gpus() -> list[str]:
    """Return the name of each GPU that this process may use, as CUDA_VISIBLE_DEVICES has it."""
    count, chosen = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES")
    return chosen.split(",")[:count] if chosen else [str(number) for number in range(count)]


def sweep(
    runs: Sequence[Run],
    root: str | Path,
    workers: int | None = None,
    finished: Callable[[Path], None] = lambda directory: None,
) -> list[Outcome]:
    """Train all runs to their end, `workers` at a time, and return their outcomes. Finished runs are not trained again.

    By default there are as many workers as GPUs, or as cores if there is no GPU. On Ctrl-C each worker writes a
    checkpoint and exits. `finished` is called with the directory of each run as soon as that has ended.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, or None, not {workers}")
    directories, done = prepare(runs, root)
    for directory in done:
        finished(directory)
    waiting = deque(directory for directory in directories if directory not in done)
    gpus, cores = visible_gpus(), available_cores()
    workers = min(workers or len(gpus) or cores, max(1, len(waiting)))
    threads = max(1, cores // workers)
    free = list(range(workers))
    running: dict[Worker, int] = {}
    stopping = False
    try:
        with Interruption(NOTICE) as interruption, Board() as board, selectors.DefaultSelector() as selector:
            while waiting or running:
                while waiting and free:
                    directory, slot = waiting.popleft(), free.pop(0)
                    environment = {"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} if gpus else {}
                    display = board.add(directory.name, prefix=f"{directory.name}  ")
                    worker = Worker(directory, threads, environment, display)
                    running[worker] = slot
                    selector.register(worker, selectors.EVENT_READ, worker)
                for key, _ in selector.select(timeout=0.2):
                    worker = key.data
                    if not worker.read():
                        selector.unregister(worker)
                        free.append(running.pop(worker))
                        outcome = done[worker.directory] = worker.outcome()
                        if outcome.summary is not None:
                            finished(worker.directory)
                        board.finish(worker.display, str(outcome), len(done), len(runs))
                if interruption.requested and not stopping:
                    stopping = True
                    waiting.clear()
                    for worker in running:
                        worker.ask_to_stop()
    except Exception:  # such as a full disk in `finished`: the other runs get a checkpoint
        for worker in running:
            worker.ask_to_stop()
        for worker in running:
            worker.wait()
        raise
    if stopping:
        count = sum(outcome.summary is not None for outcome in done.values())
        raise Interrupted(f"{count} of {len(runs)} runs are finished")
    return [done[directory] for directory in directories]
