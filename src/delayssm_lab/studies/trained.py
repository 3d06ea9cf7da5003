"""The runs that studies need, trained if they are not there. They are kept by name, so studies share them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from delayssm.storage import files
from delayssm_lab.recipes.delayed import TASKS, ModelName, preset
from delayssm_lab.report.collect import Results, collect
from delayssm_lab.studies.study import Study
from delayssm_lab.training import trainer as training
from delayssm_lab.training.run import Run, from_json, save
from delayssm_lab.training.sweep import sweep
from delayssm_lab.training.trainer import Summary


def one_of_each_task(model: ModelName) -> tuple[Run, ...]:
    """A model on all six tasks at mini scale."""
    return tuple(preset(task, model, "mini") for task in TASKS)


def train(runs: Sequence[Run], root: Path) -> None:
    """Finish runs; an error if one fails, after the others."""
    failed = [outcome for outcome in sweep(runs, root) if outcome.error]
    if failed:
        raise RuntimeError("; ".join(map(str, failed)))


def adopt(runs: Sequence[Run], path: Path, root: Path) -> None:
    """Make directories of those runs that were finished elsewhere, from the facts in a file; they have no weights."""
    for facts in json.loads(path.read_text()) if path.exists() else []:
        directory = root / facts["name"]
        run, environment = from_json(facts, path)
        if run in runs and facts["summary"] and not (directory / "summary.json").exists():
            save(directory, run, environment)
            lines = "".join(f"{json.dumps(entry)}\n" for entry in facts["metrics"])
            files.write(directory / "metrics.jsonl", lines.encode())
            files.write(directory / "summary.json", json.dumps(facts["summary"], indent=2).encode())


def finished(runs: Sequence[Run], root: Path) -> list[Summary]:
    """Summaries of those that are."""
    found = (training.read_summary(root / run.name) for run in runs)
    return [summary for summary in found if summary is not None]


@dataclass(frozen=True)
class Trained(Study):
    """A study of runs.

    Args:
        runs: in the order in which they are wanted.
        root: their directory among all that studies keep.
    """

    runs: tuple[Run, ...]
    root: str

    def progress(self, work: Path) -> tuple[int, int]:
        return len(finished(self.runs, work / self.root)), len(self.runs)

    def run(self, work: Path) -> None:
        train(self.runs, work / self.root)

    def seconds(self, work: Path) -> float:
        return sum(summary["seconds"] for summary in finished(self.runs, work / self.root))

    def found(self, work: Path) -> Results:
        """What those that are finished say together."""
        return collect([work / self.root / run.name for run in self.runs if finished([run], work / self.root)])
