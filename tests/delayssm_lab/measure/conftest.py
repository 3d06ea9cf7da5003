"""Measurements in the process of the tests, which saves the seconds that torch takes to load."""

import pytest

from delayssm_lab.measure import fresh


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh, "measure", lambda point: point.measure())
