"""The exceptions that a caller may want to tell apart.

Every message says what is wrong, where, and what to change. The command line turns each of them
into one line on standard error and exit code 2.
"""

from __future__ import annotations

from gemfi.printable import printable


class GemfiError(Exception):
    """Base of every error that gemfi raises on purpose.

    Its message is one line without control characters, also where it quotes a file.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class InputError(GemfiError, ValueError):
    """An argument, a tensor or a file that cannot be what was meant."""


class RoleError(InputError):
    """A data split used for something that its role forbids, such as training on `ood-test`."""


class MissingDataError(InputError):
    """A data set whose files are not here; says where they were sought and how to get them."""


class CheckFailedError(GemfiError):
    """A check that was asked for found something wrong; the command line ends with exit code 1."""


class CheckpointError(GemfiError):
    """A checkpoint that cannot be read, or that belongs to another run."""


class NonFiniteLossError(GemfiError, ArithmeticError):
    """The loss became NaN or infinite; names the term, the step and the last good checkpoint."""


class DownloadError(GemfiError):
    """A file that could not be fetched, or that is not what its publisher has published."""
