"""Arguments that several commands have."""

from __future__ import annotations

from typing import Annotated

import tyro

Model = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
Goal = Annotated[str | None, tyro.conf.arg(metavar="GOAL", help_behavior_hint="")]
File = Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]
Backbone = Annotated[str | None, tyro.conf.arg(metavar="MODULE:NAME", help_behavior_hint="")]
