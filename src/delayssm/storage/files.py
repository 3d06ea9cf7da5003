"""Files that are complete at every moment, and digests of their content."""

import glob
import hashlib
import os
import re
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor


def write(path: Path, content: bytes) -> None:
    """Write a file atomically: beside it first, then in its place. If that fails, the old file is untouched.

    If the process is killed in between, the next one that writes the file removes what it finds beside it.
    """
    remove_leftovers(path.parent, path.name)
    writer = f"{socket.gethostname()}.{os.getpid()}-{threading.get_ident()}"
    partial = path.with_name(f".{path.name}.{writer}.part")
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
        with suppress(OSError):  # of a name that is too long, for example, which was reported above
            partial.unlink()


def read(path: Path) -> bytes:
    """Return the content of a file."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"there is no file {path}") from None
    except OSError as error:
        raise OSError(error.errno, f"could not read {path}: {error.strerror}") from error


def remove(path: Path) -> None:
    """Remove a file, if it is there."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, f"could not remove {path}: {error.strerror}") from error


def make_directory(directory: Path) -> None:
    """Create a directory, unless it exists, with its parents."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # a part of the path is a file, or may not be written to
        raise OSError(error.errno, f"could not make the directory {directory}: {error.strerror}") from error


def remove_leftovers(directory: Path, name: str = "*") -> None:
    """Remove what killed processes of this machine have begun to write: for one file, or for all in a directory."""
    pattern = re.compile(rf"\..+\.{re.escape(socket.gethostname())}\.(\d+)-\d+\.part")
    for path in directory.glob(f".{name if name == '*' else glob.escape(name)}.*.part"):
        writer = pattern.fullmatch(path.name)
        if writer is not None and not _is_alive(int(writer[1])):
            path.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to somebody else
        return True
    return True


def append(path: Path, line: str) -> None:
    """Append a line to a file, so that it is on disk before anything that is written later."""
    try:
        with path.open("a") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(error.errno, f"could not write to {path}: {error.strerror}") from error


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the sha256 of the names, types, shapes and values of tensors."""
    sha256 = hashlib.sha256()
    for name, t in sorted(tensors.items()):
        sha256.update(f"{name} {t.dtype} {tuple(t.shape)}".encode())
        sha256.update(t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha256.hexdigest()
