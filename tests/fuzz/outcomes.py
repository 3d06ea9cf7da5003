"""What may come of a case: it is accepted, or refused by a clear error."""

import linecache
import traceback
from pathlib import Path

import delayssm
import delayssm_lab

ACCEPTED, REFUSED = "accepted", "clear error"
_PACKAGES = tuple(Path(package.__file__ or "").parent for package in (delayssm, delayssm_lab))


def is_clear(error: BaseException, names: str = "") -> bool:
    """Return whether one of our own `raise` statements made an error, and its message has some text in it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    ours = any(Path(last.filename).is_relative_to(package) for package in _PACKAGES)
    raised = linecache.getline(last.filename, last.lineno or 0).strip().startswith("raise")
    kinds = ValueError, TypeError, OSError, RuntimeError
    return isinstance(error, kinds) and ours and raised and len(str(error)) > 10 and names in str(error)


def refused(error: Exception, names: str = "") -> str:
    """Return that a case was refused, or raise the error again if it is not a clear one."""
    if not is_clear(error, names):
        raise AssertionError(f"not a clear error: {type(error).__name__}: {error}") from error
    return REFUSED
