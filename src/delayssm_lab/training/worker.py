"""Process that trains one run, `python -m delayssm_lab.training.worker DIRECTORY`, and reports in JSON lines."""

import sys
import traceback
from pathlib import Path

from delayssm_lab.display import Messages
from delayssm_lab.training.interrupt import EXIT_CODE, Interrupted
from delayssm_lab.training.trainer import train


def main(directory: Path) -> int:
    """Train a run and return the exit code: 0 if it is finished, 130 if it was interrupted, 1 if it failed."""
    try:
        train(directory, Messages())
    except Interrupted:
        return EXIT_CODE
    except Exception:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
