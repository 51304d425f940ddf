"""How the paper's numbers were really computed, and problems that were found by reading.

`known.toml` says it. A number is called `label:row:column` here, and `*` in a pattern stands for
anything.
"""

from __future__ import annotations

import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

_KNOWN: Final = {
    name: [(" ".join(phrase.split()), patterns) for phrase, patterns in pairs]
    for name, pairs in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items()
}
CONVENTIONS: Final = _KNOWN["conventions"]
"""What numbers were really computed under, and which; the first that matches counts."""

PROBLEMS: Final = dict(_KNOWN["problems"])
"""Problem -> the numbers that have it; each is suspicious."""


def is_one_of(key: str, patterns: str) -> bool:
    """Whether a number, `label:row:column`, is one of those that patterns name."""
    return any(fnmatchcase(key, pattern) for pattern in patterns.split())


def convention(key: str) -> str:
    """What a number was really computed under; "" where that is not known."""
    return next((phrase for phrase, patterns in CONVENTIONS if is_one_of(key, patterns)), "")
