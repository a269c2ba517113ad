"""What a person can cause and mend: errors with a hint and an exit code."""

from __future__ import annotations


class TracekitError(Exception):
    """Something that the user can change; the message says what, where, what it should be."""

    exit_code = 3

    def __init__(self, message: str, *, hint: str = "") -> None:
        """Keep the one-line message and the hint: a command to run or a thing to change."""
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(f"Hint: {hint}")  # what a traceback shows to a caller in Python

    def __reduce__(self) -> tuple[object, ...]:
        """Survive the way back from a worker process: exceptions pickle their arguments only."""
        return (_rebuilt, (type(self), self.message, self.hint))


class UsageError(TracekitError):
    """The command was called in a way that cannot work."""

    exit_code = 2


class InputError(TracekitError):
    """The files given cannot be read as what they claim to be."""


class SchemaError(TracekitError):
    """A table has other columns than its schema declares."""


def _rebuilt(kind: type[TracekitError], message: str, hint: str) -> TracekitError:
    return kind(message, hint=hint)
