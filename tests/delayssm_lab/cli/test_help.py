"""Tests of the help of the command line."""

from importlib import import_module
from importlib.metadata import version
from types import ModuleType

import pytest

from delayssm_lab import cli
from delayssm_lab.cli import data
from delayssm_lab.recipes.delayed import ALL_TASKS, AnyTaskName
from tests.support.command_line import Here
from tests.support.runs import run


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
        ("export x y.onnx --help", "delayssm export [-h]", "--max-length"),
        ("listen x.wav --help", "delayssm listen [-h]", "--chunk"),
        ("write x --help", "delayssm write [-h]", "--prompt"),
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


@pytest.mark.parametrize("task", ALL_TASKS)
def test_every_task_has_options_of_its_own(task: AnyTaskName, here: Here) -> None:
    """No two settings of a run share a name, so that each can be given."""
    code, out, errors = here("train", task, "ds4d", "--help")
    assert code == 0, errors
    assert "--dt-min" in out


def test_version(here: Here) -> None:
    assert here("--version") == (0, f"delayssm {version('delayssm')}\n", "")
