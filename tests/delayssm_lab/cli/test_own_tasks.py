"""A script with a task of its own is run in place of the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from delayssm_lab.tasks import kinds
from delayssm_lab.tasks.recall import RecallTask

SCRIPT = """
from dataclasses import dataclass

import torch
from delayssm_lab.cli import main
from delayssm_lab.tasks.recall import RecallBatch, RecallTask


@dataclass(frozen=True)
class FetchToken(RecallTask):
    label = "Fetch"
    vocab_size = 4
    lag: int = 3
    max_length: int = 8

    def chance_level(self):
        return 1 / 4

    def batch(self, seed, split, indices):
        tokens = torch.stack([
            torch.randint(4, (self.max_length,), generator=torch.Generator().manual_seed(hash((seed, split, index))))
            for index in indices
        ])
        last = torch.full((len(tokens), 1), self.max_length - 1)
        return RecallBatch(tokens, last, tokens[:, -1 - self.lag, None])


if __name__ == "__main__":
    main(FetchToken)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "fetch.py"
    path.write_text(SCRIPT)
    return path


def _call(script: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(script), *map(str, arguments)]
    return subprocess.run(command, cwd=script.parent, capture_output=True, text=True, check=False)


def test_it_is_trained_resumed_evaluated_and_shown(script: Path) -> None:
    done = _call(
        script, "train", "fetch-token", "ds4d", "--lag", 2, "--steps", 4, "--evaluate-every", 4, "--out", "run"
    )
    assert done.returncode == 0, done.stderr
    assert f"To plot them: python {script} report run" in done.stdout
    saved = json.loads((script.parent / "run" / "config.json").read_bytes())
    assert saved["run"]["task"] == {"lag": 2, "max_length": 8, "kind": "FetchToken"}
    for arguments, expected in (
        (("resume", "run", "--steps", 8), "Results are in run"),
        (("eval", "run"), "on 512 validation samples; chance level 0.2500"),
        (("report", "run", "--out", "page"), "Wrote"),
    ):
        done = _call(script, *arguments)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
    page = (script.parent / "page" / "index.html").read_text()
    assert "<title>Fetch" in page
    assert "<h3>Fetch</h3>" in page
    assert page.count("of 1</td>") == 1  # the one answer of the one model


def test_sweeps_train_it_in_processes_of_their_own(script: Path) -> None:
    steps = """
print("loading my data")
from dataclasses import replace
from delayssm_lab.recipes import own
from delayssm_lab.training.run import Training

small = own.small
own.small = lambda task, model: replace(small(task, model), training=Training(steps=2, batch_size=4))
"""
    script.write_text(steps + SCRIPT)
    done = _call(script, "sweep", "--tasks", "fetch-token", "--models", "ds4d", "lstm", "--out", "runs")
    assert done.returncode == 0, done.stderr
    assert "2 of 2 runs are finished" in done.stdout
    logs = [path.read_text() for path in (script.parent / "runs").glob("*/log.txt")]
    assert logs == ["loading my data\n"] * 2


SIGNALS = """
from dataclasses import dataclass

import torch
from delayssm import SeriesModel, Values
from delayssm_lab.cli import main
from delayssm_lab.tasks.task import Metric, Score, Split, Task


@dataclass(frozen=True)
class Pairs:
    x: torch.Tensor
    targets: torch.Tensor

    def to(self, device):
        return Pairs(self.x.to(device), self.targets.to(device))

    def score(self, model):
        errors = (model(self.x) - self.targets).square()
        return Score(errors.sum(), errors.detach().sum(), errors.numel())


@dataclass(frozen=True)
class Echo(Task):
    label = "Echo"
    metric = Metric.RMSE
    max_length: int = 8

    def build(self, spec):
        return SeriesModel(Values(1, spec.d_model), spec.backbone(), 1)

    def size(self, split):
        return {Split.TRAIN: 64, Split.VALIDATION: 10, Split.TEST: 0}[split]

    def batch(self, seed, split, indices):
        x = torch.stack([
            torch.randn(self.max_length, 1, generator=torch.Generator().manual_seed(hash((seed, split, index % 64))))
            for index in indices
        ])
        return Pairs(x, x.roll(1, dims=1))

    def chance_level(self):
        return 1.0


if __name__ == "__main__":
    main(Echo)
"""


def test_models_of_any_type_are_trained_resumed_and_evaluated(script: Path) -> None:
    script.write_text(SIGNALS)
    for arguments, expected in (
        (("train", "echo", "ds4d", "--steps", 4, "--evaluate-every", 4, "--out", "run"), "Results are in run"),
        (("resume", "run", "--steps", 8), "Results are in run"),
        (("eval", "run"), "on 10 validation samples; chance level 1.0000"),
        (("eval", "run", "--samples", 3), "on 3 validation samples; chance level 1.0000"),
    ):
        done = _call(script, *arguments)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
    assert len(json.loads((script.parent / "run" / "fingerprint.json").read_bytes())["values"]) == 2


def test_what_is_wrong_is_said(script: Path) -> None:
    done = _call(script, "train", "fetch-token", "ds4d", "--lag", 20, "--out", "run")
    assert done.returncode == 2
    assert "the first validation sample of Fetch cannot be made and answered: IndexError" in done.stderr
    assert not (script.parent / "run").exists()
    done = _call(script, "train", "fetch-token", "ds4d", "--scale", "paper")
    assert done.returncode == 2
    assert "exists at small scale only" in done.stderr
    assert _call(script, "train", "fetch-token", "ds4d", "--steps", 1, "--out", "run").returncode == 0
    command = [sys.executable, "-m", "delayssm_lab", "eval", str(script.parent / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "if it is a task of a script, run that script in place of delayssm" in done.stderr


def test_classes_that_are_no_tasks() -> None:
    class Thawed(RecallTask): ...

    @dataclass(frozen=True)
    class Unfinished(RecallTask): ...

    @dataclass(frozen=True)
    class ListOps(Unfinished):
        label = "Mine"
        vocab_size = 2
        max_length = 3
        batch = chance_level = None  # type: ignore[assignment]

    for wrong, kind, message in (
        (int, TypeError, "must be a class derived from RecallTask or Task, not <class 'int'>"),
        (Thawed, TypeError, "Thawed must be a frozen dataclass"),
        (Unfinished, TypeError, "Unfinished lacks batch, chance_level, label, max_length, vocab_size"),
        (ListOps, ValueError, "there is a task ListOps already"),
    ):
        with pytest.raises(kind, match=message):
            kinds.add(wrong)
    assert not kinds.own()
