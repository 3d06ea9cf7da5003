"""The command, as a user calls it."""

import subprocess
import sys
from pathlib import Path


def _delayssm(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from delayssm.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_info_says_what_runs() -> None:
    done = _delayssm("info")
    assert done.returncode == 0, done.stderr
    shown = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert {"delayssm", "torch", "backend", "threads"} <= shown.keys()
    assert shown["backend"] in ("numba", "eager")


def test_demo_draws_a_picture(tmp_path: Path) -> None:
    done = _delayssm("demo", "--out", str(tmp_path / "new"), "--steps", "3")
    assert done.returncode == 0, done.stderr
    picture = tmp_path / "new" / "demo.png"
    assert str(picture) in done.stdout.replace("\n", "")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in picture.parent.iterdir()] == ["demo.png"]


def test_unknown_options_are_errors() -> None:
    done = _delayssm("demo", "--stps", "3")
    assert done.returncode != 0
    assert "--stps" in done.stdout + done.stderr
