"""Arguments that several commands have."""

from __future__ import annotations

from typing import Annotated, Any

import tyro


def shown_as(metavar: str, hint: str = "") -> Any:
    """How the help shows an argument, and what it says of the default: nothing."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=hint)


Model = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
Goal = Annotated[str | None, shown_as("GOAL")]
File = Annotated[str | None, shown_as("FILE")]
Folder = Annotated[str | None, shown_as("PATH")]
Backbone = Annotated[str | None, shown_as("MODULE:NAME")]
