"""Everything that decides a run, as a value that can be written to a file and read again."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import cattrs
import torch
from cattrs.strategies import configure_tagged_union
from torch import nn

from delayssm.config import Config
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
        steps: Optimiser steps; None if epochs are counted.
        epochs: Passes over the training samples; None if steps are counted.
        batch_size: Samples per step, over all processes.
        lr: Learning rate.
        dt_lr: Learning rate of the step sizes of state-space layers; None: 1e-4 for DS4D, at most 1e-3 for S4D.
        dynamics_lr: Learning rate of the base dynamics and of B in state-space layers; None: `lr`.
        weight_decay: Weight decay of matrices, except those of state-space layers.
        schedule: How the learning rate changes.
        clip: Largest norm of the gradient; None: no clipping.
        precision: "no" is float32; "bf16" is mixed precision.
        rows_at_once: Samples that one process runs through the model together; gradients of the parts of its share of
            the batch are added up. None: all at once. Batch norm sees each part by itself.
        evaluate_every: Steps between evaluations; the last step is always followed by one.
        checkpoint_every: Steps between checkpoints to resume from.
        validation_size: Samples to evaluate on, if there are as many; None: all.
        test_size: Samples to test the best weights on at the end, if there are any; None: all.
        target: Accuracy, or error, at which training stops; None: it does not.
        patience: Evaluations without improvement after which training stops; None: it does not.
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
        task: Task to learn.
        model: Model to train.
        training: How it is trained.
        seed: Seed of initial parameters and data.
        label: Name of the model in reports; by default its family.
    """

    task: AnyTask
    model: Spec
    training: Training
    seed: int = 0
    label: str = ""

    @property
    def name(self) -> str:
        """Name of its directory: task, model, learning rate, seed."""
        words = f"{self.task.label.replace(' delay', '')} {self.model_label}"
        return f"{re.sub('[^a-z0-9]+', '-', words.lower())}-lr{self.training.lr:g}-seed{self.seed}"

    @property
    def model_label(self) -> str:
        """Name of the model in reports."""
        return self.label or self.model.family

    @property
    def steps(self) -> int:
        """Total number of optimiser steps. Where epochs are counted, the data must be there."""
        if self.training.steps is not None:
            return self.training.steps
        size = self.task.size(Split.TRAIN)
        if size is None or self.training.epochs is None:
            raise ValueError(f"{self.task.label} has no end of samples, so no epochs; say how many steps")
        return math.ceil(self.training.epochs * size / self.training.batch_size)

    def build(self) -> nn.Module:
        """Return the model with other initial values each time."""
        return self.task.build(self.model)

    def initial_model(self) -> nn.Module:
        """Return the model as it is before the first step."""
        torch.manual_seed(self.seed)
        return self.build()

    def parameters(self) -> int:
        """Return the number of parameters of the model."""
        return count_parameters(self.build)


def to_json(value: Any) -> Any:
    """Return a value made of the dataclasses above as JSON-able values."""
    return _CONVERTER.unstructure(value)


def save(directory: Path, run: Run, environment: dict[str, str]) -> None:
    """Write the run, and the environment that it began in, to config.json in a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    content = {"run": _CONVERTER.unstructure(run), "environment": environment}
    files.write(directory / "config.json", json.dumps(content, indent=2).encode())


def load(directory: Path) -> tuple[Run, dict[str, str]]:
    """Return what `save` wrote: the run, and the environment that it began in, empty if it has not."""
    path = directory / "config.json"
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        raise FileNotFoundError(f"{directory} is not a run: it has no config.json") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    return from_json(content, path)


def from_json(content: Any, path: Path) -> tuple[Run, dict[str, str]]:
    """Return the run and the environment that the content of a file describes; what is missing has its default."""
    try:
        return _CONVERTER.structure(content["run"], Run), dict(content["environment"])
    except (cattrs.BaseValidationError, KeyError, TypeError, AttributeError, ValueError) as error:
        reasons = cattrs.transform_error(error) if isinstance(error, cattrs.BaseValidationError) else [repr(error)]
        raise ValueError(f"{path} does not describe a run of this version: {'; '.join(reasons)}") from error


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_unstructure_hook_func(_is_config, lambda config: config.to_dict())
    converter.register_structure_hook_func(_is_config, lambda content, kind: kind.from_dict(content))
    for union in (Copy | Sum | WeightedSum, Schedule, Spec, AnyTask):
        configure_tagged_union(union, converter, tag_name="kind")
    return converter


def _is_config(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Config)


_CONVERTER = _converter()
