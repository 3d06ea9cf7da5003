"""What counts as a clear error: one that our own code has raised on purpose, and that names the file it is about."""

import inspect
import linecache
import traceback
from pathlib import Path

import delayssm
import delayssm_lab

#: Directories of the packages whose errors are written for users.
PACKAGES = tuple(str(Path(inspect.getfile(package)).parent) for package in (delayssm, delayssm_lab))
#: Errors that users meet. An ArithmeticError tells of a loss that is not a number.
CLEAR = (ValueError, TypeError, OSError, RuntimeError, ArithmeticError)
#: What may come of a case.
ACCEPTED, REFUSED = "accepted", "clear error"


def raised_on_purpose(error: BaseException) -> bool:
    """Return whether the innermost frame of the traceback is a `raise` statement in one of our packages."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or frames[-1].lineno is None or not frames[-1].filename.startswith(PACKAGES):
        return False
    line = linecache.getline(frames[-1].filename, frames[-1].lineno).strip()
    return line.startswith("raise ")


def require_clear(error: BaseException, *names: str) -> None:
    """Raise AssertionError unless an error is clear and its message names one of some files.

    Args:
        error: What was raised.
        names: Texts of which the message must contain one. None: any message will do.
    """
    described = f"{type(error).__name__}: {error}"
    own = type(error).__module__.partition(".")[0] in ("delayssm", "delayssm_lab")
    if not raised_on_purpose(error) or not (own or isinstance(error, CLEAR)):
        raise AssertionError(f"not raised on purpose: {described}") from error
    if not str(error).strip() or (names and not any(name in str(error) for name in names)):
        raise AssertionError(f"does not say what is wrong: {described}") from error
