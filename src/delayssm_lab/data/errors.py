"""What goes wrong with data."""


class DataError(ValueError):
    """Data that is not there, incomplete or damaged. The message names the file and says what to do."""
