"""Everything that decides a run, as a value that can be written down and read again."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import cattrs
from cattrs.strategies import configure_tagged_union

from delayssm.models.specs import Spec, parameters
from delayssm.system import files
from delayssm.tasks.delayed import Copy, DelayedMemory, Sum, WeightedSum


@dataclass(frozen=True, kw_only=True)
class Constant:
    """The learning rate rises linearly over `warmup` steps and then stays."""

    warmup: int = 0

    def factor(self, step: int, steps: int) -> float:
        """What the learning rate is multiplied with at a step (from 0) of `steps`."""
        return _warm(step, self.warmup)


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """After the warm-up, half a cosine down to `final` times the learning rate."""

    warmup: int = 0
    final: float = 0.0

    def factor(self, step: int, steps: int) -> float:
        """What the learning rate is multiplied with at a step (from 0) of `steps`."""
        if step < self.warmup:
            return _warm(step, self.warmup)
        done = (step - self.warmup) / max(1, steps - self.warmup)
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * done))


@dataclass(frozen=True, kw_only=True)
class MultiStep:
    """After the warm-up, multiplied with `decay` at each of these steps."""

    at: tuple[int, ...]
    decay: float = 0.1
    warmup: int = 0

    def factor(self, step: int, steps: int) -> float:
        """What the learning rate is multiplied with at a step (from 0) of `steps`."""
        return _warm(step, self.warmup) * self.decay ** sum(step >= milestone for milestone in self.at)


def _warm(step: int, warmup: int) -> float:
    return min(1.0, (step + 1) / (warmup + 1))


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a model is trained: AdamW on a new batch at each step.

    Args:
        steps: optimiser steps.
        batch_size: samples per step, over all processes.
        lr: learning rate.
        dt_lr: learning rate of the step sizes of state-space layers; None: the same.
        weight_decay: for matrices, except those of state-space layers.
        schedule: how the learning rate changes.
        clip: largest norm of the gradient; None: any.
        precision: "no" is float32; "bf16" is mixed.
        rows_at_once: samples that one process pushes through the model together; gradients of the parts of its share of
            the batch are added up. None: all at once.
        evaluate_every: steps between evaluations; the last step is always followed by one.
        checkpoint_every: steps between checkpoints to resume from.
        validation_size: samples to evaluate on.
        target: stop as soon as an evaluation finds this accuracy; None: never.
    """

    steps: int
    batch_size: int
    lr: float = 1e-3
    dt_lr: float | None = None
    weight_decay: float = 0.0
    schedule: Constant | Cosine | MultiStep = Constant()
    clip: float | None = 1.0
    precision: Literal["no", "bf16"] = "no"
    rows_at_once: int | None = None
    evaluate_every: int = 100
    checkpoint_every: int = 100
    validation_size: int = 512
    target: float | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "evaluate_every", "checkpoint_every", "validation_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.rows_at_once is not None and self.rows_at_once < 1:
            raise ValueError(f"rows_at_once must be at least 1, or None for all, not {self.rows_at_once}")
        for name in ("lr", "dt_lr", "clip"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be a positive number, not {value}")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run.

    Args:
        task: what is learned.
        model: by what; its sizes.
        training: how.
        seed: of initial parameters and data.
        label: what reports call the model, if not by its family.
    """

    task: DelayedMemory
    model: Spec
    training: Training
    seed: int = 0
    label: str = ""

    @property
    def name(self) -> str:
        """For a directory among others: task, model, learning rate, seed."""
        words = f"{self.task.label.replace(' delay', '')} {self.model_label}"
        return f"{re.sub('[^a-z0-9]+', '-', words.lower())}-lr{self.training.lr:g}-seed{self.seed}"

    @property
    def model_label(self) -> str:
        """What reports call the model."""
        return self.label or self.model.family

    def parameters(self) -> int:
        """How many the model has."""
        return parameters(self.model, self.task.vocab_size, self.task.max_length)


def to_json(value: Any) -> Any:
    """A value made of the dataclasses above, ready for `json.dumps`."""
    return _CONVERTER.unstructure(value)


def save(directory: Path, run: Run, environment: dict[str, str]) -> None:
    """Write `directory`/config.json."""
    directory.mkdir(parents=True, exist_ok=True)
    content = {"run": _CONVERTER.unstructure(run), "environment": environment}
    files.write(directory / "config.json", json.dumps(content, indent=2).encode())


def load(directory: Path) -> tuple[Run, dict[str, str]]:
    """What `save` wrote: the run, and the environment that it began in, empty if it has not."""
    path = directory / "config.json"
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        raise FileNotFoundError(f"{directory} is not a run: it has no config.json") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    try:
        return _CONVERTER.structure(content["run"], Run), dict(content["environment"])
    except (cattrs.BaseValidationError, KeyError, TypeError, AttributeError) as error:
        reasons = cattrs.transform_error(error) if isinstance(error, cattrs.BaseValidationError) else [repr(error)]
        raise ValueError(f"{path} does not describe a run of this version: {'; '.join(reasons)}") from error


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    for union in (Copy | Sum | WeightedSum, Constant | Cosine | MultiStep, Spec):
        configure_tagged_union(union, converter, tag_name="kind")
    return converter


_CONVERTER = _converter()
