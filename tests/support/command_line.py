"""The command line, called as a user calls it."""

import sys

import pytest

from delayssm_lab import cli
from tests.support.runs import run


def delayssm(*arguments: object) -> tuple[int, str, str]:
    """Call the command line in a process of its own, and return its exit code, output and error output."""
    return run("-m", "delayssm_lab", *arguments)


class Here:
    """The command line called in this process, which saves the seconds that torch takes to load."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        """Call the command line and return its exit code, output and error output."""
        self._monkeypatch.setattr(sys, "argv", ["delayssm", *map(str, arguments)])
        self._monkeypatch.setenv("COLUMNS", "160")
        code = 0
        try:
            cli.main()
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
        return code, *self._capsys.readouterr()
