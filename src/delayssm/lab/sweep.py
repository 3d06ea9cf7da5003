"""Many runs on one machine, each in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import torch
from rich.console import Console

from delayssm.lab import training
from delayssm.lab.display import Bar, Display, Lines, Status, is_terminal, progress_bars
from delayssm.lab.interrupt import EXIT_CODE, Interrupted, Interruption
from delayssm.lab.run import Run
from delayssm.lab.training import Summary


@dataclass(frozen=True)
class Outcome:
    """What became of a run: its summary, or what went wrong."""

    directory: Path
    summary: Summary | None = None
    error: str | None = None


def prepare(runs: Sequence[Run], root: Path) -> list[Path]:
    """A directory for each run, by its name."""
    directories = [root / run.name for run in runs]
    if repeated := sorted({str(d) for d in directories if directories.count(d) > 1}):
        raise ValueError(f"several runs would share a directory: {', '.join(repeated)}")
    for run, directory in zip(runs, directories, strict=True):
        training.create(directory, run)
    return directories


def sweep(runs: Sequence[Run], root: Path, workers: int | None = None) -> list[Outcome]:
    """Finish all runs, `workers` at a time, and say what became of each. Those that are finished are not run again.

    By default there are as many workers as GPUs, or else as cores. Ctrl-C lets each running one save where it is.
    """
    directories = prepare(runs, root)
    waiting = [d for d in directories if training.read_summary(d) is None]
    gpus, cores = torch.cuda.device_count(), os.cpu_count() or 1
    workers = min(workers or gpus or cores, max(1, len(waiting)))
    slots: SimpleQueue[int] = SimpleQueue()
    for slot in range(workers):
        slots.put(slot)
    running: set[subprocess.Popen[str]] = set()
    stopping = threading.Event()
    bars = progress_bars(Console()) if is_terminal() else None

    def work(directory: Path) -> Outcome:
        slot = slots.get()
        try:
            if stopping.is_set():
                return Outcome(directory, error="not begun")
            environment = {"CUDA_VISIBLE_DEVICES": str(slot % gpus)} if gpus else {}
            shown: Display = Lines(f"{directory.name}  ") if bars is None else Bar(directory.name, bars)
            outcome = run_in_process(directory, max(1, cores // workers), environment, shown, running)
            if isinstance(shown, Bar) and bars is not None:
                bars.remove_task(shown.task)
            announce(outcome, shown)
            return outcome
        finally:
            slots.put(slot)

    with Interruption() as interruption, bars or nullcontext(), ThreadPoolExecutor(workers) as pool:
        total = None if bars is None else bars.add_task("[bold]runs", total=len(runs), words="")
        futures: list[Future[Outcome]] = [pool.submit(work, directory) for directory in waiting]
        pending = set(futures)
        while pending:
            _, pending = wait_for(pending, timeout=0.2)
            if bars is not None and total is not None:
                bars.update(total, completed=len(runs) - len(pending))
            if interruption.wanted and not stopping.is_set():
                stopping.set()
                for process in list(running):
                    process.send_signal(signal.SIGINT)
    if stopping.is_set():
        raise Interrupted(f"{sum(training.read_summary(d) is not None for d in directories)} of {len(runs)} are done")
    found = {outcome.directory: outcome for outcome in (future.result() for future in futures)}
    return [found.get(d) or Outcome(d, training.read_summary(d)) for d in directories]


def run_in_process(
    directory: Path,
    threads: int,
    environment: dict[str, str],
    display: Display,
    running: set[subprocess.Popen[str]] | None = None,
) -> Outcome:
    """Finish one run in a new process, which is in `running` meanwhile. Its standard error goes to log.txt."""
    running = set() if running is None else running
    counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), str(threads))
    log = directory / "log.txt"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "delayssm.lab.worker", str(directory)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **counts, **environment},
            start_new_session=True,  # Ctrl-C reaches this process alone, which then asks its workers once
        ) as process,
    ):
        running.add(process)
        assert process.stdout is not None
        for line in process.stdout:
            message = json.loads(line)
            if "status" in message:
                display.show(Status(**message["status"]))
            else:
                display.say(message["message"])
    running.discard(process)
    if process.returncode == 0:
        return Outcome(directory, summary=training.read_summary(directory))
    if process.returncode == EXIT_CODE:
        return Outcome(directory, error="interrupted")
    return Outcome(directory, error=_last_line(log) or f"ended with exit code {process.returncode}")


def announce(outcome: Outcome, display: Display) -> None:
    """Say what became of a run."""
    if outcome.summary is not None:
        display.say(f"{outcome.directory.name}: accuracy {outcome.summary['accuracy']:.3f}")
    else:
        display.say(f"{outcome.directory.name}: {outcome.error}")


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return f"{lines[-1]} (see {path})" if lines else ""
