"""Corrupted copies of a task's test images: published where they are here, else made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gemfi._files import data_root
from gemfi.data import Split, Task, load_split
from gemfi.data.registry.load import data_set, find_form
from gemfi.errors import InputError
from gemfi_bench.corruptions import ANY_SIZE, MADE_SEED, SEVERITIES, corrupt, corrupt_small
from gemfi_bench.protocol import Shift

SMALL = "digits"
"""The task whose images are too small for published corruptions."""

TASKS = (SMALL, "mnist", "cifar10")


def shifted_sets(task: Task, shift: Shift) -> Iterator[tuple[str, Split]]:
    """Name, such as `fog-3`, and corrupted copy of the first test images, one after the other."""
    check_shift(task, shift)
    for name, severity in _corruptions(shift):
        make = _small if task.name == SMALL else _registered
        yield _label(name, severity), make(task, name, severity, shift.images)


def check_shift(task: Task, shift: Shift) -> None:
    """Refuse corruptions that cannot be made of a task's test images, without reading them."""
    if shift.corruptions and task.name not in TASKS:
        raise InputError(
            f"shift: there are corruptions for {', '.join(TASKS)}, not for the task "
            f"{task.name!r}; leave shift.corruptions empty"
        )
    for name, severity in _corruptions(shift):
        check = _check_small if task.name == SMALL else _check_registered
        check(task, name, severity)


def _corruptions(shift: Shift) -> Iterator[tuple[str, int | None]]:
    for name in shift.corruptions:
        for severity in shift.severities or (None,):
            yield name, severity


def _label(name: str, severity: int | None) -> str:
    return name if severity is None else f"{name}-{severity}"


def _first(split: Split, count: int) -> Split:
    return split.subset(range(min(count, len(split))))


def _registered(task: Task, name: str, severity: int | None, images: int) -> Split:
    """A published set where it is here; else its first images made from the test images."""
    label, entry = _label(name, severity), data_set(f"{task.name}-c")
    form = find_form(entry, label, data_root())
    if form is not None and not form.made:
        return _first(load_split(entry.name, label), images)
    clean = _first(task.test, images)
    made = corrupt(clean.x, name, severity, seed=MADE_SEED, family=task.name)
    return replace(clean, x=made, name=f"{entry.name}/{label}, generated")


def _check_registered(task: Task, name: str, severity: int | None) -> None:
    label, entry = _label(name, severity), data_set(f"{task.name}-c")
    if label not in entry.parts:
        raise InputError(
            f"shift: {entry.title} has no {label!r} (shift.corruptions, with a dash and one of "
            f"shift.severities where there are any); it has: {', '.join(entry.parts)}"
        )


def _small(task: Task, name: str, severity: int | None, images: int) -> Split:
    clean = _first(task.test, images)
    made = corrupt_small(clean.x, name, severity or 0, seed=MADE_SEED)  # None was refused before
    return replace(clean, x=made, name=f"{task.name}/{name}-{severity}, generated")


def _check_small(task: Task, name: str, severity: int | None) -> None:
    if name not in ANY_SIZE:
        raise InputError(
            f"shift.corruptions: {name!r} cannot be made of the small images of {task.name}; "
            f"there are: {', '.join(ANY_SIZE)}"
        )
    if severity not in SEVERITIES:
        known = ", ".join(map(str, SEVERITIES))
        raise InputError(
            f"shift.severities: corruptions of {task.name} need severities among {known}, got "
            f"{severity if severity is not None else 'none'}"
        )
