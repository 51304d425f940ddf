"""Data with roles: splits, their guard, and the tasks that come with the package.

To add a task, write a function that returns a `Task` in a file of its own and enter it in `TASKS`.
"""

from __future__ import annotations

from collections.abc import Callable

from gemfi.data.digits import digits
from gemfi.data.guard import USES, require_classes, require_role, require_use
from gemfi.data.splits import Role, Split
from gemfi.data.task import Task
from gemfi.data.toys import line, line_probability, two_moons
from gemfi.data.wrap import as_split

TASKS: dict[str, Callable[..., Task]] = {
    "digits": digits,
    "two-moons": two_moons,
    "line": line,
}
"""Name of a task -> the function that builds it."""

__all__ = [
    "TASKS",
    "USES",
    "Role",
    "Split",
    "Task",
    "as_split",
    "digits",
    "line",
    "line_probability",
    "require_classes",
    "require_role",
    "require_use",
    "two_moons",
]
