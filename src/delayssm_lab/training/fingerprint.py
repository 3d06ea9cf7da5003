"""Fingerprints of the code that trains a run, which tell whether a result is still one of this code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch

from delayssm.storage import files
from delayssm_lab.models.noise import noise, noise_tokens
from delayssm_lab.tasks import kinds
from delayssm_lab.tasks.language import FilmReviews
from delayssm_lab.tasks.recall import RecallTask
from delayssm_lab.tasks.task import Split
from delayssm_lab.training import disk
from delayssm_lab.training.run import Run, Training, check_settings, to_json

#: Largest difference between fingerprints of the same code, relative to their first number. Machines and numbers of
#: threads round differently.
TOLERANCE = 1e-6
#: How a model is trained has no influence on it before its training.
_ANY_TRAINING = Training(steps=1, batch_size=1)


def compute(run: Run) -> list[float]:
    """Return a few numbers that change if the untrained model of a run computes anything else for the same input.

    They are the root mean square of its outputs, and three projections on fixed directions. The models of a task of a
    script can be of any type, so for them they are the loss and the points of the first validation sample.
    """
    return list(_compute(replace(run, training=_ANY_TRAINING)))


@cache
@torch.no_grad()
def _compute(run: Run) -> tuple[float, ...]:
    model, task = run.initial_model().eval(), run.task
    if isinstance(task, RecallTask):
        outputs = model(task.batch(run.seed, Split.VALIDATION, [0]).tokens)
    elif type(task) in kinds.own().values():
        score = task.batch(run.seed, Split.VALIDATION, [0]).score(model)
        return float(score.loss), float(score.points)
    elif isinstance(task, FilmReviews):  # without its data
        outputs = model(noise_tokens(task.vocab_size, task.max_length))
    else:
        outputs = model(*noise(model, task.max_length))
    y = outputs.double().flatten()
    angle = torch.arange(1, len(y) + 1, dtype=torch.float64)
    projections = [y @ torch.cos(frequency * angle) / len(y) ** 0.5 for frequency in (1.0, 2.0**0.5, 3.0**0.5)]
    return float(y.square().mean().sqrt()), *map(float, projections)


def agree(a: Sequence[float], b: Sequence[float]) -> bool:
    """Return whether two fingerprints are equal up to rounding."""
    return len(a) == len(b) and all(abs(x - y) <= TOLERANCE * a[0] for x, y in zip(a, b, strict=True))


def write(directory: Path, run: Run) -> None:
    """Write the fingerprint of a run to its directory."""
    files.write(_path(directory), json.dumps({"run": to_json(run), "values": compute(run)}).encode())


def read(directory: Path, run: Run) -> list[float]:
    """Return the fingerprint of the code that began a run; empty if there is none."""
    path = _path(directory)
    if not path.exists():
        return []
    remedy = "delete the run to train it again"
    content = disk.parse_object(files.read(path), str(path), remedy)
    values = content.get("values")
    if not isinstance(values, list) or not all(map(disk.is_number, values)):
        raise ValueError(f"{path} is damaged (it has no list of numbers); {remedy}")
    check_settings(content.get("run"), run, path)
    return [float(value) for value in values]


def refuse_other_code(directory: Path, run: Run) -> None:
    """Raise ValueError if a run was begun by code that computes something else."""
    began = read(directory, run)
    if began and not agree(compute(run), began):
        raise ValueError(f"{directory} was begun by other code than this; delete it to train the run again")


def _path(directory: Path) -> Path:
    return directory / "fingerprint.json"
