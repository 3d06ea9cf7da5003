"""Files that are whole at every moment, and can be known by their content."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor


def write(path: Path, content: bytes) -> None:
    """Write beside the file, then take its place. If that fails, what was there before is still there."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        kept = "; the file that was there before is untouched" if path.exists() else ""
        raise OSError(error.errno, f"could not write {path}: {error.strerror}{kept}") from error
    finally:
        partial.unlink(missing_ok=True)


def append(path: Path, line: str) -> None:
    """Add a line."""
    try:
        with path.open("a") as file:
            file.write(line + "\n")
    except OSError as error:
        raise OSError(error.errno, f"could not write to {path}: {error.strerror}") from error


def digest(tensors: Mapping[str, Tensor]) -> str:
    """A fingerprint of names, types, shapes and values."""
    found = hashlib.sha256()
    for name, t in sorted(tensors.items()):
        found.update(f"{name} {t.dtype} {tuple(t.shape)}".encode())
        found.update(t.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
