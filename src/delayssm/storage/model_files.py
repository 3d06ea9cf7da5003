"""Directories of models: model.safetensors, config.json and README.md.

model.safetensors holds everything: the weights, the configuration and a checksum. It is replaced in one step, so the
directory has the old model or the new one at every moment. config.json repeats the configuration for people and other
tools, with the name by which `transformers` knows such a model; one that says something else is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from delayssm.config import differences
from delayssm.storage import files, tensors
from delayssm.storage.tensors import Damaged

#: The number goes up when the content of a file changes its meaning.
FORMAT = "delayssm model 1"
WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"


class Saved(NamedTuple):
    """Content of a file with a model.

    Args:
        tensors: Weights by name.
        config: Configuration of the model, as `Config.to_dict` returns it.
        about: Facts that were saved with the model.
        path: The file.
    """

    tensors: dict[str, Tensor]
    config: dict[str, Any]
    about: dict[str, Any]
    path: Path


def facts(about: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what is to be kept with a model, after making sure that it can be written as JSON."""
    for name, fact in (about or {}).items():
        try:
            json.dumps({name: fact})
        except (TypeError, ValueError) as error:
            raise TypeError(f"about[{name!r}] cannot be written as JSON: {error}") from None
    return dict(about or {})


def write(
    directory: Path,
    config: Mapping[str, Any],
    weights: dict[str, Tensor],
    card: str | None,
    about: Mapping[str, Any] | None,
) -> None:
    """Write what `Pretrained.save_pretrained` writes. A card that is None leaves the one in the directory alone."""
    text = json.dumps({"format": FORMAT, **config, "about": facts(about)}, indent=2)
    if directory.exists() and not directory.is_dir():
        raise NotADirectoryError(f"{directory} is a file; choose another directory for the model")
    files.make_directory(directory)
    shown = directory / CONFIG
    if shown.exists() and files.read(shown) != text.encode():
        files.remove(shown)  # it must never stand beside weights that it does not belong to
    tensors.write(directory / WEIGHTS, FORMAT, weights, {"config": text})
    files.write(shown, text.encode())
    if card is not None:
        files.write(directory / CARD, card.encode())


def restore_config(directory: Path) -> None:
    """Write config.json again, if a process was killed after it had replaced the model and before it could do so."""
    weights, shown = directory / WEIGHTS, directory / CONFIG
    if weights.exists() and not shown.exists():
        found = tensors.read(weights, FORMAT)[1]
        if "config" in found:
            files.write(shown, found["config"].encode())


def read(path: Path) -> Saved:
    """Return what `write` wrote to a file, after making sure that the config.json beside it does not contradict it."""
    saved, found = tensors.read(path, FORMAT)
    try:
        content = json.loads(found["config"])
        if not isinstance(content, dict) or not isinstance(content.get("about"), dict):
            raise ValueError("its configuration is not an object")
    except (KeyError, ValueError, RecursionError) as error:
        raise Damaged(f"{path} is damaged: {error}") from error
    _check_shown(path, content)
    config = {name: value for name, value in content.items() if name not in ("format", "model_type", "about")}
    return Saved(saved, config, content["about"], path)


def _check_shown(path: Path, content: Mapping[str, Any]) -> None:
    """Raise if the config.json beside a file says something else than the file."""
    beside = path.with_name(CONFIG)
    if beside.exists():
        try:
            shown = json.loads(files.read(beside))
        except (ValueError, RecursionError) as error:
            raise Damaged(f"{beside} is damaged: {error}; delete it to load the model without it") from error
        if json.dumps(shown, sort_keys=True) != json.dumps(content, sort_keys=True):  # NaN is equal to itself, too
            raise ValueError(
                f"{beside} does not belong to {path.name}: {differences(shown, content)}, in {path.name}; delete it to "
                "load the model as it was saved"
            )
