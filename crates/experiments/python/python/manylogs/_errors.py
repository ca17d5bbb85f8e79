"""What can go wrong."""

from __future__ import annotations


class Error(Exception):
    """What was asked for cannot be done.

    ``exit_code`` is what the program ``manylogs`` ends with for the same reason: 2 for bad input,
    6 for a file that may not be read, 7 for one of a newer version, 1 for anything else.

    >>> import manylogs
    >>> try:
    ...     manylogs.read_trace("no-such.trace")
    ... except manylogs.Error as error:
    ...     print(error.file, error.line, error.exit_code)
    no-such.trace None 2
    """

    exit_code: int
    #: The file that is to blame, if one is.
    file: str | None
    #: The line of it, counted from one, where it has lines.
    line: int | None

    def __init__(
        self,
        message: str,
        *,
        exit_code: int = 1,
        file: str | None = None,
        line: int | None = None,
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.file = file
        self.line = line

    def __reduce__(self) -> tuple[object, ...]:
        state = {"exit_code": self.exit_code, "file": self.file, "line": self.line}
        return type(self), self.args, state


class Panic(Error):
    """A defect of manylogs: it stopped where it cannot be right to go on."""
