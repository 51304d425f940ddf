"""Data with roles: splits, their guard, and the tasks that come with the package.

To add a task, write a function that returns a `Task` in a file of its own and enter it in `TASKS`;
to add a data set with files, see `gemfi.data.registry`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from gemfi.data.digits import digits
from gemfi.data.registry import DATA_SETS, OOD_SETS, DataSet, load_split, registered_task
from gemfi.data.splits import (
    USES,
    AnySplit,
    Role,
    Split,
    require_classes,
    require_role,
    require_use,
)
from gemfi.data.streams import Stream
from gemfi.data.task import Task
from gemfi.data.toys import line, line_probability, two_moons
from gemfi.data.wrap import as_split

TASKS: Final[dict[str, Callable[..., Task]]] = {
    "digits": digits,
    "two-moons": two_moons,
    "line": line,
    **{name: partial(registered_task, name) for name in OOD_SETS},
}
"""Name of a task -> the function that builds it; `gemfi_bench` adds its own."""

__all__ = [
    "DATA_SETS",
    "OOD_SETS",
    "TASKS",
    "USES",
    "AnySplit",
    "DataSet",
    "Role",
    "Split",
    "Stream",
    "Task",
    "as_split",
    "digits",
    "line",
    "line_probability",
    "load_split",
    "registered_task",
    "require_classes",
    "require_role",
    "require_use",
    "two_moons",
]
