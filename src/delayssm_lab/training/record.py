"""Records: what is left of a run when its directory is gone, small enough to be kept in a repository.

A record has the settings of a run, where it was made, its evaluations, and what figures and tables need of its weights.
It also has a fingerprint of the code that trained it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from torch import nn

from delayssm.layers.delay_ssm import DelaySSM
from delayssm.storage import files
from delayssm_lab.tasks.recall import RecallTask
from delayssm_lab.tasks.task import Split
from delayssm_lab.training import disk, fingerprint
from delayssm_lab.training.evaluate import best_model
from delayssm_lab.training.logbook import Summary, metrics_path, read_metrics, read_summary
from delayssm_lab.training.run import Run, from_json, load, to_json

#: The number increases when the content of a file changes its meaning.
FORMAT = "delayssm run 1"
#: Delays of the channels of one layer in steps: a list from before training, and one from the best checkpoint.
LayerDelays = list[list[float]]


@dataclass(frozen=True)
class Record:
    """One run.

    Args:
        run: Settings of the run.
        environment: Versions and machine when the run began.
        date: Day of the last evaluation.
        metrics: One entry for each evaluation.
        summary: Summary at the end; None for a run that has not ended.
        fingerprint: Fingerprint of the code when the run began.
        delays: Delays of each layer that has any.
        answers: Answers of the best checkpoint to the first validation sample; empty if they are not tokens.
    """

    run: Run
    environment: dict[str, str]
    date: str
    metrics: list[dict[str, float]]
    summary: Summary | None
    fingerprint: list[float]
    delays: list[LayerDelays]
    answers: list[int]

    @property
    def finished(self) -> bool:
        """Whether the run has ended."""
        return self.summary is not None

    @property
    def best(self) -> float:
        """Best validation metric so far."""
        return self.run.task.metric.best(value for _, value in self.curve())

    def curve(self) -> list[tuple[int, float]]:
        """Return the step and the validation metric of each evaluation."""
        return [(int(entry["step"]), entry[self.run.task.metric.value]) for entry in self.metrics]

    def is_of_this_code(self) -> bool:
        """Return whether the untrained model still computes what it did when the run began."""
        return fingerprint.agree(fingerprint.compute(self.run), self.fingerprint)

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON-able values."""
        return {
            "format": FORMAT,
            "run": to_json(self.run),
            "environment": self.environment,
            "date": self.date,
            "summary": self.summary,
            "fingerprint": self.fingerprint,
            "answers": self.answers,
            "delays": self.delays,
            "metrics": self.metrics,
        }


def read(path: Path) -> Record:
    """Return the record in a JSON file."""
    content = disk.parse(files.read(path), str(path))
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else None
        raise ValueError(f"{path} has the format {found!r}, but {FORMAT!r} is expected")
    run, environment = from_json(content, path)
    names = "date", "metrics", "summary", "fingerprint", "delays", "answers"
    if missing := [name for name in names if name not in content]:
        raise ValueError(f"{path} is damaged: it has no {', '.join(missing)}")
    metrics = content["metrics"] if isinstance(content["metrics"], list) else []
    values = [entry.get(run.task.metric.value) for entry in metrics if isinstance(entry, dict)]
    if not (values and len(values) == len(metrics) and all(map(disk.is_number, values))):
        raise ValueError(f"{path} is damaged: its metrics are no evaluations")
    return Record(run, environment, *(content[name] for name in names))


def of_directory(directory: Path) -> Record | None:
    """Return the record of a run from its directory; None if it has not been evaluated yet."""
    run, environment = load(directory)
    metrics = read_metrics(directory, run)
    if not metrics:
        return None
    model = best_model(directory, run)
    before, after = _delays(run.initial_model()), _delays(model)
    return Record(
        run,
        environment,
        date.fromtimestamp(metrics_path(directory).stat().st_mtime).isoformat(),
        metrics,
        read_summary(directory, run),
        fingerprint.read(directory, run),
        [list(pair) for pair in zip(before, after, strict=True)],
        _answers(run, model),
    )


def _delays(model: nn.Module) -> list[list[float]]:
    """Return the delays of each layer in steps, to a thousandth."""
    systems = (module for module in model.modules() if isinstance(module, DelaySSM))
    return [[round(delay, 3) for delay in ssm.delays().tolist()] for ssm in systems]


def _answers(run: Run, model: nn.Module) -> list[int]:
    task = run.task
    if not isinstance(task, RecallTask):
        return []
    answers: list[int] = task.answers(model, task.batch(run.seed, Split.VALIDATION, [0]))[0].tolist()
    return answers
