"""Studies of trained models.

Runs are trained when a study needs them and kept by name, so studies share them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from delayssm.storage import files
from delayssm_lab.recipes.delayed import TASKS, ModelName, preset
from delayssm_lab.report.collect import Results, collect
from delayssm_lab.study import Study
from delayssm_lab.training.run import Run, from_json, save
from delayssm_lab.training.sweep import sweep
from delayssm_lab.training.trainer import Summary, read_summary


def one_run_per_task(model: ModelName) -> tuple[Run, ...]:
    """Return the mini runs of a model on the six delayed-memory tasks."""
    return tuple(preset(task, model, "mini") for task in TASKS)


def train(runs: Sequence[Run], root: Path) -> None:
    """Train all runs that are not finished, and raise an error at the end if any has failed."""
    failed = [outcome for outcome in sweep(runs, root) if outcome.error]
    if failed:
        raise RuntimeError("; ".join(map(str, failed)))


def adopt(runs: Sequence[Run], path: Path, root: Path) -> None:
    """Create the directories of those runs that a runs.json holds the results of; they have no weights."""
    for record in json.loads(path.read_text()) if path.exists() else []:
        directory = root / record["name"]
        run, environment = from_json(record, path)
        if run in runs and record["summary"] and not (directory / "summary.json").exists():
            save(directory, run, environment)
            lines = "".join(f"{json.dumps(entry)}\n" for entry in record["metrics"])
            files.write(directory / "metrics.jsonl", lines.encode())
            files.write(directory / "summary.json", json.dumps(record["summary"], indent=2).encode())


def summaries(runs: Sequence[Run], root: Path) -> list[Summary]:
    """Return the summaries of the finished runs."""
    read = (read_summary(root / run.name) for run in runs)
    return [summary for summary in read if summary is not None]


@dataclass(frozen=True)
class Trained(Study):
    """A study of trained models.

    Args:
        runs: Runs in the order in which they are trained.
        root: Name of the directory of these runs in the working directory of all studies.
    """

    runs: tuple[Run, ...]
    root: str

    def progress(self, work: Path) -> tuple[int, int]:
        return len(self.finished_runs(work)), len(self.runs)

    def run(self, work: Path) -> None:
        train(self.runs, work / self.root)

    def seconds(self, work: Path) -> float:
        return sum(summary["seconds"] for summary in summaries(self.runs, work / self.root))

    def finished_runs(self, work: Path) -> list[Run]:
        """Return the runs that have ended."""
        return [run for run in self.runs if read_summary(work / self.root / run.name) is not None]

    def collected(self, work: Path) -> Results:
        """Return the results of the finished runs."""
        return collect([work / self.root / run.name for run in self.finished_runs(work)])
