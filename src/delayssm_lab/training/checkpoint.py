"""Weights and whole training states in files: one file each, checked when read, whole at every moment."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from delayssm.storage import tensors as tensor_file
from delayssm.storage.tensors import Damaged

#: The number goes up when what is in a file changes its meaning.
FORMAT = "delayssm checkpoint 2"
#: Whole tensors, also of models that are spread over processes.
_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


@dataclass(frozen=True)
class Progress:
    """How far a run has come.

    step counts optimiser steps, and step_seconds the time they took; seconds include evaluation. best is the best
    accuracy or error so far, found at best_step. loss, points and count are sums over the training samples since the
    last evaluation.
    """

    step: int = 0
    best: float | None = None
    best_step: int = 0
    seconds: float = 0.0
    step_seconds: float = 0.0
    loss: float = 0.0
    points: float = 0.0
    count: float = 0.0


def last(directory: Path) -> Path:
    """Where a run can be resumed from."""
    return directory / "last" / "training.safetensors"


def previous(directory: Path) -> Path:
    """The one before, for when the last is damaged."""
    return directory / "last" / "previous.safetensors"


def best(directory: Path) -> Path:
    """The weights that were best on the validation samples."""
    return directory / "best" / "model.safetensors"


def weights(model: nn.Module) -> dict[str, Tensor]:
    """By name. All processes must call it; only the first gets the result."""
    return get_model_state_dict(model, options=_WHOLE)  # type: ignore[return-value]


def training_state(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Weights and moments by name. All processes must call it; only the first gets the result."""
    moments: dict[str, Any] = get_optimizer_state_dict(model, optimiser, options=_WHOLE)
    found = {f"model.{name}": t for name, t in weights(model).items()}
    for name, values in moments.get("state", {}).items():
        found |= {f"optimiser.{key}.{name}": t for key, t in values.items()}
    return found


def restore_weights(model: nn.Module, saved: dict[str, Tensor]) -> None:
    """Put what `weights` gave into a model of the same kind, in every process."""
    set_model_state_dict(model, dict[str, Any](saved), options=_WHOLE)


def restore(model: nn.Module, optimiser: torch.optim.Optimizer, saved: dict[str, Tensor]) -> None:
    """Put what `training_state` gave into a model and an optimiser of the same kind, in every process."""
    mine = {name.removeprefix("model."): t for name, t in saved.items() if name.startswith("model.")}
    restore_weights(model, mine)
    into: dict[str, Any] = get_optimizer_state_dict(model, optimiser)  # for its names
    into["state"] = {
        name: {key: saved[f"optimiser.{key}.{name}"] for key in values} for name, values in into["state"].items()
    }
    set_optimizer_state_dict(model, optimiser, into, options=_WHOLE)


def save_training(directory: Path, tensors: dict[str, Tensor], progress: Progress) -> None:
    """Write `last`. The one that was there becomes `previous`."""
    path = last(directory)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name("next.safetensors")
    write(fresh, tensors, progress)  # a full disk is noticed here, before anything is moved
    if path.exists():
        os.replace(path, previous(directory))
    os.replace(fresh, path)


def load_training(directory: Path) -> tuple[dict[str, Tensor], Progress] | None:
    """The last training state; None if there is none yet."""
    path = last(directory)
    if not path.exists():  # killed before the first checkpoint, or between the two moves of `save_training`
        return read(previous(directory)) if previous(directory).exists() else None
    try:
        return read(path)
    except Damaged as error:
        try:
            _, before = read(previous(directory))
        except (Damaged, FileNotFoundError):
            raise Damaged(f"{error}; there is no older one, so the run must begin again elsewhere") from error
        remedy = f"the one before it, of step {before.step}, is whole: delete {path} to go on from there"
        raise Damaged(f"{error}; {remedy}") from error


def write(path: Path, tensors: dict[str, Tensor], progress: Progress) -> None:
    """Tensors and progress in one file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensor_file.write(path, FORMAT, tensors, {"progress": json.dumps(asdict(progress))})


def read(path: Path) -> tuple[dict[str, Tensor], Progress]:
    """What `write` wrote, or `Damaged`."""
    tensors, about = tensor_file.read(path, FORMAT)
    return tensors, Progress(**json.loads(about["progress"]))
