"""Corrupted copies of a task's test images: published where they are here, else made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from torch import Tensor

from gemfi.bench.protocol import Shift
from gemfi.data import Split, Task, load
from gemfi.data.registry.corrupted import MADE_SEED
from gemfi.data.registry.load import data_set, find_form
from gemfi.errors import InputError
from gemfi.places import data_root


def shifted_sets(task: Task, shift: Shift) -> Iterator[tuple[str, Split]]:
    """Name, such as `fog-3`, and corrupted copy of the first test images, one after the other.

    Args:
        task: whose test images.
        shift: which corruptions.
    """
    if not shift.corruptions:
        return
    if task.name not in _MAKERS:
        raise InputError(
            f"shift: there are corruptions for {', '.join(_MAKERS)}, not for the task "
            f"{task.name!r}; leave shift.corruptions empty"
        )
    for name in shift.corruptions:
        for severity in shift.severities or (None,):
            label = name if severity is None else f"{name}-{severity}"
            yield label, _MAKERS[task.name](task, name, severity, shift.images)


def _first(split: Split, count: int) -> Split:
    return split.subset(range(min(count, len(split))))


def _registered(task: Task, name: str, severity: int | None, images: int) -> Split:
    """A published set where it is here; else its first images made from the test images."""
    label = name if severity is None else f"{name}-{severity}"
    entry = data_set(f"{task.name}-c")
    if label not in entry.parts:
        raise InputError(f"shift: {entry.title} has no {label!r}; it has: {', '.join(entry.parts)}")
    form = find_form(entry, label, data_root())
    if form is not None and not form.made:
        return _first(load(entry.name, label), images)
    from gemfi.data.corruptions import corrupt  # noqa: PLC0415 - needs scipy, an extra

    clean = _first(task.test, images)
    made = corrupt(clean.x, name, severity, seed=MADE_SEED, family=task.name)
    return replace(clean, x=made, name=f"{entry.name}/{label}, generated")


def _small(task: Task, name: str, severity: int | None, images: int) -> Split:
    from gemfi.data.corruptions import corrupt_small  # noqa: PLC0415 - needs scipy, an extra

    clean = _first(task.test, images)
    if severity is None:
        raise InputError("shift: corruptions of small images need severities, such as [1, 3, 5]")
    made: Tensor = corrupt_small(clean.x, name, severity, seed=MADE_SEED)
    return replace(clean, x=made, name=f"{task.name}/{name}-{severity}, generated")


_MAKERS: Final[Mapping[str, Callable[[Task, str, int | None, int], Split]]] = {
    "digits": _small,
    "mnist": _registered,
    "cifar10": _registered,
}
"""Task -> how its test images are corrupted."""
