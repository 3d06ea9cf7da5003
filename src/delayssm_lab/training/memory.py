"""Memory that a run needs at least, so that one that cannot fit is refused before it fills the machine."""

from __future__ import annotations

import math
import os

from delayssm_lab.environment import total_memory
from delayssm_lab.training.run import Run

#: Numbers that training keeps for each parameter: itself, its gradient and two moments.
_PER_PARAMETER = 4
#: Numbers that the layers of every model here keep for the backward pass, for each channel of each position.
_PER_CHANNEL = 4


def check_model(parameters: int) -> None:
    """Raise ValueError if the parameters of a model need more memory than this machine has."""
    _require(4 * parameters, f"a model of {parameters:,} parameters", "choose a smaller model")


def check_step(run: Run, parameters: int) -> None:
    """Raise ValueError if one step of a run needs more memory than this machine has, by a bound from below."""
    training, length = run.training, run.task.max_length
    rows = math.ceil(training.batch_size / int(os.environ.get("WORLD_SIZE", "1")))
    at_once = min(rows, training.rows_at_once or rows)
    kept = _PER_CHANNEL * (2 if training.precision == "bf16" else 4)
    _require(4 * _PER_PARAMETER * parameters, f"training of {parameters:,} parameters", "choose a smaller model")
    _require(rows * length * 4, f"a batch of {training.batch_size:,} samples", "lower batch_size")
    _require(
        kept * at_once * length * run.model.d_model * run.model.depth,
        f"running {at_once:,} samples at once",
        "lower batch_size, or set rows_at_once",
    )


def _require(needed: int, what: str, remedy: str) -> None:
    """Raise ValueError if this machine has less memory than what is needed."""
    if needed > (memory := total_memory()):
        raise ValueError(
            f"{what} takes at least {needed / 1e9:,.1f} GB of memory, but this machine has {memory / 1e9:,.1f} GB; "
            f"{remedy}"
        )
