"""Evaluations shown by trackers of experiments. The files in the directory of a run remain what counts."""

from __future__ import annotations

import importlib.util
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from delayssm.storage import files
from delayssm_lab.training.run import Run, leaves, to_json

if TYPE_CHECKING:
    from accelerate import Accelerator

Tracker = Literal["tensorboard", "trackio", "wandb"]


def check(tracker: Tracker | None) -> None:
    """Raise if a tracker is not installed, which accelerate would pass over in silence."""
    if tracker is not None and importlib.util.find_spec(tracker) is None:
        raise ImportError(f"{tracker} is not installed; run: pip install {tracker}")


def place(directory: Path) -> Path:
    """Return where trackers keep their files."""
    return directory / "tracking"


def start(accelerator: Accelerator, run: Run, directory: Path, begins: bool) -> None:
    """Begin to track a run, or go on with it. Without a tracker nothing is done.

    Args:
        accelerator: The accelerator that was made with a tracker.
        run: The run.
        directory: Its directory.
        begins: Whether it begins; then its settings are written, too.
    """
    if not accelerator.log_with:
        return
    files.make_directory(place(directory))
    options: dict[str, dict[str, Any]] = {
        "tensorboard": {},
        "trackio": {"name": run.name, "resume": "allow"},
        "wandb": {"name": run.name, "id": _identity(directory), "resume": "allow", "dir": str(place(directory))},
    }
    try:
        accelerator.init_trackers("delayssm", _settings(run) if begins else None, options)
    except Exception as error:  # whatever the tracker raises, such as for a missing account
        raise RuntimeError(f"{accelerator.log_with[0]} cannot track this run: {error}") from error


def finish(accelerator: Accelerator) -> None:
    """End the tracking, so that everything is written."""
    for tracker in accelerator.trackers:
        tracker.finish()


def _settings(run: Run) -> dict[str, Any]:
    """Return all settings by name, as numbers and texts."""
    return {
        name: value if isinstance(value, bool | int | float) else str(value) for name, value in leaves(to_json(run))
    }


def _identity(directory: Path) -> str:
    """Return the name of a run that no other one has, and that it keeps when it is resumed."""
    path = place(directory) / "identity"
    if not path.exists():
        files.write(path, uuid.uuid4().hex.encode())
    return path.read_text()
