"""A directory of finished runs that belongs to the repository: a record of each, and the weights of some."""

from __future__ import annotations

import json
from pathlib import Path

from torch import nn

from delayssm.storage import files
from delayssm_lab.training import checkpoint, record
from delayssm_lab.training.record import Record
from delayssm_lab.training.run import Run

#: Weights that take more than this are not kept.
LARGEST_WEIGHTS = 2_000_000


class Store:
    """Finished runs by name, as NAME.json and NAME.safetensors."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def read(self, run: Run) -> Record | None:
        """Return the record of a run, whichever code has made it; None if there is none with the same settings."""
        path = self._path(run, "json")
        found = record.read(path) if path.exists() else None
        return found if found is not None and found.run == run else None

    def find(self, run: Run) -> Record | None:
        """Return the record of a run; None unless this code has made one with the same settings."""
        found = self.read(run)
        return found if found is not None and found.is_of_this_code() else None

    def add(self, directory: Path, weights: bool = False) -> None:
        """Keep the record of a finished run, and its best weights if wanted and small enough."""
        made = record.of_directory(directory)
        if made is None or not made.finished:
            raise ValueError(f"{directory} is not a finished run")
        files.make_directory(self.directory)
        best = checkpoint.best(directory)
        if weights and best.stat().st_size <= LARGEST_WEIGHTS:
            files.write(self._path(made.run, "safetensors"), best.read_bytes())
        content = made.to_json()
        metrics = ",\n".join(f"  {json.dumps(entry)}" for entry in content.pop("metrics"))
        text = json.dumps(content, indent=1).removesuffix("\n}")
        files.write(self._path(made.run, "json"), f'{text},\n "metrics": [\n{metrics}\n ]\n}}\n'.encode())

    def model(self, run: Run) -> nn.Module:
        """Return the model of a run with its best weights, in evaluation mode."""
        path = self._path(run, "safetensors")
        return checkpoint.model_with(checkpoint.read_best(path, run), run, path)

    def _path(self, run: Run, kind: str) -> Path:
        return self.directory / f"{run.name}.{kind}"
