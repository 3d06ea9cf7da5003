"""Tests of wrong usage, of errors and of interruptions of the command line."""

import sys
from pathlib import Path

import pytest

from delayssm import DS4D, Block, Stack
from delayssm_lab.cli import info
from delayssm_lab.recipes.delayed import ALL_TASKS
from delayssm_lab.training.interrupt import Interrupted
from tests.support.command_line import Here
from tests.support.runs import LSTM, create, finish, run, start, tiny


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
    assert f"pip install '.[{extra}]' in a clone" in errors
    assert errors.count("\n") == 1
    assert out == ""
    assert not list(tmp_path.iterdir())


def test_models_that_need_no_extra_are_shown_without_it(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    code, out, errors = here("params")
    assert code == 0, errors
    assert out.count("│\n") == 8 + 24 + 2  # delayed memory, general benchmarks, language
    assert "GPT-2" not in out
    assert "The other models are left out: transformers is not installed" in out
    assert "pip install '.[baselines]' in a clone" in out


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
        ("sweep --ray --workers 2", 2, "--workers is for sweeps without --ray; give --cpus-per-run"),
        ("sweep --gpus-per-run 1", 2, "--cpus-per-run and --gpus-per-run are for sweeps with --ray"),
        ("sweep --ray --cpus-per-run 0", 2, "--cpus-per-run must be at least 1, not 0"),
        ("sweep --ray --gpus-per-run -1", 2, "--gpus-per-run must be at least 0, not -1"),
        ("sweep --tasks", 2, "--tasks needs at least one value"),
        ("sweep --models", 2, "--models needs at least one value"),
        ("sweep --seeds", 2, "--seeds needs at least one value"),
        ("sweep --seeds -1", 2, "seed must be at least 0"),
        ("sweep --learning-rates nan", 2, "lr must be a positive number"),
        ("sweep --tasks smnist --models lstm", 2, "smnist is a task for ds4d and s4d"),
        ("eval nowhere --samples 0", 2, "--samples must be between 1 and 10,000,000, not 0"),
        ("eval nowhere --samples 10000001", 2, "--samples must be between 1 and 10,000,000, not 10000001"),
        ("eval nowhere --seed -1", 2, "--seed must be at least 0, not -1"),
        ("resume nowhere --steps 0", 2, "--steps must be at least 1, not 0"),
        ("resume nowhere --steps 5", 1, "nowhere is not a run"),
        ("demo --steps -1", 2, "--steps must be at least 1, not -1"),
        ("export nowhere model.onnx", 1, "there is no directory nowhere"),
        ("export nowhere model.onnx --max-length 1", 2, "--max-length must be at least 2, not 1"),
        ("listen nowhere.wav --model nowhere --chunk 0", 2, "--chunk must be at least 1, not 0"),
        ("listen nowhere.wav --model nowhere", 1, "nowhere.wav"),
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
        ("train copy-fixed ds4d --schedule multi-step", 2, "--schedule multi-step needs --at, the fractions"),
        ("train copy-fixed ds4d --dt-min nan", 2, "not nan and 0.4"),
        ("train copy-fixed ds4d --delays -5", 2, "-5"),
        ("train copy-fixed ds4d --batch-size 1000000000", 2, "lower batch_size"),
        ("train copy-fixed ds4d --batch-size 99999999999", 2, "batch_size must be at least 1 and below 2**31"),
        ("train copy-fixed ds4d --vocab-size 999999999", 2, "choose a smaller model"),
        ("train copy-fixed ds4d --lags 6 99999999999", 2, "lags must be below 2**31"),
        ("train copy-fixed ds4d --out=", 2, "--out needs a path, not an empty text"),
        ("reproduce phase --out /dev/null", 1, "/dev/null is not a directory"),
        ("reproduce fft-accuracy --work /dev/null/new", 1, "/dev/null is not a directory"),
        ("sweep --ray --tasks copy-fixed --out /dev/null", 1, "could not make the directory /dev/null/copy-fixed"),
        ("report nowhere --out /dev/null", 1, "there are no runs in nowhere"),
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


def test_other_processes_keep_silent_about_interruptions_only(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(info, "command", fail)
    error: Exception = ValueError("out of memory")
    assert here("info") == (1, "", "process 1: delayssm: out of memory\n")
    error = Interrupted("stopped after step 3 of 12")
    assert here("info") == (130, "", "")


def test_an_error_of_the_code_keeps_its_traceback(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(info, "command", fail)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        here("info")


@pytest.mark.parametrize("option", ["--out", "--work"])
def test_empty_paths_are_refused(option: str, here: Here) -> None:
    assert here("reproduce", option, "") == (2, "", f"delayssm: {option} needs a path, not an empty text\n")
    assert here("resume", "")[0] == 2


def test_a_configuration_that_cannot_be_read(here: Here, tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    for command in ("resume", "eval"):
        code, _, errors = here(command, tmp_path)
        assert code == 1
        assert errors == f"delayssm: could not read {tmp_path / 'config.json'}: Is a directory\n"


def test_damaged_weights_are_one_line(here: Here, tmp_path: Path) -> None:
    create(tmp_path, tiny(LSTM, steps=1))
    assert here("resume", tmp_path)[0] == 0
    (tmp_path / "best" / "model.safetensors").write_bytes(b"damaged")
    for command in ("eval", "report"):
        code, _, errors = here(command, tmp_path)
        assert code == 1
        assert f"{tmp_path / 'best' / 'model.safetensors'} is damaged" in errors
        assert errors.count("\n") == 1


def test_tasks_are_named_in_order(here: Here) -> None:
    code, _, errors = here("train", "nonsense", "ds4d")
    assert code == 2
    places = [errors.index(f"'{task}'") for task in ALL_TASKS]
    assert places == sorted(places)


def test_a_model_that_does_not_write_is_one_line(here: Here, tmp_path: Path) -> None:
    Stack([Block(DS4D(4, 4, max_delay=8))]).save_pretrained(tmp_path)
    code, out, errors = here("write", tmp_path)
    assert (code, out) == (1, "")
    assert errors == f"delayssm: {tmp_path} holds a Stack, which does not write; train one on reviews\n"


@pytest.mark.parametrize("arguments", [("--help",), ("train", "copy-fixed", "ds4d", "--help"), ("info",), ("params",)])
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
