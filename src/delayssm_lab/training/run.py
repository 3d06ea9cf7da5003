"""Runs: task, model and training settings as one value, which is saved as config.json."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import cattrs
import torch
from cattrs.gen import make_dict_unstructure_fn
from cattrs.strategies import configure_tagged_union
from cattrs.v import format_exception
from torch import nn

from delayssm.config import Config, differences
from delayssm.models.matching import count_parameters
from delayssm.storage import files
from delayssm_lab.models.specs import Spec, StateSpaceSpec
from delayssm_lab.tasks import kinds
from delayssm_lab.tasks.delayed import Copy, Sum, WeightedSum
from delayssm_lab.tasks.language import FilmReviews
from delayssm_lab.tasks.recall import RecallTask
from delayssm_lab.tasks.task import Split, Task
from delayssm_lab.training import disk
from delayssm_lab.training.schedules import CONSTANT, Constant, Schedule

#: Format of the directory of a run. The number increases when the content of its files changes its meaning.
FORMAT = "delayssm directory 1"
#: Whole numbers of runs are below this one.
LARGEST = 2**31


@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings of training with AdamW, on a new batch at each step.

    Args:
        steps: Number of optimiser steps. Exactly one of `steps` and `epochs` is given.
        epochs: Number of passes over the training samples.
        batch_size: Number of samples per step, over all processes.
        lr: Learning rate.
        dt_lr: Learning rate of the step sizes of state-space layers. None means 1e-4 for DS4D and min(lr, 1e-3) for
            S4D.
        dynamics_lr: Learning rate of the base dynamics and of B in state-space layers. None means `lr` for DS4D and
            min(lr, 1e-3) for S4D.
        weight_decay: Weight decay of matrices, except those of state-space layers.
        decay_output: Whether C and D of state-space layers have weight decay, too, as in S4's recipes.
        schedule: Learning-rate schedule.
        clip: Largest norm of the gradient. None means no clipping.
        precision: Precision of the computation: "no" is float32, "bf16" is mixed precision.
        rows_at_once: Number of samples that a process runs through the model at once. Gradients are accumulated over
            its share of the batch. Batch norm sees only the samples of one pass. None means the whole share.
        evaluate_every: Number of steps between evaluations. The last step is always followed by one.
        checkpoint_every: Number of steps between checkpoints.
        validation_size: Largest number of validation samples to evaluate on. None means all.
        test_size: Largest number of test samples to evaluate the best weights on at the end. None means all.
        target: Accuracy, or error, that ends training early when two evaluations in a row have reached it. None means
            never.
        patience: Number of evaluations without improvement after which training stops early. None means never.
    """

    steps: int | None = None
    epochs: float | None = None
    batch_size: int
    lr: float = 1e-3
    dt_lr: float | None = None
    dynamics_lr: float | None = None
    weight_decay: float = 0.0
    decay_output: bool = False
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
            raise ValueError(
                f"exactly one of steps and epochs must be given, not {self.steps} and {self.epochs}; "
                "set the other to None"
            )
        for name in ("batch_size", "evaluate_every", "checkpoint_every"):
            if not 1 <= getattr(self, name) < LARGEST:
                raise ValueError(f"{name} must be at least 1 and below 2**31, not {getattr(self, name)}")
        for name in ("steps", "rows_at_once", "validation_size", "test_size", "patience"):
            value = getattr(self, name)
            if value is not None and not 1 <= value < LARGEST:
                raise ValueError(f"{name} must be at least 1 and below 2**31, or None, not {value}")
        for name in ("epochs", "lr", "dt_lr", "dynamics_lr", "clip"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be a positive number, not {value}")
        if not (self.weight_decay >= 0 and math.isfinite(self.weight_decay)):
            raise ValueError(f"weight_decay must be a number of at least 0, not {self.weight_decay}")
        if self.target is not None and not math.isfinite(self.target):
            raise ValueError(f"target must be a number, or None, not {self.target}")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run.

    Args:
        task: Task to learn.
        model: Model to train.
        training: Settings of training.
        seed: Seed of the initial parameters and of the data.
        label: Name of the model in reports. By default its family.
    """

    task: Task
    model: Spec
    training: Training
    seed: int = 0
    label: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be at least 0 and below 2**63, not {self.seed}")
        if len(self.label) > 100 or not self.label.isprintable():
            raise ValueError(f"label must have at most 100 characters, all of them printable, not {self.label!r}")
        if isinstance(self.task, RecallTask | FilmReviews) and self._is_bidirectional():
            raise ValueError(
                f"{self.task.label} asks for tokens that a bidirectional layer has already seen; "
                "set bidirectional to False (on the command line --no-bidirectional)"
            )

    def _is_bidirectional(self) -> bool:
        return isinstance(self.model, StateSpaceSpec) and self.model.layer.bidirectional

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
        """Total number of optimiser steps. If epochs are given, the data must be prepared."""
        if self.training.steps is not None:
            return self.training.steps
        size = self.task.size(Split.TRAIN)
        if size is None or self.training.epochs is None:
            raise ValueError(f"{self.task.label} has unlimited samples and no epochs; set steps instead")
        return math.ceil(self.training.epochs * size / self.training.batch_size)

    def build(self) -> nn.Module:
        """Return the model, initialised by the current state of torch's random generator."""
        return self.task.build(self.model)

    def initial_model(self) -> nn.Module:
        """Return the model before the first step, initialised by the seed of the run."""
        torch.manual_seed(self.seed)
        return self.build()

    def parameters(self) -> int:
        """Return the number of parameters of the model."""
        return count_parameters(self.build)

    def takes_the_same_steps_as(self, other: Run) -> bool:
        """Return whether two runs take the same steps, one of them perhaps more than the other.

        With a constant schedule, a step does not depend on how many will follow.
        """
        if not isinstance(self.training.schedule, Constant):
            return self == other
        training = replace(self.training, steps=other.training.steps, epochs=other.training.epochs)
        return replace(self, training=training) == other


def to_json(value: Any) -> Any:
    """Return a run, or any part of one, as JSON-able values."""
    return _CONVERTER.unstructure(value)


def leaves(content: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each setting in the result of `to_json`, such as "training.lr" and 0.001."""
    if isinstance(content, dict | list | tuple):
        items = content.items() if isinstance(content, dict) else enumerate(content)
        for key, inner in items:
            yield from leaves(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, content


def save(directory: Path, run: Run, environment: dict[str, str]) -> None:
    """Write a run and the environment in which it began to config.json in its directory."""
    if type(run.task) not in kinds.by_name().values():
        raise TypeError(
            f"{type(run.task).__name__} is not a task of this package; pass it to delayssm_lab.cli.main in a script, "
            "and run that"
        )
    content = {"format": FORMAT, "run": _CONVERTER.unstructure(run), "environment": environment}
    files.make_directory(directory)
    files.write(directory / "config.json", json.dumps(content, indent=2).encode())


def load(directory: Path) -> tuple[Run, dict[str, str]]:
    """Return the run that `save` wrote, and the environment in which it began, empty before its first step."""
    path = directory / "config.json"
    try:
        content = files.read(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"{directory} is not a run: it has no config.json") from None
    described = disk.parse_object(content, str(path))
    if described.get("format") != FORMAT:
        raise ValueError(
            f"{path} has the format {described.get('format')!r}, but {FORMAT!r} is what can be read here; train the "
            "run again, or use the version of delayssm that wrote it"
        )
    return from_json(described, path)


def from_json(content: Any, path: Path) -> tuple[Run, dict[str, str]]:
    """Return the run and the environment that the content of a file describes; missing options have their defaults."""
    try:
        run = _CONVERTER.structure(content["run"], Run)
        environment: dict[str, str] = _CONVERTER.structure(content["environment"], dict[str, str])
    except (cattrs.BaseValidationError, KeyError, TypeError, AttributeError, ValueError) as error:
        reasons = "; ".join(cattrs.transform_error(error, "run", _reason))
        raise ValueError(f"{path} does not describe a run of this version: {reasons}") from error
    if not all(map(str.isprintable, [*environment, *environment.values()])):
        raise ValueError(f"{path} is damaged: its environment is no text")
    return run, environment


def check_settings(
    found: Any, run: Run, path: Path, agree: Callable[[Run, Run], bool] = Run.takes_the_same_steps_as
) -> None:
    """Raise if a file in the directory of a run was written with other settings than config.json has now.

    Args:
        found: Settings in the file, as `to_json` returns them.
        run: The run that config.json describes.
        path: The file.
        agree: Returns whether the file can be one of the run.
    """
    made_by = from_json({"run": found, "environment": {}}, path)[0]
    if not agree(made_by, run):
        raise ValueError(
            f"{path} was written with other settings than config.json has now "
            f"({differences(to_json(made_by), to_json(run))}); restore config.json, or train the changed run in a "
            "directory of its own"
        )


def _reason(error: BaseException, expected: type | None) -> str:
    """Return the text of a ValueError, which cattrs would leave out, or else its description of the error."""
    return str(error) if isinstance(error, ValueError) else format_exception(error, expected)


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_unstructure_hook_func(_is_config, lambda config: config.to_dict())
    converter.register_structure_hook_func(_is_config, lambda content, config_class: config_class.from_dict(content))
    for plain in (bool, int, float, str):
        converter.register_structure_hook(plain, _plain)
    for union in (Copy | Sum | WeightedSum, Schedule, Spec):
        configure_tagged_union(union, converter, tag_name="kind")
        structure = converter.get_structure_hook(union)
        names = [member.__name__ for member in get_args(union)]
        converter.register_structure_hook(union, _checking_kind(names.copy, structure))

    @cache
    def fields_of(task: Any) -> Callable[[Task], dict[str, Any]]:
        return make_dict_unstructure_fn(task, converter)

    def structure_task(content: dict[str, Any], _: Any) -> Any:
        content = dict(content)
        return converter.structure(content, kinds.by_name()[content.pop("kind")])

    converter.register_unstructure_hook_func(
        lambda cls: isinstance(cls, type) and issubclass(cls, Task),
        lambda task: {**fields_of(type(task))(task), "kind": type(task).__name__},  # type: ignore[arg-type]
    )
    converter.register_structure_hook_func(
        lambda cls: cls is Task,
        _checking_kind(
            lambda: list(kinds.by_name()),
            structure_task,
            "; if it is a task of a script, run that script in place of delayssm",
        ),
    )
    return converter


def _checking_kind(
    names: Callable[[], list[str]], structure: Callable[[Any, Any], Any], remedy: str = ""
) -> Callable[[Any, Any], Any]:
    """Return the hook of a value of several kinds with a clear error for a kind that is unknown or missing."""

    def checked(content: Any, target: Any) -> Any:
        kind = content.get("kind") if isinstance(content, dict) else None
        if kind not in names():
            raise ValueError(f"kind must be one of {', '.join(names())}, not {kind!r}{remedy}")
        return structure(content, target)

    return checked


def _plain(content: Any, expected: type) -> Any:
    """Return a value of JSON as it is, where cattrs would turn 1.5 into 1 and "false" into True."""
    if expected is float and type(content) is int:
        return float(content)
    if type(content) is not expected:
        raise ValueError(f"must be of type {expected.__name__}, not {content!r}")
    return content


def _is_config(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, Config)


_CONVERTER = _converter()
