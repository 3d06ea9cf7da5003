"""Short runs of the fuzzing of run directories and of the command line."""

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz import command_line, run_directories

MEMORY_DISK = Path("/dev/shm")
Case = Callable[[st.DataObject, Path], str]

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("case", "count"), [(run_directories.case, 200), (command_line.case, 60)], ids=["run directories", "command line"]
)
def test_every_outcome_is_accepted_or_refused_clearly(case: Case, count: int) -> None:
    outcomes: Counter[str] = Counter()

    @settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        outcomes[case(data, Path(folder))] += 1

    with tempfile.TemporaryDirectory(dir=MEMORY_DISK if MEMORY_DISK.is_dir() else None) as folder:
        run()
        assert list(Path(folder).iterdir()) == []
    assert outcomes.total() >= count
    assert min(outcomes["accepted"], outcomes["clear error"]) > count // 20, outcomes  # or nothing is tested
