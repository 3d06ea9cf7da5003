"""Process that trains one run: `python -m delayssm_lab.training.worker DIRECTORY DESCRIPTOR`."""

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from delayssm_lab.display import Messages
from delayssm_lab.training.interrupt import EXIT_CODE, Interrupted
from delayssm_lab.training.trainer import train


def main(arguments: Sequence[str]) -> int:
    """Train a run and return the exit code: 0 if it is finished, 130 if it was interrupted, 1 if it failed.

    Args:
        arguments: Directory of the run, and the file descriptor of its messages.
    """
    directory, descriptor = arguments
    try:
        with open(int(descriptor), "w") as messages:
            train(Path(directory), Messages(messages))
    except Interrupted:
        return EXIT_CODE
    except Exception:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
