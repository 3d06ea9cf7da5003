"""Streams in a file."""

from pathlib import Path

import torch
from torch import Tensor

from delayssm.system import files

#: The number goes up when what is in a file changes its meaning.
FORMAT = "delayssm state 1"


def write(path: Path, tensors: dict[str, Tensor], about: dict[str, str]) -> None:
    """The tensors, and what is to be known about them."""
    from safetensors.torch import save

    content = save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, {"format": FORMAT, **about})
    files.write(path, content)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and what was written about them."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            about = file.metadata() or {}
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged or not a state: {error}") from error
    if about.get("format") != FORMAT:
        raise ValueError(f"{path} is not a state that this version can read: its format is {about.get('format')!r}")
    return tensors, about


def fill(tensors: dict[str, Tensor], saved: dict[str, Tensor], path: Path) -> None:
    """Copy what was read into tensors of the same names and shapes."""
    kinds = [{name: (t.shape, t.dtype) for name, t in found.items()} for found in (tensors, saved)]
    if kinds[0] != kinds[1]:
        raise ValueError(f"{path} does not have the tensors that this model's state has")
    with torch.no_grad():
        for name, t in tensors.items():
            t.copy_(saved[name])
