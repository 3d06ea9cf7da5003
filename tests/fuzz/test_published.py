"""A short run of the fuzzing of published data."""

import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.published import case

CASES = 200
MEMORY_DISK = Path("/dev/shm")


def test_damaged_files_are_accepted_or_refused_clearly() -> None:
    outcomes: Counter[str] = Counter()

    @settings(
        max_examples=CASES,
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
    assert outcomes.total() >= CASES
    assert min(outcomes["accepted"], outcomes["clear error"]) > CASES // 10, (
        outcomes
    )  # both happen, or nothing is tested
