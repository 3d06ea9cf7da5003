"""The finished runs in results/runs: they can be read, and this code would begin them in the same way."""

from pathlib import Path

import pytest

from delayssm_lab.training import record

PATHS = sorted((Path(__file__).parents[3] / "results" / "runs").glob("*/*.json"))


@pytest.mark.parametrize("shelf", sorted({path.parent.name for path in PATHS}))
def test_stored_runs_are_of_this_code(shelf: str) -> None:
    for path in PATHS:
        if path.parent.name == shelf:
            found = record.read(path)
            assert found.finished, path
            assert found.run.name == path.stem
            assert found.is_of_this_code(), f"{path} was made by other code; train it again"


def test_there_are_stored_runs() -> None:
    assert PATHS
