"""Fuzzing of the command line: random commands, options and values, in this process.

What would take long is replaced: training, sweeping, measuring, drawing, downloading and generating. A case is
accepted, which is exit code 0, or refused with exit code 1 or 2 and one message on standard error.
"""

import io
import os
import random
import re
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from hypothesis import strategies as st

from delayssm_lab import cli
from delayssm_lab.cli import common, data
from delayssm_lab.recipes.delayed import ALL_TASKS, MODELS
from delayssm_lab.studies.catalogue import studies
from delayssm_lab.training.interrupt import EXIT_CODE, Interrupted
from delayssm_lab.training.sweep import Outcome
from tests.fuzz.outcomes import require_clear
from tests.fuzz.run_directories import limits, pristine, put

#: Bytes of memory that runs believe to have.
AVAILABLE = 1 << 30
COMMANDS = [*cli.COMMANDS, *(f"data {name}" for name in data.COMMANDS)]
WHOLE = ["0", "-1", *map(str, range(1, 20)), "255", "65536", str(2**31), "9" * 40, "9" * 400]
NUMBERS = ["0", "-1", "1", "0.1", "0.01", "0.5", "-0.0", "1e-300", "1e300", "1e999", "nan", "inf", "9" * 400]
WORDS = ["", " ", "None", "True", "[]", "small", "paper", "ß\N{SNOWMAN}", "\udcff", "\n", "a" * 300, "%s", "{}"]
#: Paths in the working directory. Nothing can be written to the last three, whoever tries.
PATHS = ["run", "\udcff", "runs", "new/run", "file", "file/new", ".", "..", "nowhere", "empty", "sound.wav",
         "/dev/null", "/dev/null/new", "/proc/new"]  # fmt: skip
_CHARACTERS = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
TEXT = st.text(_CHARACTERS, max_size=8).map(lambda text: text.replace("..", "").lstrip("/"))
VALUES = {
    "INT": st.sampled_from(WHOLE),
    "FLOAT": st.sampled_from(NUMBERS),
    "PATH": st.one_of(st.sampled_from(PATHS), TEXT),
    "STR": st.one_of(st.sampled_from(WORDS), TEXT),
}
MESSAGE = re.compile(r"delayssm: \S|Interrupted|╭─|.*: ", re.DOTALL)


def case(data: st.DataObject, tmp: Path) -> str:
    """Call the command line once, with `tmp` as the only place where files may change; it is empty before and after.

    Return "accepted" or "clear error". Raise AssertionError otherwise.
    """
    here = tmp / "home" / "here"
    try:
        put(here / "run", pristine("lstm", "finished"))
        put(here / "runs" / "damaged", {"config.json": b"{"})
        (here / "empty").mkdir()
        (here / "file").write_text("text")
        (here / "sound.wav").write_bytes(b"RIFF\0\0\0\0WAVE")
        arguments = _command_line(data)
        interrupted = data.draw(
            st.sampled_from([*[None] * 12, KeyboardInterrupt(), Interrupted("1 of 2")]), "interrupt"
        )
        with limits(), _elsewhere(here), _without_waiting(interrupted), _watched(tmp) as changed:
            called = call(arguments)
        assert not changed, f"{arguments}: changed {changed}"
        return called.outcome(interrupted is not None)
    finally:
        shutil.rmtree(tmp / "home", ignore_errors=True)


class Called:
    """What a call of the command line came to."""

    def __init__(self, arguments: list[str]) -> None:
        self.arguments = arguments
        self.code, self.out, self.errors = 0, "", ""
        self.caught: BaseException | None = None

    def outcome(self, interrupted: bool) -> str:
        """Return "accepted" or "clear error", or raise AssertionError."""
        described = f"{self.arguments}: exit code {self.code}, {self.errors[-1000:]!r}"
        assert "Traceback" not in self.out + self.errors, described
        if self.code == 0:
            return "accepted"
        assert self.code in ((1, 2, EXIT_CODE) if interrupted else (1, 2)), described
        assert MESSAGE.match(self.errors.lstrip()), described  # a bar may end before it
        if self.caught is not None and self.code == 1:
            require_clear(self.caught)
        return "clear error"


def call(arguments: list[str]) -> Called:
    """Call the command line as its entry point does."""
    called = Called(arguments)
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", errors=errors) for errors in ("strict", "backslashreplace")]

    def leave(code: int, message: str) -> None:
        called.caught = sys.exception()
        original(code, message)

    original = common.leave
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(common, "leave", leave))
        stack.enter_context(mock.patch.object(sys, "argv", ["delayssm", *arguments]))
        stack.enter_context(redirect_stdout(streams[0]))
        stack.enter_context(redirect_stderr(streams[1]))
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        try:
            cli.main()
        except SystemExit as leaving:
            called.code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        except BaseException as error:
            raise AssertionError(f"{arguments}: {type(error).__name__}: {error}") from error
    assert not caught, f"{arguments}: {[str(warning.message) for warning in caught]}"
    for stream in streams:
        stream.flush()
    called.out, called.errors = (stream.buffer.getvalue().decode() for stream in streams)  # type: ignore[attr-defined]
    return called


# Arguments


@cache
def options(command: str) -> dict[str, str]:
    """Return the options in the help of a command, with what it says about their values."""
    numbers = random.getstate()  # which importing some packages changes, and hypothesis watches
    called = call([*command.split(), "--help"])
    random.setstate(numbers)
    found = dict(re.findall(r"(?:│ |, )(--[a-z][a-z-]*)((?: [^\s│]+)*)", called.out))
    if command.startswith("train "):
        found |= options("train")
    return {name: found[name] for name in sorted(found.keys() - {"--help"})}


def _command_line(data: st.DataObject) -> list[str]:
    """Draw the arguments of one call."""
    draw = data.draw
    command = draw(st.sampled_from([*COMMANDS, *["train"] * 6, *["sweep"] * 2]))
    words = command.split()
    known = command
    if command == "train":
        task, model = draw(st.sampled_from(ALL_TASKS)), draw(st.sampled_from(MODELS))
        if task in ALL_TASKS[6:] and draw(st.booleans()):  # which have no data here
            task = "copy-fixed"
        words += [task, model]
        known = f"train {task} {model if task in ALL_TASKS[:6] and model != 'ds4d-narrow' else 'ds4d'}"
    elif command == "reproduce" and draw(st.booleans()):
        words.append(draw(st.sampled_from([study.name for study in studies()])))
    elif command in ("resume", "eval", "report", "listen", "export", "write"):
        words.append(draw(st.sampled_from(PATHS)))
    elif command in ("data check", "data prepare", "data generate"):
        words.append(draw(st.sampled_from(["mnist", "imdb", "listops", "bidmc", "pathfinder32-9", "aan"])))
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2, 3]))):
        words += _settings(data, known)
    if draw(st.integers(0, 9)) == 0 and words:  # something is missing, or twice
        at = draw(st.integers(0, len(words) - 1))
        words[at : at + 1] = draw(st.sampled_from([[], [words[at]] * 2, [words[at][:-1]]]))
    return words


def _settings(data: st.DataObject, command: str) -> list[str]:
    """Draw an option and its values, mostly some that it may have."""
    draw = data.draw
    source = options(command if draw(st.integers(0, 19)) else draw(st.sampled_from(COMMANDS)))
    option = draw(st.sampled_from([*list(source) * 5, "--out", "--unknown", "-x", "--"]))
    described = source.get(option, "")
    if draw(st.integers(0, 29)) == 0:
        option = option[:-1]
    if draw(st.integers(0, 7)) == 0:
        chosen = draw(st.lists(st.one_of(*VALUES.values(), TEXT), max_size=3))
    else:
        chosen = [draw(_value(word)) for word in described.split()[:3]]
    return [f"{option}={chosen[0]}"] if chosen and draw(st.integers(0, 9)) == 0 else [option, *chosen]


def _value(described: str) -> st.SearchStrategy[str]:
    """Return values for what the help calls INT, FLOAT, STR, PATH or by the words that there are."""
    fitting = [values for name, values in VALUES.items() if name in described]
    words = re.findall(r"[a-zA-Z0-9-]+", "".join(re.findall(r"{[^}]*", described)))
    return st.one_of(*fitting, *([st.sampled_from(words)] if words else []), *([] if fitting or words else [TEXT]))


# What is replaced


@contextmanager
def _without_waiting(interrupt: BaseException | None) -> Iterator[None]:
    """Replace everything that takes long by something that returns at once, or is interrupted."""

    def returning(value: Any) -> Callable[..., Any]:
        def replacement(*args: Any, **kwargs: Any) -> Any:
            if interrupt is not None:
                raise interrupt
            return value

        return replacement

    summary = {"accuracy": 0.5, "rmse": 0.5, "best_step": 1, "seconds": 1.0}
    replaced = {
        "delayssm_lab.training.trainer.train": returning(summary),
        "delayssm_lab.training.sweep.Worker": lambda directory, *args: _Worker(directory, returning(summary)),
        "delayssm_lab.training.evaluate.accuracy_by_lag": returning({}),
        "delayssm_lab.training.evaluate.measure": returning(0.5),
        "delayssm_lab.recipes.sizes.rows": lambda scale, unavailable: [["x"] * 7],
        "delayssm_lab.recipes.sizes.benchmark_rows": lambda scale: [["x"] * 7],
        "delayssm_lab.report.page._pictures": lambda results: [],
        "delayssm_lab.cli.data.prepare.fetch": returning(None),
        **{
            f"delayssm_lab.data.generate.write.generate_{name}": returning(Path())
            for name in ("listops", "documents", "pathfinder")
        },
        "delayssm_lab.environment.revision": lambda: "none",
        "delayssm_lab.training.memory.total_memory": lambda: AVAILABLE,
        "os.fsync": lambda file: None,
    }
    with ExitStack() as stack:
        for name, replacement in replaced.items():
            stack.enter_context(mock.patch(name, replacement))
        for study in {type(study) for study in studies()}:
            stack.enter_context(mock.patch.object(study, "run", returning(None)))
            stack.enter_context(mock.patch.object(study, "files", return_value=[("table.md", b"")]))
        stack.enter_context(mock.patch.dict(sys.modules, {"ray": _ray(returning(summary))}))
        yield


class _Worker:
    """A run that has ended as soon as it begins."""

    def __init__(self, directory: Path, end: Callable[[], Any]) -> None:
        self.directory, self._end, self.display = directory, end, mock.Mock()
        self._reader, writer = os.pipe()
        os.close(writer)

    def fileno(self) -> int:
        return self._reader

    def read(self) -> bool:
        return False

    def ask_to_stop(self) -> None:
        pass

    def outcome(self) -> Outcome:
        os.close(self._reader)
        return Outcome(self.directory, self._end())


def _ray(end: Callable[[], Any]) -> SimpleNamespace:
    """Return what sweeps use of Ray, with runs that have ended as soon as they begin."""
    return SimpleNamespace(
        is_initialized=lambda: True,
        remote=lambda **resources: lambda function: SimpleNamespace(remote=lambda directory, threads: directory),
        wait=lambda pending, num_returns: (pending[:1], pending[1:]),
        get=lambda directory: Outcome(directory, end()),
        exceptions=SimpleNamespace(RayError=KeyError),
    )


@contextmanager
def _elsewhere(directory: Path) -> Iterator[None]:
    """Work in a directory, and keep what the command line changes of this process."""
    before, handler = Path.cwd(), signal.getsignal(signal.SIGINT)
    os.chdir(directory)
    try:
        with mock.patch.dict(os.environ, {"DELAYSSM_DATA": str(directory / "data"), "COLUMNS": "160"}):
            yield
    finally:
        os.chdir(before)
        signal.signal(signal.SIGINT, handler)


_watching: list[tuple[Path, list[str]]] = []
_WRITES = {"os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.truncate", "os.symlink", "os.link", "shutil.rmtree"}


@cache
def _install_hook() -> None:
    sys.addaudithook(_audit)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    """Note which files are opened for writing, moved or removed outside of the place where that is allowed."""
    if not _watching or not (event == "open" or event in _WRITES):
        return
    opened = event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    allowed, found = _watching[-1]
    if (opened or event in _WRITES) and isinstance(args[0], str | os.PathLike):
        path = os.path.abspath(os.fspath(args[0]))
        exempt = "/__pycache__" in path or path == "/proc" or path.startswith(("/dev/null", "/proc/"))
        if not path.startswith(str(allowed)) and not exempt:
            found.append(path)


@contextmanager
def _watched(allowed: Path) -> Iterator[list[str]]:
    """Yield a list of the files that are changed outside of one directory."""
    _install_hook()
    _watching.append((allowed.resolve(), []))
    try:
        yield _watching[-1][1]
    finally:
        _watching.pop()
