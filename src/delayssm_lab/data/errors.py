"""Errors of data sets."""

_LONGEST = 2_000


class DataError(ValueError):
    """Data that is missing, incomplete or damaged. The message names the file and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


def printable(text: str) -> str:
    """Return a text that quotes what is in files as one printable line of bounded length."""
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
