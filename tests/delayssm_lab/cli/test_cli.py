"""Tests of the command line, called as a user calls it."""

import os
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

from delayssm.layers.layer import DS4DConfig
from delayssm_lab import cli
from delayssm_lab.cli import data, info, train
from delayssm_lab.measure.fft_accuracy import FFTAccuracy
from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.recipes.delayed import ALL_TASKS, AnyTaskName, preset
from delayssm_lab.training import evaluate
from delayssm_lab.training.interrupt import Interrupted
from delayssm_lab.training.run import load
from tests.support.runs import LSTM, ONE_THREAD, create, finish, run, start, tiny

SMALL = (
    "--lags", 6, 6, "--data-length", 4, "--vocab-size", 12, "--d-model", 8, "--d-state", 4, "--steps", 6,
    "--batch-size", 4, "--evaluate-every", 3, "--validation-size", 4,
)  # fmt: skip


def _delayssm(*arguments: object) -> tuple[int, str, str]:
    return run("-m", "delayssm_lab", *arguments)


class Here:
    """The command line called in this process, which saves the seconds that torch takes to load."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["delayssm", *map(str, arguments)])
        self._monkeypatch.setenv("COLUMNS", "160")
        code = 0
        try:
            cli.main()
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
    assert out.count("│\n") == 15 + 24
    assert "3,564,268" in out


def test_train_eval_report(tmp_path: Path, here: Here) -> None:
    directory = tmp_path / "run"
    arguments = "train", "copy-fixed", "ds4d", *SMALL, "--out", directory
    code, out, errors = _delayssm(*arguments)
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
    assert "accuracy" in out.splitlines()[-1]
    code, out, errors = here("report", directory)
    assert code == 0, errors
    page = directory / "report" / "index.html"
    assert f"Wrote {page}" in out
    assert page.exists()


@pytest.mark.parametrize(("options", "max_delay"), [((), 14), (("--max-delay", 9), 9)])
def test_delays_reach_the_length_of_the_sequences(
    options: tuple[object, ...], max_delay: int, tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "finish", lambda directory, run: None)
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
    code, out, errors = _delayssm("demo", "--out", tmp_path / "new", "--steps", 1)
    assert code == 0, errors
    page = tmp_path / "new" / "report" / "index.html"
    assert f"Wrote {page}" in out
    assert page.exists()


@pytest.mark.parametrize(
    ("arguments", "usage", "option"),
    [
        ("--help", "delayssm [-h]", "train"),
        ("-h", "delayssm [-h]", "train"),
        ("--help train", "delayssm [-h]", "train"),
        ("train --help", "delayssm train [-h]", "--scale"),
        ("train -h copy-fixed ds4d", "delayssm train [-h]", "--scale"),
        ("train copy-fixed --help", "delayssm train [-h]", "--scale"),
        ("train --scale paper --help", "delayssm train [-h]", "--scale"),
        ("train --scale paper copy-fixed --help", "delayssm train [-h]", "--scale"),
        ("train --lr 0.1 copy-fixed ds4d --help", "delayssm train [-h]", "--scale"),
        ("train copy-fixed ds4d --help", "delayssm train copy-fixed ds4d --scale small", "--lr"),
        ("train copy-fixed ds4d -h", "delayssm train copy-fixed ds4d --scale small", "--lr"),
        ("train copy-fixed ds4d --lr 0.1 --help", "delayssm train copy-fixed ds4d --scale small", "--lr"),
        ("train --scale paper copy-fixed ds4d --help", "delayssm train copy-fixed ds4d --scale paper", "--lr"),
        ("train copy-fixed --scale paper ds4d --help", "delayssm train copy-fixed ds4d --scale paper", "--lr"),
        ("data --help", "delayssm data [-h]", "prepare"),
        ("data list --help", "delayssm data list [-h]", "--help"),
        ("data check mnist --help", "delayssm data check [-h]", "--partial"),
        ("data prepare --help", "delayssm data prepare [-h]", "--download"),
        ("data prepare mnist --help", "delayssm data prepare [-h]", "--download"),
        ("data generate listops --seed 1 --help", "delayssm data generate [-h]", "--count"),
        ("resume --help", "delayssm resume [-h]", "Directory of the run."),
        ("eval --help", "delayssm eval [-h]", "Directory of the run."),
        ("eval x --help", "delayssm eval [-h]", "Directory of the run."),
        ("sweep --help", "delayssm sweep [-h]", "--seeds"),
        ("sweep --seeds 0 1 --help", "delayssm sweep [-h]", "--seeds"),
        ("report --help", "delayssm report [-h]", "--out"),
        ("reproduce --help", "delayssm reproduce [-h]", "--so-far"),
        ("reproduce phase --help", "delayssm reproduce [-h]", "--so-far"),
        ("listen x.wav --help", "delayssm listen [-h]", "--chunk"),
        ("params --help", "delayssm params [-h]", "--scale"),
        ("info --help", "delayssm info [-h]", "--help"),
        ("demo --steps 3 --help", "delayssm demo [-h]", "--steps"),
    ],
)
def test_help(arguments: str, usage: str, option: str, here: Here) -> None:
    code, out, errors = here(*arguments.split())
    assert code == 0, errors
    assert out.startswith(f"usage: {usage}")
    assert option in out
    assert errors == ""


def test_help_on_a_run_lists_every_setting(here: Here) -> None:
    code, out, errors = here("train", "weighted-sum-variable", "llama", "--scale", "paper", "--help")
    assert code == 0, errors
    assert all(f"--{name}" in out for name in ("lr", "steps", "d-mlp", "lags", "amplitude", "seed", "warmup"))
    assert "(default: 376)" in out


@pytest.mark.parametrize("group", [cli, data], ids=lambda group: group.__name__)
def test_summaries_are_the_first_lines_of_the_help(group: ModuleType) -> None:
    for name, summary in group.COMMANDS.items():
        module = import_module(f"{group.__name__}.{name}")
        texts = [module, *(vars(module)[name] for name in ("command", "Choice") if name in vars(module))]
        assert {(text.__doc__ or "").partition("\n")[0] for text in texts} == {summary}


def test_help_is_light() -> None:
    code, out, errors = run(
        "-c",
        """
import atexit, sys
atexit.register(lambda: print([name for name in ("torch", "numpy", "matplotlib") if name in sys.modules]))
sys.argv = ["delayssm", "--help"]
from delayssm_lab.cli import main
main()
""",
    )
    assert code == 0, errors
    assert out.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("hidden", "arguments", "extra"),
    [
        ("tyro rich matplotlib cattrs accelerate", "", "lab"),
        ("tyro rich matplotlib cattrs accelerate", "--help", "lab"),
        ("tyro rich matplotlib cattrs accelerate", "train copy-fixed ds4d", "lab"),
        ("cattrs", "train copy-fixed ds4d", "lab"),
        ("transformers", "train copy-fixed gpt2", "baselines"),
        ("transformers", "sweep --tasks copy-fixed --models gpt2", "baselines"),
    ],
)
def test_a_missing_extra_is_named(hidden: str, arguments: str, extra: str, tmp_path: Path) -> None:
    hide = f"import sys; sys.modules.update(dict.fromkeys({hidden.split()}))"
    call = f"sys.argv = ['delayssm', *{arguments.split()}]; from delayssm_lab.cli import main; main()"
    code, out, errors = finish(start("-c", f"import os; os.chdir({str(tmp_path)!r}); {hide}; {call}"))
    assert code == 1
    assert f"pip install 'delayssm[{extra}]'" in errors
    assert errors.count("\n") == 1
    assert out == ""
    assert not list(tmp_path.iterdir())


def test_models_that_need_no_extra_are_shown_without_it(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    code, out, errors = here("params")
    assert code == 0, errors
    assert out.count("│\n") == 8 + 24
    assert "GPT-2" not in out
    assert "The other models are left out: transformers is not installed" in out
    assert "pip install 'delayssm[baselines]'" in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("train copy-fixed ds4d --stps 3", 2, "--stps"),
        ("train copy ds4d", 2, "copy"),
        ("train smnist lstm", 2, "smnist"),
        ("train copy-fixed ds4d more", 2, "more"),
        ("train copy-fixed", 2, "Missing"),
        ("", 2, "train"),
        ("bench", 2, "bench"),
        ("bench --help", 2, "bench"),
        ("--unknown", 2, "--unknown"),
        ("--unknown train", 2, "--unknown"),
        ("info more", 2, "more"),
        ("eval nowhere --unknown", 2, "--unknown"),
        ("data", 2, "prepare"),
        ("data fetch", 2, "fetch"),
        ("data list --unknown", 2, "--unknown"),
        ("data prepare nothing", 1, "nothing"),
        ("data prepare", 2, "name at least one data set"),
        ("data check", 2, "name at least one data set"),
        ("report", 2, "name at least one directory"),
        ("sweep --model ds4d --sed 3", 2, "--sed"),
        ("sweep --workers -3", 2, "--workers must be at least 1, not -3"),
        ("sweep --workers 0", 2, "--workers must be at least 1, not 0"),
        ("sweep --tasks", 2, "--tasks needs at least one value"),
        ("sweep --models", 2, "--models needs at least one value"),
        ("sweep --seeds", 2, "--seeds needs at least one value"),
        ("sweep --seeds -1", 2, "seed must be at least 0"),
        ("sweep --learning-rates nan", 2, "lr must be a positive number"),
        ("sweep --tasks smnist --models lstm", 2, "smnist is a task for ds4d and s4d"),
        ("eval nowhere --samples 0", 2, "--samples must be at least 1, not 0"),
        ("eval nowhere --seed -1", 2, "--seed must be at least 0, not -1"),
        ("resume nowhere --steps 0", 2, "--steps must be at least 1, not 0"),
        ("resume nowhere --steps 5", 1, "nowhere is not a run"),
        ("demo --steps -1", 2, "--steps must be at least 1, not -1"),
        ("listen nowhere.wav --run nowhere --chunk 0", 2, "--chunk must be at least 1, not 0"),
        ("listen nowhere.wav --run nowhere", 1, "nowhere.wav"),
        ("reproduce nothing", 2, "there is no study nothing; there are "),
        ("train copy-fixed ds4d --bidirectional", 2, "--no-bidirectional"),
        ("train copy-fixed ds4d --d-state 3", 2, "d_state must be even"),
        ("train copy-fixed ds4d --depth 0", 2, "at least one block"),
        ("train copy-fixed gpt2 --heads 5", 2, "cannot be built"),
        ("train copy-fixed ds4d --validation-size None", 2, "set validation_size"),
        ("train copy-fixed ds4d --epochs 1 --steps None", 2, "set steps instead"),
        ("train copy-fixed ds4d --seed -1", 2, "seed must be at least 0"),
        ("train copy-fixed ds4d --weight-decay nan", 2, "weight_decay must be a number of at least 0"),
        ("train copy-fixed ds4d --steps 1 --out /dev/null", 1, "/dev/null is a file"),
        ("train sum-fixed ds4d --max-token 19", 2, "lower max_token or raise vocab_size"),
        ("train copy-fixed ds4d --batch-size 0", 2, "batch_size must be at least 1"),
        ("resume nowhere", 1, "nowhere is not a run"),
        ("eval nowhere", 1, "nowhere is not a run"),
        ("report nowhere", 1, "there are no runs in nowhere"),
    ],
)
def test_wrong_usage(
    arguments: str, code: int, message: str, here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    actual, out, errors = here(*arguments.split())
    assert actual == code
    assert message in out + errors
    assert "Traceback" not in errors
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("bad value"), 1, "delayssm: bad value\n"),
        (OSError("disk full"), 1, "delayssm: disk full\n"),
        (ZeroDivisionError("by zero"), 1, "delayssm: by zero\n"),
        (ImportError("no such name"), 1, "delayssm: no such name\n"),
        (MemoryError("1 TB"), 1, "delayssm: there is not enough memory; try smaller sizes (1 TB)\n"),
        (RuntimeError("cannot allocate 1 TB\nat"), 1, "delayssm: there is not enough memory; try smaller sizes (can"),
        (KeyboardInterrupt(), 130, "Interrupted.\n"),
        (Interrupted("1 of 2 done"), 130, "Interrupted: 1 of 2 done. Repeat the command to continue.\n"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_errors_become_one_line(
    error: BaseException, code: int, message: str, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(info, "command", fail)
    actual, out, errors = here("info")
    assert (actual, out) == (code, "")
    assert errors.startswith(message)
    assert errors.count("\n") == 1


def test_an_error_of_the_code_keeps_its_traceback(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(info, "command", fail)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        here("info")


def test_version(here: Here) -> None:
    assert here("--version") == (0, f"delayssm {version('delayssm')}\n", "")


@pytest.mark.parametrize("arguments", [("--help",), ("train", "copy-fixed", "ds4d", "--help"), ("info",)])
def test_a_reader_that_stops_reading(arguments: tuple[str, ...]) -> None:
    with start("-m", "delayssm_lab", *arguments) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


IMPORTING = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
sys.argv = ["delayssm", "info"]
from delayssm_lab.cli import main
main()
"""


def test_ctrl_c_during_imports() -> None:
    assert run("-c", IMPORTING) == (130, "", "Interrupted.\n")


def test_variants_of_a_run_have_directories_of_their_own(
    tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "finish", lambda directory, run: None)
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


def test_eval_prints_the_chance_level(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    smnist = preset("smnist", "ds4d", "small")
    monkeypatch.setattr(evaluate, "load_model", lambda directory: (None, smnist))
    monkeypatch.setattr(evaluate, "measure", lambda *arguments: 0.5)
    monkeypatch.setattr(type(smnist.task), "chance_level", lambda task: 0.1)
    assert here("eval", "x") == (0, "accuracy 0.5000 on test samples; chance level 0.1000\n", "")


@pytest.mark.parametrize("task", ALL_TASKS)
def test_every_task_has_options_of_its_own(task: AnyTaskName, here: Here) -> None:
    """No two settings of a run share a name, so that each can be given."""
    code, out, errors = here("train", task, "ds4d", "--help")
    assert code == 0, errors
    assert "--dt-min" in out


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
    code, _, errors = here("reproduce", "synthetic", "--so-far", "--work", tmp_path / "w")
    assert code == 1
    assert "no step of synthetic is finished" in errors
    code, _, errors = here("reproduce", "everything")
    assert code == 2
    assert "there is no study everything; there are " in errors
    assert " phase, " in errors
