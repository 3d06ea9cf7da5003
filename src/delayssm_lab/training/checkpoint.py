"""Checkpoints: weights and training states, one file each, replaced atomically and verified when read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from delayssm.storage import files, model_files
from delayssm.storage import tensors as tensor_file
from delayssm.storage.pretrained import Pretrained, make_card
from delayssm.storage.tensors import Damaged
from delayssm_lab.training import disk
from delayssm_lab.training.run import Run, check_settings, to_json

#: The number increases when the content of a file changes its meaning.
FORMAT = "delayssm checkpoint 3"
#: Full tensors, also of models that are sharded over processes.
_FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)


@dataclass(frozen=True)
class TrainingProgress:
    """Progress of a run.

    Args:
        step: Optimiser steps done.
        best: Best metric on the validation samples so far; None before the first evaluation.
        best_step: Step of the best metric.
        seconds: Training time, including evaluation.
        step_seconds: Time of the optimiser steps alone.
        cpu_seconds: Processor time of the optimiser steps, over all threads. Other work on the machine does not add to
            it.
        loss: Sum of losses over the training samples since the last evaluation.
        points: Sum of points over the same samples.
        count: Number of answers to the same samples.
    """

    step: int = 0
    best: float | None = None
    best_step: int = 0
    seconds: float = 0.0
    step_seconds: float = 0.0
    cpu_seconds: float = 0.0
    loss: float = 0.0
    points: float = 0.0
    count: float = 0.0


class Saved(NamedTuple):
    """Content of a checkpoint.

    Args:
        tensors: Weights, or weights and moments, by name.
        progress: Progress of the run.
        settings: Settings of the run, as JSON; None if they are not in the file.
        path: The file.
    """

    tensors: dict[str, Tensor]
    progress: TrainingProgress
    settings: Any
    path: Path


def last(directory: Path) -> Path:
    """Return the path of the last training state, from which a run is resumed."""
    return directory / "last" / "training.safetensors"


def previous(directory: Path) -> Path:
    """Return the path of the training state before the last, in case the last is damaged."""
    return directory / "last" / "previous.safetensors"


def best(directory: Path) -> Path:
    """Return the path of the weights that were best on the validation samples."""
    return directory / "best" / "model.safetensors"


def model_directory(directory: Path) -> Path:
    """Return the directory of a saved model: that of the best weights, if a run is in the directory, or itself."""
    found = best(directory).parent
    return found if found.is_dir() else directory


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights by name. All processes must call this function; only the first gets the result."""
    return get_model_state_dict(model, options=_FULL)  # type: ignore[return-value]


def training_state(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return weights and moments by name. All processes must call this function; only the first gets the result."""
    moments: dict[str, Any] = get_optimizer_state_dict(model, optimiser, options=_FULL)
    tensors = {f"model.{name}": t for name, t in weights(model).items()}
    for name, values in moments.get("state", {}).items():
        tensors |= {f"optimiser.{key}.{name}": t for key, t in values.items()}
    return tensors


def restore_weights(model: nn.Module, saved: dict[str, Tensor], path: Path) -> None:
    """Load the result of `weights`, read from a path, into a model, in every process."""
    _check_like(get_model_state_dict(model), saved, path)
    set_model_state_dict(model, dict[str, Any](saved), options=_FULL)


def restore(model: nn.Module, optimiser: torch.optim.Optimizer, saved: dict[str, Tensor], path: Path) -> None:
    """Load the result of `training_state`, read from a path, into a model and its optimiser, in every process."""
    state: dict[str, Any] = get_optimizer_state_dict(model, optimiser)  # has the names of the moments
    moments = {f"optimiser.{key}.{name}": t for name, values in state["state"].items() for key, t in values.items()}
    _check_like(moments, {name: t for name, t in saved.items() if not name.startswith("model.")}, path)
    weights = {name.removeprefix("model."): t for name, t in saved.items() if name.startswith("model.")}
    restore_weights(model, weights, path)
    state["state"] = {
        name: {key: saved[f"optimiser.{key}.{name}"] for key in values} for name, values in state["state"].items()
    }
    set_optimizer_state_dict(model, optimiser, state, options=_FULL)


def save_training(directory: Path, tensors: dict[str, Tensor], progress: TrainingProgress, run: Run) -> None:
    """Write a training state as the last one. The one before it becomes `previous`."""
    path = last(directory)
    new = path.with_name("next.safetensors")
    write(new, tensors, progress, run)  # fails here if the disk is full, before any file is moved
    try:
        if path.exists():
            os.replace(path, previous(directory))
        os.replace(new, path)
    except OSError as error:
        raise OSError(error.errno, f"could not move {new} to {path}: {error.strerror}") from error


def load_training(directory: Path, run: Run) -> Saved | None:
    """Return the last training state of a run; None if there is none yet."""
    path = last(directory)
    if not path.exists():  # killed before the first checkpoint, or between the two moves of `save_training`
        return read_of(previous(directory), run) if previous(directory).exists() else None
    try:
        return read_of(path, run)
    except Damaged as error:
        try:
            before = read_of(previous(directory), run).progress
        except (Damaged, FileNotFoundError):
            raise Damaged(f"{error}; there is no older checkpoint; start the run again in a new directory") from error
        remedy = f"the checkpoint before it, of step {before.step}, is intact: delete {path} to resume from there"
        raise Damaged(f"{error}; {remedy}") from error


def save_best(
    directory: Path, config: dict[str, Any], tensors: dict[str, Tensor], progress: TrainingProgress, run: Run
) -> None:
    """Write the best weights so far, as a model that can be loaded without the laboratory.

    Args:
        directory: Directory of the run.
        config: Configuration of its model, see `configuration`.
        tensors: Result of `weights`.
        progress: Progress of the run.
        run: The run.
    """
    about = {"run": to_json(run), "step": progress.best_step, run.task.metric.value: progress.best}
    model_files.write(best(directory).parent, config, tensors, _card(config["kind"], run), about)


def configuration(model: nn.Module) -> dict[str, Any]:
    """Return what decides a model, as a model file has it. For a baseline this is its name alone."""
    return model.description() if isinstance(model, Pretrained) else {"kind": type(model).__name__}


def read_best(path: Path, run: Run) -> dict[str, Tensor]:
    """Return the weights that a run wrote to a model file."""
    saved = model_files.read(path)
    check_settings(saved.about.get("run"), run, path)
    return saved.tensors


def model_with(saved: dict[str, Tensor], run: Run, path: Path) -> nn.Module:
    """Return the model of a run with the result of `read_best`, read from a path, in evaluation mode."""
    model = run.initial_model()
    _check_like(model.state_dict(), saved, path)
    try:
        model.load_state_dict(saved)
    except RuntimeError as error:  # a layer says that these weights are not for it
        raise ValueError(f"{path} does not have the weights of this model: {error}") from error
    return model.eval()


def _card(kind: str, run: Run) -> str:
    text = (
        f"A `{kind}` that was trained on the task {run.task.label}. config.json has all settings of the run, and the "
        f"{run.task.metric.label} of the model on the validation samples."
    )
    return make_card(kind, run.name, text)


def _check_like(expected: Mapping[str, Any], saved: Mapping[str, Tensor], path: Path) -> None:
    """Raise if tensors that were read do not have the names, shapes and types of others."""
    theirs, mine = ({name: (t.shape, t.dtype) for name, t in some.items()} for some in (saved, expected))
    if wrong := sorted(name for name in {**theirs, **mine} if theirs.get(name) != mine.get(name)):
        raise ValueError(
            f"{path} does not have the weights of this model; it was written by other code "
            f"({len(wrong)} of {len(mine)} tensors differ, such as {wrong[0]!r})"
        )


def write(path: Path, tensors: dict[str, Tensor], progress: TrainingProgress, run: Run) -> None:
    """Write tensors, progress and the settings of the run to one file."""
    files.make_directory(path.parent)
    about = {"progress": json.dumps(asdict(progress)), "run": json.dumps(to_json(run))}
    tensor_file.write(path, FORMAT, tensors, about)


def read(path: Path) -> Saved:
    """Return what `write` wrote. Raise `Damaged` if the file is not intact."""
    tensors, found = tensor_file.read(path, FORMAT)
    try:
        progress = disk.parse_object(found.get("progress", ""), f"the progress in {path}")
        settings = disk.parse(found.get("run", ""), f"the run in {path}")
        return Saved(tensors, _progress(progress, path), settings, path)
    except ValueError as error:
        raise Damaged(str(error)) from error


def _progress(content: dict[str, Any], path: Path) -> TrainingProgress:
    """Return the progress that a checkpoint tells of."""
    known = {field.name for field in fields(TrainingProgress)}
    numbers = [value for name, value in content.items() if not (name == "best" and value is None)]
    valid = content.keys() == known and all(map(disk.is_number, numbers))
    if not (valid and all(disk.is_count(content[name]) for name in ("step", "best_step", "count"))):
        raise ValueError(f"{path} is damaged: its progress is {content!r}")
    if not (content["seconds"] >= 0 and content["step_seconds"] >= 0):
        raise ValueError(f"{path} is damaged: it tells of {content['seconds']} seconds")
    return TrainingProgress(**content)


def read_of(path: Path, run: Run) -> Saved:
    """Return what `write` wrote for a run. Raise ValueError if it was written for another one."""
    saved = read(path)
    check_settings(saved.settings, run, path)
    return saved
