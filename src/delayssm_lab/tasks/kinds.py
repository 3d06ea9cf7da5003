"""All kinds of tasks: those of this package, and those of a script that has its own."""

from __future__ import annotations

import inspect
import re
from typing import Any

from delayssm_lab.tasks.associative import AssociativeRecall
from delayssm_lab.tasks.delayed import DelayedMemory
from delayssm_lab.tasks.images import GrayCIFAR, Pathfinder, SequentialMNIST
from delayssm_lab.tasks.language import FilmReviews
from delayssm_lab.tasks.selective import SelectiveCopying
from delayssm_lab.tasks.signals import BIDMC, SpeechCommands
from delayssm_lab.tasks.task import Task
from delayssm_lab.tasks.texts import ListOps, Retrieval, Text

TASKS: tuple[type[Task], ...] = (
    DelayedMemory,
    AssociativeRecall,
    SelectiveCopying,
    SequentialMNIST,
    SpeechCommands,
    BIDMC,
    ListOps,
    Text,
    Retrieval,
    GrayCIFAR,
    Pathfinder,
    FilmReviews,
)
_own: dict[str, type[Task]] = {}


def by_name() -> dict[str, type[Task]]:
    """Return all kinds of tasks by the name of their class, as the files of runs have it."""
    return {kind.__name__: kind for kind in (*TASKS, *_own.values())}


def own() -> dict[str, type[Task]]:
    """Return the tasks of the script that runs, by their names on the command line."""
    return dict(_own)


def add(task: Any) -> None:
    """Make a task of a script known to runs and to the command line."""
    if not (inspect.isclass(task) and issubclass(task, Task)):
        raise TypeError(f"a task of your own must be a class derived from RecallTask or Task, not {task!r}")
    settings = getattr(task, "__dataclass_params__", None)
    if settings is None or not settings.frozen:
        raise TypeError(f"{task.__name__} must be a frozen dataclass; put @dataclass(frozen=True) above it")
    if inspect.isabstract(task):
        missing = ", ".join(sorted(task.__abstractmethods__))
        raise TypeError(f"{task.__name__} lacks {missing}, which every task must have")
    if by_name().get(task.__name__, task) is not task:
        raise ValueError(f"there is a task {task.__name__} already; give yours another name")
    _own[re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", task.__name__).lower()] = task
