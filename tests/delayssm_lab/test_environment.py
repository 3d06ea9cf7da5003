"""What runs is described so that it can be found again."""

import subprocess
from pathlib import Path

import pytest

from delayssm_lab import environment


def test_the_revision_is_that_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "src" / "package" / "environment.py"
    module.parent.mkdir(parents=True)
    monkeypatch.setattr(environment, "__file__", str(module))
    assert environment.revision() == "not a checkout"

    def git(*command: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=b", *command], check=True)

    module.write_text("1")
    git("init", "--quiet")
    git("add", "--all")
    git("commit", "--quiet", "--message", "one")
    clean = environment.revision()
    assert len(clean) == 12
    (tmp_path / "results").write_text("new")
    assert environment.revision() == clean
    module.write_text("2")
    assert environment.revision() == f"{clean}-dirty"
