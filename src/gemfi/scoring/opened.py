"""A trained model with what it takes to read inputs for it, from a run folder or a bundle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gemfi.bundle import ENDING, bundle_names, bundled, load_bundle
from gemfi.data import TASKS
from gemfi.decisions import Goal, Policy
from gemfi.errors import InputError
from gemfi.model import Model
from gemfi.runs.facts import TaskFacts
from gemfi.runs.folder import Run
from gemfi.runs.spec import RunSpec, task_of

_CHANNELS: Final = (1, 3)


@dataclass(frozen=True)
class Opened:
    """A trained model, and the kind of inputs that it takes.

    Attributes:
        model: in evaluation mode.
        spec: of the run that trained it.
        facts: of the data that it was trained on.
        name: where it comes from.
    """

    model: Model
    spec: RunSpec
    facts: TaskFacts
    name: str

    @property
    def is_image(self) -> bool:
        """Whether an input is an image, (C, H, W) with one channel or three."""
        shape = self.facts.sample_shape
        return len(shape) == 3 and shape[0] in _CHANNELS

    def policy(self, goal: Goal) -> Policy:
        """A policy for a goal, fitted on the calibration data of the task.

        They must be at hand, and those of the time of training.
        """
        if self.spec.task not in TASKS and not Path(self.spec.task).exists():
            raise InputError(
                f"a policy needs calibration data, and those of {self.name} were at "
                f"{self.spec.task}, which does not exist; put them back, or leave --policy out"
            )
        task = task_of(self.spec)
        self.facts.check_unchanged(task, self.name)
        ood = task.ood_validation if goal.needs_ood else None
        return Policy.fit(self.model, task.calibration, goal, ood_validation=ood)


def open_model(path: Path | str) -> Opened:
    """Open a trained model.

    Args:
        path: the folder of a run, a bundle (`.safetensors`), or the name of a bundle that comes
            with the package, such as `mnist-gem-fi`.
    """
    if str(path) in bundle_names() and not Path(path).exists():
        found = bundled(str(path))
        return Opened(found.model, found.spec, found.facts, str(path))
    path = Path(path)
    if path.suffix == ENDING and not path.is_dir():
        found = load_bundle(path)
        return Opened(found.model, found.spec, found.facts, str(path))
    if not path.exists():
        known = ", ".join(bundle_names())
        raise InputError(
            f"no model {path}: give the folder of a run, as gemfi train prints it, a bundle "
            f"{ENDING}, or one that comes with the package: {known}"
        )
    run = Run.open(path)
    return Opened(run.model, run.spec, run.record.facts, str(path))
