"""List, check, prepare and generate data sets.

Data sets are kept in the directory that the environment variable DELAYSSM_DATA names, by default data/.
"""

from __future__ import annotations

from collections.abc import Sequence

from delayssm_lab.cli.common import dispatch

COMMANDS = {
    "list": "List all data sets with their state, size, licence and origin.",
    "check": "Verify published files and the arrays prepared from them.",
    "prepare": "Verify published files and convert them to arrays.",
    "generate": "Generate a data set instead of reading published files.",
}


def main(arguments: Sequence[str]) -> None:
    """Run a command of `delayssm data`."""
    dispatch("delayssm data", __name__, COMMANDS, __doc__, arguments)
