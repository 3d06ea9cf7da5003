"""What a run writes about itself: metrics.jsonl, a line for each evaluation, and summary.json at its end.

Both files begin with the settings of the run, so that they cannot be taken for those of another one.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from delayssm.storage import files
from delayssm_lab.training import disk
from delayssm_lab.training.checkpoint import TrainingProgress
from delayssm_lab.training.run import Run, check_settings, to_json

Summary = dict[str, float]
Metrics = dict[str, float]


def metrics_path(directory: Path) -> Path:
    """Return the path of the evaluations of a run."""
    return directory / "metrics.jsonl"


def summary_path(directory: Path) -> Path:
    """Return the path of the summary of a run."""
    return directory / "summary.json"


def write_metrics(directory: Path, run: Run, metrics: Sequence[Metrics]) -> None:
    """Write all evaluations so far."""
    lines = [json.dumps(entry) for entry in ({"run": to_json(run)}, *metrics)]
    files.write(metrics_path(directory), "".join(f"{line}\n" for line in lines).encode())


def add_metrics(directory: Path, entry: Metrics) -> None:
    """Append an evaluation."""
    files.append(metrics_path(directory), json.dumps(entry))


def read_metrics(directory: Path, run: Run) -> list[Metrics]:
    """Return one entry for each evaluation so far."""
    path = metrics_path(directory)
    lines = files.read(path).splitlines(keepends=True) if path.exists() else []
    metrics = []
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            break  # a crash has cut the last line, and the evaluation will be repeated
        place, remedy = f"line {number} of {path}", "delete the line to go on without that evaluation"
        entry = disk.parse_object(line, place, remedy)
        if "run" in entry:
            check_settings(entry["run"], run, path)
        else:
            _check_numbers(entry, ("step", run.task.metric.value, "seconds"), ("step",), place, remedy)
            metrics.append(entry)
    return metrics


def ends_early(run: Run, metrics: Sequence[Metrics], best_step: int) -> bool:
    """Return whether a run has reached its target, or exhausted its patience."""
    metric, target, patience = run.task.metric, run.training.target, run.training.patience
    last_two = [entry[metric.value] for entry in metrics[-2:]]
    reached = target is not None and len(last_two) == 2 and not any(metric.better(target, value) for value in last_two)
    without_improvement = sum(entry["step"] > best_step for entry in metrics)
    return reached or (patience is not None and without_improvement >= patience)


def check_evaluations(directory: Path, metrics: Sequence[Metrics], progress: TrainingProgress, run: Run) -> None:
    """Raise if a run cannot go on from what it has done so far, because its number of steps was changed meanwhile.

    The last step of a run is always followed by an evaluation, which a longer run may not have.
    """
    path, every = metrics_path(directory), run.training.evaluate_every
    if progress.step > run.steps:
        raise ValueError(
            f"{directory} has already taken {progress.step} of {run.steps} steps; train the shorter run in a "
            "directory of its own"
        )
    if other := [entry["step"] for entry in metrics if entry["step"] % every and entry["step"] != run.steps]:
        raise ValueError(
            f"{directory} was evaluated after step {other[0]}, which a run of {run.steps} steps that is evaluated "
            f"every {every} steps is not; train the longer run from its beginning, in a directory of its own"
        )
    if progress.best is not None and not metrics:
        raise ValueError(f"{path} has lost its evaluations; train the run again in a new directory")


def write_summary(directory: Path, run: Run, summary: Summary) -> None:
    """Write the summary of a finished run."""
    files.write(summary_path(directory), json.dumps({"run": to_json(run), **summary}, indent=2).encode())


def read_summary(directory: Path, run: Run) -> Summary | None:
    """Return the summary of a finished run; None if the run is not finished."""
    path = summary_path(directory)
    if not path.exists():
        return None
    remedy = "delete it, and the run writes it again when it is resumed"
    summary = disk.parse_object(files.read(path), str(path), remedy)
    if "run" not in summary:
        raise ValueError(f"{path} has no settings of a run; {remedy}")
    check_settings(summary.pop("run"), run, path, agree=operator.eq)  # a longer run has another summary
    names = run.task.metric.value, "best_step", "steps", "seconds"
    _check_numbers(summary, names, ("best_step", "steps"), str(path), remedy)
    return summary


def remove_summary(directory: Path) -> None:
    """Remove the summary of a run that will go on."""
    files.remove(summary_path(directory))


def _check_numbers(
    content: dict[str, Any], required: Sequence[str], counts: Sequence[str], place: str, remedy: str
) -> None:
    """Raise unless some names are there, some of them as whole numbers, and everything is a number."""
    if missing := [name for name in required if name not in content]:
        raise ValueError(f"{place} has no {', '.join(missing)}; {remedy}")
    valid = {name: disk.is_count if name in counts else disk.is_number for name in content}
    if wrong := [name for name, value in content.items() if not valid[name](value)]:
        raise ValueError(f"{place} is damaged ({wrong[0]!r} is {content[wrong[0]]!r}); {remedy}")
