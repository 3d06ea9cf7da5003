"""Tensors in safetensors files, with metadata and a checksum."""

import hashlib
import json
from pathlib import Path

import torch
from torch import Tensor

from delayssm.storage import files


class Damaged(ValueError):
    """A file whose content is not what was written."""


def write(path: Path, kind: str, tensors: dict[str, Tensor], about: dict[str, str]) -> None:
    """Write tensors by name; `kind` names the format and its version, so that no other file is read as such."""
    from safetensors.torch import save

    tensors = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    files.write(path, save(tensors, {"format": kind, "digest": _digest(tensors, about), **about}))


def read(path: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and what `write` was told about them, or raise `Damaged`."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        # `safe_open` opens a file twice, and another process may replace it in between.
        content = path.read_bytes()
        # Copied, because tensors inside of `content` cannot be resized, and lie at addresses of any alignment.
        tensors: dict[str, Tensor] = {name: tensor.clone() for name, tensor in sorted(load(content).items())}
        about = _metadata(content)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}") from None
    except (SafetensorError, OSError) as error:
        raise Damaged(f"{path} is damaged, or not a file of the format {kind!r}: {error}") from error
    if (found := about.pop("format", None)) != kind:
        raise Damaged(f"{path} has the format {found!r}, but {kind!r} is expected")
    if about.pop("digest", None) != _digest(tensors, about):
        raise Damaged(f"{path} is damaged: its content does not match its checksum")
    return tensors, about


def _metadata(content: bytes) -> dict[str, str]:
    """Return what a valid file says beside its tensors: its header is JSON, after eight bytes that give its size."""
    size = int.from_bytes(content[:8], "little")
    header: dict[str, dict[str, str]] = json.loads(content[8 : 8 + size])
    return header.get("__metadata__") or {}


def _digest(tensors: dict[str, Tensor], about: dict[str, str]) -> str:
    text = files.digest(tensors) + json.dumps(about, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def rows(saved: dict[str, Tensor], one: dict[str, Tensor]) -> int:
    """Return the number of rows that all tensors of a file have, if they are like those for one row."""
    expected = {name: (t.shape[1:], t.dtype) for name, t in one.items()}
    present = {name: (t.shape[1:], t.dtype) for name, t in saved.items()}
    counts = {len(t) for t in saved.values() if t.ndim}
    if present != expected or len(counts) != 1:
        raise ValueError("it does not have the tensors that a state of this model has")
    return counts.pop()


def fill(tensors: dict[str, Tensor], saved: dict[str, Tensor]) -> None:
    """Copy what was read into tensors of the same names and shapes."""
    with torch.no_grad():
        for name, t in tensors.items():
            t.copy_(saved[name])
