"""What tables, figures and claims say: `words.toml` of their room, apart from what they compute."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any


def read_words(room: str) -> dict[str, Any]:
    """The `words.toml` of a room."""
    path = resources.files("gemfi_bench").joinpath(room, "words.toml")
    return tomllib.loads(path.read_text("utf-8"))


def one_line(text: str, **values: object) -> str:
    """A text of several lines as one, its braces filled in."""
    return " ".join(text.format(**values).split())
