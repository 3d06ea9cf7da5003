"""A short run of every target."""

import pytest

from tests.fuzz.outcomes import ACCEPTED, REFUSED
from tests.fuzz.runner import fuzz

#: Cases of each target, some seconds of them.
CASES = {
    "constructors": 150,
    "streams": 25,
    "state_files": 150,
    "run_directories": 150,
    "published": 150,
    "command_line": 100,
}


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("target", CASES)
def test_cases_are_accepted_or_refused_clearly(target: str) -> None:
    outcomes = fuzz(target, CASES[target], number=0)
    assert outcomes.total() >= CASES[target]
    assert min(outcomes[ACCEPTED], outcomes[REFUSED]) > CASES[target] // 20, outcomes  # both, or nothing is tested
