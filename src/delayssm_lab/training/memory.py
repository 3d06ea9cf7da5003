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


def check(run: Run, parameters: int) -> None:
    """Raise ValueError if one step of a run needs more memory than this machine has, by a bound from below."""
    training, length, memory = run.training, run.task.max_length, total_memory()
    rows = math.ceil(training.batch_size / int(os.environ.get("WORLD_SIZE", "1")))
    at_once = min(rows, training.rows_at_once or rows)
    size = 2 if training.precision == "bf16" else 4
    needs = {
        f"its {parameters:,} parameters": (_PER_PARAMETER * 4 * parameters, "choose a smaller model"),
        f"a batch of {training.batch_size:,} samples": (rows * length * 4, "lower batch_size"),
        f"{at_once:,} samples at once": (
            _PER_CHANNEL * size * at_once * length * run.model.d_model * run.model.depth,
            "lower batch_size, or set rows_at_once",
        ),
    }
    for what, (needed, remedy) in needs.items():
        if needed > memory:
            raise ValueError(
                f"this machine has {memory / 1e9:,.1f} GB of memory, but {what} cannot do with less than "
                f"{needed / 1e9:,.1f} GB; {remedy}"
            )
