"""Helpers shared by the commands: dispatch, console, progress bars and exit codes.

Packages of the lab extra are imported inside the functions, so that `main` can report that the extra is missing.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from delayssm_lab.training.interrupt import EXIT_CODE

#: Options whose values are paths.
_PATHS = ("--out", "--work", "--model", "--root")
_program = ["delayssm"]

if TYPE_CHECKING:
    from rich.console import Console


def dispatch(
    prog: str, package: str, commands: Mapping[str, str], description: str | None, arguments: Sequence[str]
) -> None:
    """Run the command that the first argument names.

    A command is a module of `package`. It has either a function `command`, whose signature defines the options, or a
    function `main`, which parses the arguments itself.

    Args:
        prog: Words that lead to these commands, such as "delayssm data".
        package: Package of the commands.
        commands: Summary of each command by name.
        description: Help text of the whole group.
        arguments: Command-line arguments after `prog`.
    """
    import tyro

    name = arguments[0] if arguments else ""
    help_wanted = before_help(arguments) is not None
    if name not in commands:
        summaries = {command: _documented(summary) for command, summary in commands.items()}
        shown = ["--help"] if help_wanted and name.startswith("-") else arguments[:1]
        tyro.extras.subcommand_cli_from_dict(summaries, prog=prog, description=description, args=shown)
        return
    module = import_module(f"{package}.{name}")
    if hasattr(module, "main"):
        module.main(arguments[1:])
    else:
        # Without the other arguments, because tyro omits positional ones from the help once they are given.
        tyro.cli(module.command, prog=f"{prog} {name}", args=["--help"] if help_wanted else arguments[1:])


def before_help(arguments: Sequence[str]) -> Sequence[str] | None:
    """Return the arguments before the first -h or --help, or None if there is neither."""
    return next((arguments[:i] for i, argument in enumerate(arguments) if argument in ("-h", "--help")), None)


def program() -> str:
    """Return what a user types to run this command line: `delayssm`, or the script that has tasks of its own."""
    return _program[-1]


def is_run_by(script: str) -> None:
    """Have `program` return a call of a script."""
    _program.append(f"python {shlex.quote(script)}")


def task_choice() -> Any:
    """Return the type of an argument that names a task."""
    from delayssm_lab.recipes.delayed import task_names

    return Literal[task_names()]


def console() -> Console:
    """Return a console for tables, 120 columns wide unless it is a terminal."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # for `main`; rich would exit with the code of a failure

    return Piped(width=None if sys.stdout.isatty() else 120)


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on standard error, and yield the function that moves it to (done, total)."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def is_first_process() -> bool:
    """Return whether this is the first of the processes that `torchrun` started, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def leave(code: int, message: str) -> NoReturn:
    """Exit with a code and a message on standard error.

    All processes that `torchrun` started are interrupted together, so only the first one says so.
    """
    if is_first_process():
        print(message, file=sys.stderr, flush=True)
    elif code != EXIT_CODE:
        print(f"process {os.environ['RANK']}: {message}", file=sys.stderr, flush=True)
    sys.exit(code)


def lose_output() -> NoReturn:
    """Exit quietly when the program that reads the output, such as `head`, has ended."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still in its buffer
    sys.exit(128 + signal.SIGPIPE)


def check_at_least(smallest: int, **options: float | None) -> None:
    """Exit with the code of wrong usage if an option is given that is smaller than it may be."""
    for name, value in options.items():
        if value is not None and value < smallest:
            leave(2, f"delayssm: --{name.replace('_', '-')} must be at least {smallest}, not {value}")


def check_between(smallest: int, largest: int, **options: int) -> None:
    """Exit with the code of wrong usage if an option is outside of its range, whose ends belong to it."""
    for name, value in options.items():
        if not smallest <= value <= largest:
            leave(2, f"delayssm: --{name.replace('_', '-')} must be between {smallest} and {largest:,}, not {value}")


def check_paths(arguments: Sequence[str]) -> None:
    """Exit with the code of wrong usage if a path is empty, which would silently mean the working directory."""
    for before, argument in pairwise(["", *arguments]):
        if argument in (f"{option}=" for option in _PATHS) or (argument == "" and before in _PATHS):
            leave(2, f"delayssm: {argument.removesuffix('=') or before} needs a path, not an empty text")
        if argument == "" and not before.startswith("-"):
            leave(2, "delayssm: one of the arguments is empty; leave it out, or name a path")


def quoted(path: Path) -> str:
    """Return a path as a shell reads it."""
    return shlex.quote(str(path))


def _documented(summary: str) -> Callable[[], None]:
    """Return a function with a docstring, as tyro needs it to list a command."""

    def command() -> None:
        pass

    command.__doc__ = summary
    return command
