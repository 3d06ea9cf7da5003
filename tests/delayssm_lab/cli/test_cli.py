"""The command, as a user calls it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from delayssm_lab.cli import main
from tests.support.runs import ONE_THREAD, create, run, tiny

SMALL = (
    "--lags", 6, 6, "--data-length", 4, "--vocab-size", 12, "--d-model", 8, "--d-state", 4, "--steps", 6,
    "--batch-size", 4, "--evaluate-every", 3, "--validation-size", 4,
)  # fmt: skip


def _delayssm(*arguments: object) -> tuple[int, str, str]:
    return run("-m", "delayssm", *arguments)


class Here:
    """Calls the command in this process, which saves the seconds that torch takes to load."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["delayssm", *map(str, arguments)])
        self._monkeypatch.setenv("COLUMNS", "160")
        code = 0
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
        return code, *self._capsys.readouterr()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(monkeypatch, capsys)


def test_info_says_what_runs() -> None:
    code, out, errors = _delayssm("info")
    assert code == 0, errors
    shown = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert {"delayssm", "torch", "backend", "threads", "revision"} <= shown.keys()
    assert shown["backend"] in ("numba", "eager")


def test_params_prints_the_paper_s_totals(here: Here) -> None:
    code, out, errors = here("params")
    assert code == 0, errors
    totals = """168,384 862,698 167,310 866,320 167,816 867,552 165,360 855,492 875,980 169,840 868,650
                167,580 868,805 77,100 412,206"""
    assert [total for total in totals.split() if total not in out] == []
    assert out.count("│\n") == 15 + 35
    assert "3,945,196" in out


def test_train_eval_report(tmp_path: Path, here: Here) -> None:
    directory = tmp_path / "run"
    train = "train", "copy-fixed", "ds4d", *SMALL, "--out", directory
    code, out, errors = _delayssm(*train)
    assert code == 0, errors
    assert "step 6/6" in out
    assert " s left" in out
    assert f"delayssm report {directory}" in out
    code, again, errors = here(*train)  # finished: says so, and trains nothing
    assert code == 0, errors
    assert "Best accuracy" in again
    assert "step 6/6" not in again
    code, _, errors = here("train", "copy-fixed", "s4d", *SMALL, "--out", directory)
    assert code == 1
    assert "holds another run" in errors
    assert "Traceback" not in errors
    code, out, errors = here("eval", directory, "--samples", 8)
    assert code == 0, errors
    assert "lag 6" in out
    assert "accuracy" in out.splitlines()[-1]
    code, out, errors = here("report", directory)
    assert code == 0, errors
    page = directory / "report" / "index.html"
    assert f"Look at {page}" in out
    assert page.exists()


def test_a_terminal_gets_a_bar(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    create(tmp_path, tiny())
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "delayssm", "resume", str(tmp_path)],
        stdout=theirs,
        stderr=subprocess.PIPE,
        env={**os.environ, **ONE_THREAD, "TERM": "xterm", "COLUMNS": "140"},
    ) as process:
        os.close(theirs)
        shown = b""
        while piece := _read(ours):
            shown += piece
    os.close(ours)
    assert process.returncode == 0
    text = shown.decode()
    assert "━" in text
    assert "12/12" in text
    assert "tokens/s" in text
    assert "Best accuracy" in text


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # nobody is at the other end any more
        return b""


def test_demo_ends_with_a_report(tmp_path: Path) -> None:
    code, out, errors = _delayssm("demo", "--out", tmp_path / "new", "--steps", 1)
    assert code == 0, errors
    page = tmp_path / "new" / "report" / "index.html"
    assert f"Look at {page}" in out
    assert page.exists()


def test_bench_prints_a_row_for_each_model() -> None:
    code, out, errors = _delayssm(
        "bench", "--tasks", "sum-variable", "--models", "ds4d", "--scale", "mini", "--steps", 1
    )
    assert code == 0, errors
    assert "| DS4D " in out
    assert "225,180" in out


@pytest.mark.parametrize("command", ["", "train", "resume", "eval", "sweep", "report", "bench", "params", "demo"])
def test_help(command: str, here: Here) -> None:
    code, out, errors = here(*command.split(), "--help")
    assert code == 0, errors
    assert "usage: delayssm" in out


def test_help_on_a_run_lists_every_setting(here: Here) -> None:
    code, out, errors = here("train", "weighted-sum-variable", "llama", "--scale", "paper", "--help")
    assert code == 0, errors
    assert all(f"--{name}" in out for name in ("lr", "steps", "d-mlp", "lags", "amplitude", "seed", "warmup"))
    assert "(default: 376)" in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("train copy-fixed ds4d --stps 3", 2, "--stps"),
        ("train copy ds4d", 2, "copy"),
        ("sweep --model ds4d --sed 3", 2, "--sed"),
        ("train sum-fixed ds4d --max-token 19", 2, "lower max_token or raise vocab_size"),
        ("train copy-fixed ds4d --batch-size 0", 2, "batch_size must be at least 1"),
        ("resume nowhere", 1, "nowhere is not a run"),
        ("eval nowhere", 1, "nowhere is not a run"),
        ("report nowhere", 1, "there are no runs in nowhere"),
    ],
)
def test_wrong_usage(arguments: str, code: int, message: str, here: Here) -> None:
    found, out, errors = here(*arguments.split())
    assert found == code
    assert message in out + errors
    assert "Traceback" not in errors


def test_a_checkpoint_that_is_missing(tmp_path: Path, here: Here) -> None:
    create(tmp_path, tiny())
    code, _, errors = here("eval", tmp_path)
    assert code == 1
    assert "there is no file" in errors


def test_reproduce(tmp_path: Path, here: Here) -> None:
    code, out, errors = here("reproduce", "phase", "--out", tmp_path / "o", "--work", tmp_path / "w")
    assert code == 0, errors
    assert (tmp_path / "o" / "phase" / "phase.png").exists()
    assert str(tmp_path / "o" / "phase") in out
    code, out, _ = here("reproduce", "--list", "--out", tmp_path / "o", "--work", tmp_path / "w")
    assert code == 0
    assert "0 of 20" in out
    code, _, errors = here("reproduce", "synthetic", "--so-far", "--work", tmp_path / "w")
    assert code == 1
    assert "nothing of synthetic is done" in errors
    code, _, errors = here("reproduce", "everything")
    assert code == 1
    assert "there is no study everything; there are phase" in errors
