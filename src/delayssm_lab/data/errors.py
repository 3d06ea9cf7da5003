"""Errors of data sets."""


class DataError(ValueError):
    """Data that is missing, incomplete or damaged. The message names the file and what to do."""
