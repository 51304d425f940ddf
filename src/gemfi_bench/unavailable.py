"""What a table, a figure or a claim says when the records do not hold what it needs."""

from __future__ import annotations

from gemfi.errors import GemfiError


class Unavailable(GemfiError):  # noqa: N818 - a reason, not a fault
    """Raised by a table, figure or claim that cannot be made from these records.

    The message is the reason, for readers: it is shown in the place of what is missing.
    """
