"""Tests of the best weights of a run as a model that anyone can load."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from delayssm import Pretrained, TokenModel
from delayssm.storage.pretrained import read_about
from delayssm_lab.display import Silent
from delayssm_lab.training import checkpoint
from delayssm_lab.training import trainer as training
from delayssm_lab.training.evaluate import best_model
from delayssm_lab.training.run import load, to_json
from tests.support.runs import LSTM, create, read_summary, tiny

pytestmark = pytest.mark.usefixtures("one_thread")

SCRIPT = """
import sys
sys.modules["delayssm_lab"] = None  # an import of it is an error
import torch
from delayssm import TokenModel
model = TokenModel.from_pretrained(sys.argv[1])
print(list(model.generate(torch.tensor([1, 2, 3]), 20, temperature=0.0)))
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a finished run."""
    path = create(tmp_path_factory.mktemp("run") / "run", tiny(steps=8))
    training.train(path, Silent())
    return path


def test_it_generates_the_same_without_the_laboratory(finished: Path) -> None:
    model = best_model(finished, load(finished)[0])
    assert isinstance(model, TokenModel)
    tokens = list(model.generate(torch.tensor([1, 2, 3]), 20, temperature=0.0))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, finished / "best"], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tokens}\n"


def test_it_knows_where_it_comes_from(finished: Path) -> None:
    run, summary = load(finished)[0], read_summary(finished)
    assert summary is not None
    assert json.loads(json.dumps(to_json(run))) == read_about(finished / "best")["run"]
    assert read_about(finished / "best")["accuracy"] == summary["accuracy"]
    assert read_about(finished / "best")["step"] == summary["best_step"]
    card = (finished / "best" / "README.md").read_text()
    assert f"# {run.name}" in card
    assert "TokenModel.from_pretrained" in card


def test_what_a_killed_process_could_not_write_is_written(tmp_path: Path) -> None:
    path = create(tmp_path / "run", tiny(steps=8))
    training.train(path, Silent())
    shown = path / "best" / "config.json"
    expected = shown.read_text()
    shown.unlink()
    (path / "summary.json").unlink()
    training.train(path, Silent())
    assert shown.read_text() == expected


def test_baselines_are_for_the_laboratory(tmp_path: Path) -> None:
    path = create(tmp_path / "run", tiny(LSTM, steps=4))
    training.train(path, Silent())
    assert checkpoint.best(path).exists()
    with pytest.raises(ValueError, match="no configuration is called 'LSTMModel' here"):
        Pretrained.from_pretrained(path / "best")
