"""Runs the cases of a target."""

import importlib
import tempfile
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

#: What is fuzzed, by the name of its file.
TARGETS = ("constructors", "streams", "state_files", "run_directories", "published", "command_line")
_IN_MEMORY = Path("/dev/shm")


def fuzz(target: str, cases: int, number: int, shrink: bool = False) -> Counter[str]:
    """Run cases of one target in this process, and count their outcomes; raise the error of the first failure."""
    case = importlib.import_module(f"tests.fuzz.{target}").case
    outcomes: Counter[str] = Counter()

    @seed(number)
    @settings(
        max_examples=cases,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        outcomes[case(data, Path(folder))] += 1

    with tempfile.TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None) as folder:
        run()
        assert not list(Path(folder).iterdir()), "a case has left files behind"
    return outcomes


def in_a_process(target: str, cases: int, number: int, shrink: bool, answers: Connection) -> None:
    """Run cases of one target, and send the outcomes to another process."""
    answers.send(fuzz(target, cases, number, shrink))
