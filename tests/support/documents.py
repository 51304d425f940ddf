"""The code in the project's documents."""

from __future__ import annotations

import re
import textwrap
from typing import Any


def code_blocks(text: str) -> list[str]:
    """The blocks of Python in a Markdown text, in their order."""
    found = re.findall(r"(?ms)^ *```python\n(.*?)^ *```", text)
    return [textwrap.dedent(block) for block in found]


def run_block(block: str, names: dict[str, Any], source: str) -> None:
    """Run a block as a script does.

    Args:
        block: what to run.
        names: its global names, which it may add to.
        source: where it stands, for tracebacks.
    """
    exec(compile(block, source, "exec"), names)  # noqa: S102 - our own text
