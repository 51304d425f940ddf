"""What a run knows of its data: enough to rebuild its model without them and to tell them apart."""

from __future__ import annotations

from dataclasses import dataclass

from gemfi._config import described, differences, to_plain
from gemfi.data import Split, Task
from gemfi.data.columns import Columns
from gemfi.data.normalisation import Normalisation
from gemfi.errors import CheckpointError, InputError
from gemfi.runs.spec import RunSpec
from gemfi.training.run_data import data_digest


@dataclass(frozen=True)
class SplitFacts:
    """A split by name, role, size and checksum."""

    split: str
    role: str
    n: int
    checksum: str

    @classmethod
    def of(cls, split: Split) -> SplitFacts:
        """The facts of a split that is here."""
        return cls(split.name, str(split.role), len(split), data_digest(split))


@dataclass(frozen=True)
class TaskFacts:
    """A task as training sees it; its test and OOD sets are not looked at.

    Attributes:
        num_classes: C.
        class_names: C names.
        sample_shape: of one input.
        sample_dtype: of the inputs, `uint8` or `float32`.
        class_counts: training samples of each class.
        normalisation: that the model applies to its inputs; None for none.
        train: the training split.
        validation: the validation split.
        feature_names: of the numbers, where an input is a row of a table.
        columns: of a table, where they are not the numbers themselves.
    """

    num_classes: int
    class_names: tuple[str, ...]
    sample_shape: tuple[int, ...]
    sample_dtype: str
    class_counts: tuple[int, ...]
    normalisation: Normalisation | None
    train: SplitFacts
    validation: SplitFacts
    feature_names: tuple[str, ...] | None = None
    columns: Columns | None = None

    @classmethod
    def of(cls, task: Task, spec: RunSpec) -> TaskFacts:
        """Read the training and validation data of a task."""
        x, columns = task.train.x, task.columns
        return cls(
            num_classes=task.num_classes,
            class_names=task.class_names,
            sample_shape=tuple(x.shape[1:]),
            sample_dtype=_dtype(task.train),
            class_counts=tuple(task.train.class_counts.tolist()),
            normalisation=task.normalisation if spec.normalise else None,
            train=SplitFacts.of(task.train),
            validation=SplitFacts.of(task.validation),
            feature_names=None if columns is None else columns.outputs,
            columns=None if columns is None or columns.is_plain else columns,
        )

    def check_alike(self, task: Task, split: Split) -> None:
        """Refuse to judge a model by data of another kind than it was trained on."""
        mine = (self.class_names, self.sample_shape, self.sample_dtype)
        theirs = (task.class_names, tuple(split.x.shape[1:]), _dtype(split))
        if mine != theirs:
            raise InputError(
                f"task {task.name!r} is not what this run was trained on: samples {theirs[1]} "
                f"{theirs[2]} of {len(theirs[0])} classes, but the run has {mine[1]} {mine[2]} of "
                f"{len(mine[0])} classes (class names must agree as well)"
            )

    def check_unchanged(self, task: Task, where: str) -> None:
        """Refuse data that changed since training: what was learnt then may be test data now.

        Args:
            task: the data as they are.
            where: the run, for the message.
        """
        there = {"train": to_plain(self.train), "validation": to_plain(self.validation)}
        here = {
            "train": to_plain(SplitFacts.of(task.train)),
            "validation": to_plain(SplitFacts.of(task.validation)),
        }
        changed = differences(there, here)
        if changed:
            raise CheckpointError(
                f"{where}: the data of task {task.name!r} are not those it was trained on "
                f"({described(changed)}), so that samples it has learnt may be test samples now; "
                "put the old data back, or train again with --fresh"
            )


def _dtype(split: Split) -> str:
    return str(split.x.dtype).removeprefix("torch.")
