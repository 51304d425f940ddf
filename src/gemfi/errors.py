"""The exceptions that a caller may want to tell apart.

Every message says what is wrong, where, and what to change. The command line turns each of them
into one line on standard error and exit code 2.
"""

from __future__ import annotations

import sys

from gemfi._text import printable


class GemfiError(Exception):
    """Base of every error that gemfi raises on purpose; its message is one printable line."""

    def __str__(self) -> str:
        return printable(super().__str__())


class InputError(GemfiError, ValueError):
    """An argument, a tensor or a file that cannot be what was meant."""


class NoAnswerError(InputError):
    """An input to which a model has no finite answer.

    Args:
        message: what is not finite.
        row: the number of the input in its batch.
    """

    def __init__(self, message: str, row: int = 0) -> None:
        super().__init__(message)
        self.row = row


class RoleError(InputError):
    """A data split used for something that its role forbids, such as training on `ood-test`."""


class MissingDataError(InputError):
    """A data set whose files are not here; says where they were sought and how to get them."""


class CheckFailedError(GemfiError):
    """A check that was asked for found something wrong; the command line ends with exit code 1."""


class CheckpointError(GemfiError):
    """A checkpoint that cannot be read, or that belongs to another run."""


class WriteError(GemfiError, OSError):
    """A file for which the disk, or a quota, has no room; has the system's `errno`."""


class NonFiniteLossError(GemfiError, ArithmeticError):
    """The loss became NaN or infinite; names the term, the step and the last good checkpoint."""


class DownloadError(GemfiError):
    """A file that could not be fetched, or that is not what its publisher has published."""


class GemfiWarning(UserWarning):
    """Something that is not wrong, but probably not meant; the command line prints one line."""


def user_level() -> int:
    """The `stacklevel` of a warning that shall name the line of the caller of gemfi."""
    level, frame = 1, sys._getframe(1)
    inside = {"gemfi", "torch", "sklearn"}
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in inside:
        level, frame = level + 1, frame.f_back
    return level
