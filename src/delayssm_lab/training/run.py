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
from torch import nn

from delayssm.models.matching import count_parameters
from delayssm.storage import files
from delayssm_lab.models.specs import Spec
from delayssm_lab.tasks.delayed import Copy, DelayedMemory, Sum, WeightedSum
from delayssm_lab.tasks.images import GrayCIFAR, Pathfinder, SequentialMNIST
from delayssm_lab.tasks.signals import BIDMC, SpeechCommands
from delayssm_lab.tasks.task import Split
from delayssm_lab.tasks.texts import ListOps, Retrieval, Text
from delayssm_lab.training.schedules import CONSTANT, Schedule

AnyTask = DelayedMemory | SequentialMNIST | SpeechCommands | BIDMC | ListOps | Text | Retrieval | GrayCIFAR | Pathfinder


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a model is trained: AdamW on a new batch at each step.

    Args:
        steps: optimiser steps; None if epochs are counted.
        epochs: how often each training sample is seen; None if steps are counted.
        batch_size: samples per step, over all processes.
        lr: learning rate.
        dt_lr: learning rate of the step sizes of state-space layers; None: the same.
        dynamics_lr: learning rate of the base dynamics and of B in state-space layers; None: the same.
        weight_decay: for matrices, except those of state-space layers.
        schedule: how the learning rate changes.
        clip: largest norm of the gradient; None: any.
        precision: "no" is float32; "bf16" is mixed.
        rows_at_once: samples that one process pushes through the model together; gradients of the parts of its share of
            the batch are added up. None: all at once. Batch norm sees each part by itself.
        evaluate_every: steps between evaluations; the last step is always followed by one.
        checkpoint_every: steps between checkpoints to resume from.
        validation_size: samples to evaluate on, if there are as many; None: all.
        test_size: samples to test the best weights on at the end, if there are any; None: all.
        target: stop as soon as an evaluation finds this accuracy, or error; None: never.
        patience: stop after this many evaluations without a better one; None: never.
    """

    steps: int | None = None
    epochs: float | None = None
    batch_size: int
    lr: float = 1e-3
    dt_lr: float | None = None
    dynamics_lr: float | None = None
    weight_decay: float = 0.0
    schedule: Schedule = CONSTANT
    clip: float | None = 1.0
    precision: Literal["no", "bf16"] = "no"
    rows_at_once: int | None = None
    evaluate_every: int = 100
    checkpoint_every: int = 100
    validation_size: int | None = 512
    test_size: int | None = None
    target: float | None = None
    patience: int | None = None

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError(f"say either how many steps or how many epochs, not {self.steps} and {self.epochs}")
        for name in ("batch_size", "evaluate_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("steps", "rows_at_once", "validation_size", "test_size", "patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, or None, not {value}")
        for name in ("epochs", "lr", "dt_lr", "dynamics_lr", "clip"):
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

    task: AnyTask
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

    @property
    def steps(self) -> int:
        """Optimiser steps in all. Where epochs are counted, the data must be there."""
        if self.training.steps is not None:
            return self.training.steps
        size = self.task.size(Split.TRAIN)
        if size is None or self.training.epochs is None:
            raise ValueError(f"{self.task.label} has no end of samples, so no epochs; say how many steps")
        return math.ceil(self.training.epochs * size / self.training.batch_size)

    def build(self) -> nn.Module:
        """The model, freshly initialised."""
        return self.task.build(self.model)

    def parameters(self) -> int:
        """How many the model has."""
        return count_parameters(self.build)


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
    return from_json(content, path)


def from_json(content: Any, path: Path) -> tuple[Run, dict[str, str]]:
    """The run and the environment that a file describes, from its content. What is not said has its default."""
    try:
        return _CONVERTER.structure(content["run"], Run), dict(content["environment"])
    except (cattrs.BaseValidationError, KeyError, TypeError, AttributeError) as error:
        reasons = cattrs.transform_error(error) if isinstance(error, cattrs.BaseValidationError) else [repr(error)]
        raise ValueError(f"{path} does not describe a run of this version: {'; '.join(reasons)}") from error


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    for union in (Copy | Sum | WeightedSum, Schedule, Spec):
        configure_tagged_union(union, converter, tag_name="kind")
    configure_tagged_union(AnyTask, converter, tag_name="kind", default=DelayedMemory)  # once the only one
    return converter


_CONVERTER = _converter()
