"""Fixtures of the tests of the command line."""

import pytest

from tests.support.command_line import Here


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """Return the command line of this process."""
    return Here(monkeypatch, capsys)
