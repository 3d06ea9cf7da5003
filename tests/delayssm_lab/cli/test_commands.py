"""Tests of what the commands do, called as a user calls them."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from delayssm.layers.layer import DS4DConfig
from delayssm_lab.cli import train
from delayssm_lab.measure.fft_accuracy import FFTAccuracy
from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.recipes.delayed import preset
from delayssm_lab.training import evaluate, run
from delayssm_lab.training.run import load
from tests.support.command_line import Here, delayssm
from tests.support.runs import LSTM, ONE_THREAD, create, tiny

SMALL = (
    "--lags", 6, 6, "--data-length", 4, "--vocab-size", 12, "--d-model", 8, "--d-state", 4, "--steps", 6,
    "--batch-size", 4, "--evaluate-every", 3, "--validation-size", 4,
)  # fmt: skip


def test_info_says_what_runs() -> None:
    code, out, errors = delayssm("info")
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
    assert out.count("│\n") == 15 + 24 + 4
    assert "3,564,268" in out


def test_train_eval_report(tmp_path: Path, here: Here) -> None:
    directory = tmp_path / "run"
    arguments = "train", "copy-fixed", "ds4d", *SMALL, "--out", directory
    code, out, errors = delayssm(*arguments)
    assert code == 0, errors
    assert "step 6/6" in out
    assert " s left" in out
    assert f"delayssm report {directory}" in out
    code, again, errors = here(*arguments)  # finished: says so, and trains nothing
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
    assert out.splitlines()[-1].startswith("accuracy")
    assert out.splitlines()[-1].endswith("on 8 validation samples")
    code, out, errors = here("eval", directory)
    assert out.splitlines()[-1].endswith("on 4 validation samples")
    code, out, errors = here("report", directory)
    assert code == 0, errors
    page = directory / "report" / "index.html"
    assert f"Wrote {page}" in out
    assert page.exists()


@pytest.mark.parametrize(("options", "max_delay"), [((), 14), (("--max-delay", 9), 9)])
def test_delays_reach_the_length_of_the_sequences(
    options: tuple[object, ...], max_delay: int, tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "finish", lambda directory, run, tracker: None)
    code, _, errors = here("train", "copy-fixed", "ds4d", *SMALL, *options, "--out", tmp_path)
    assert code == 0, errors
    model = load(tmp_path)[0].model
    assert isinstance(model, StateSpaceSpec)
    assert isinstance(model.layer, DS4DConfig)
    assert model.layer.max_delay == max_delay


def test_a_terminal_gets_a_bar(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    create(tmp_path, tiny())
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "delayssm_lab", "resume", str(tmp_path)],
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
    code, out, errors = delayssm("demo", "--out", tmp_path / "new", "--steps", 1)
    assert code == 0, errors
    page = tmp_path / "new" / "report" / "index.html"
    assert f"Wrote {page}" in out
    assert page.exists()
    assert "1.00 s  yes        0.68" in out
    assert "has forecast a chaotic series 15 steps ahead, with an error of 3.4 %" in out
    assert {path.name for path in (tmp_path / "new").glob("*.png")} == {"listener.png", "forecast.png"}


def test_variants_of_a_run_have_directories_of_their_own(
    tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "finish", lambda directory, run, tracker: None)
    monkeypatch.chdir(tmp_path)
    variants = (
        (), ("--lr", 0.002), ("--seed", 3), ("--steps", 4000), ("--steps", 4001), ("--schedule", "cosine"),
        ("--d-model", 30), ("--lags", 255, 256), ("--label", "S4D"), ("--lr", 0.00100000001), ("--clip", "None"),
    )  # fmt: skip
    for options in variants:
        for _ in range(2):  # the same command finds its run again
            code, _, errors = here("train", "copy-fixed", "ds4d", *options)
            assert code == 0, errors
    assert here("train", "copy-fixed", "s4d")[0] == 0
    names = {path.name for path in (tmp_path / "runs" / "small").iterdir()}
    assert len(names) == len(variants) + 1
    plain = {"copy-fixed-ds4d-lr0.001-seed0", "copy-fixed-ds4d-lr0.002-seed0", "copy-fixed-ds4d-lr0.001-seed3"}
    assert plain | {"copy-fixed-s4d-lr0.001-seed0"} <= names
    assert all(load(tmp_path / "runs" / "small" / name)[0].name in name for name in names)


def test_more_steps(tmp_path: Path, here: Here) -> None:
    directory = create(tmp_path / "my run", tiny(LSTM, steps=4))
    assert here("resume", directory)[0] == 0
    code, out, errors = here("resume", directory, "--steps", 8)
    assert code == 0, errors
    assert "step 8/8" in out
    assert "step 4/8" not in out
    assert f"delayssm report '{directory}'" in out
    assert load(directory)[0] == tiny(LSTM, steps=8)
    code, _, errors = here("resume", directory, "--steps", 7)
    assert code == 1
    assert "which can only be raised, not to 7" in errors


def test_a_report_names_what_it_leaves_out(tmp_path: Path, here: Here) -> None:
    for seed in (0, 1):
        directory = create(tmp_path / f"{seed}", tiny(LSTM, seed, steps=1))
        assert here("resume", directory)[0] == 0
    metrics = tmp_path / "1" / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"step"', '"step', 1))
    code, out, errors = here("report", tmp_path)
    assert code == 0
    assert "Wrote " in out
    assert f"Left out {tmp_path / '1'}: line 2 of {metrics} is damaged" in errors
    page = (tmp_path / "report" / "index.html").read_text()
    assert "Left out: 1, because line 2 of " in page
    assert "1 seed<" in page
    code, _, errors = here("report", tmp_path / "1")
    assert code == 1
    assert f"none of these runs has an evaluation that can be shown; line 2 of {metrics}" in errors


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    ("test_size", "options", "count"),
    [(5, (), 5), (None, (), 12), (5, ("--samples", 7), 7), (5, ("--samples", 40), 12)],
)
def test_eval_takes_the_test_samples_of_the_run(
    test_size: int | None, options: tuple[object, ...], count: int, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    smnist = preset("smnist", "ds4d", "small")
    smnist = replace(smnist, training=replace(smnist.training, test_size=test_size))
    monkeypatch.setattr(run, "load", lambda directory: (smnist, {}))
    monkeypatch.setattr(evaluate, "best_model", lambda directory, run: None)
    monkeypatch.setattr(evaluate, "measure", lambda model, task, split, count, seed: count / 16)
    monkeypatch.setattr(type(smnist.task), "chance_level", lambda task: 0.1)
    expected = f"accuracy {count / 16:.4f} on {count} test samples; chance level 0.1000\n"
    assert here("eval", "x", *options) == (0, expected, "")


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
    assert f"0 of {len(FFTAccuracy().points())}" in out
    assert "1 of 1" not in out
    code, _, errors = here("reproduce", "synthetic", "--so-far", "--out", tmp_path / "o", "--work", tmp_path / "w")
    assert code == 1
    assert "no step of synthetic is finished" in errors
    code, _, errors = here("reproduce", "everything")
    assert code == 2
    assert "there is no study everything; there are " in errors
    assert " phase, " in errors
