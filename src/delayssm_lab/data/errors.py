"""Errors of data sets."""

_LONGEST = 2_000


class DataError(ValueError):
    """Data that is missing, incomplete or damaged. The message names the file and what to do.

    Messages quote what is in files. They are therefore one printable line of bounded length, whatever that is.
    """

    def __init__(self, message: str) -> None:
        if len(message) > _LONGEST:
            message = f"{message[: _LONGEST // 2]} ... {message[-_LONGEST // 2 :]}"
        super().__init__("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message))
