"""Files and directories as they are found, perhaps damaged: every error names the path and its fault."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any


def parse(text: str | bytes, place: str, remedy: str = "") -> Any:
    """Return the value of a JSON text, or raise a ValueError that names the place and the remedy."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # no JSON, no text at all, or nested without end
        raise ValueError(f"{place} is damaged ({error}){remedy and f'; {remedy}'}") from error


def parse_object(text: str | bytes, place: str, remedy: str = "") -> dict[str, Any]:
    """Return the JSON object in a text, or raise a ValueError that names the place and the remedy."""
    content = parse(text, place, remedy)
    if not isinstance(content, dict):
        raise ValueError(f"{place} is damaged (it is no JSON object){remedy and f'; {remedy}'}")
    return content


def is_number(value: Any) -> bool:
    """Return whether a value of JSON is a number that fits into a float; infinity and NaN do."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) < 2**63


def is_count(value: Any) -> bool:
    """Return whether a value of JSON is a whole number of at least 0."""
    return is_number(value) and math.isfinite(value) and value >= 0 and value == int(value)


def check_directory(directory: Path) -> None:
    """Raise if something that is there already keeps a path from becoming a directory. Nothing is made."""
    existing = next((path for path in (directory, *directory.parents) if path.exists()), None)
    if existing is not None and not existing.is_dir():
        raise NotADirectoryError(f"{existing} is not a directory; choose another place than {directory}")
