"""Files that are complete at every moment, and digests of their content."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor


def write(path: Path, content: bytes) -> None:
    """Write a file atomically: beside it first, then in its place. If that fails, the old file is untouched."""
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
    """Append a line to a file."""
    try:
        with path.open("a") as file:
            file.write(line + "\n")
    except OSError as error:
        raise OSError(error.errno, f"could not write to {path}: {error.strerror}") from error


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the sha256 of the names, types, shapes and values of tensors."""
    sha256 = hashlib.sha256()
    for name, t in sorted(tensors.items()):
        sha256.update(f"{name} {t.dtype} {tuple(t.shape)}".encode())
        sha256.update(t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha256.hexdigest()
