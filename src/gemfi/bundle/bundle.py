"""Bundle: a trained model with its policy and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from gemfi.belief import Belief
from gemfi.bundle.describe import describe
from gemfi.bundle.description import Description
from gemfi.data.columns import Columns, frame_cells, warn_of_missing
from gemfi.decisions import Decisions, Goal, Policy, Readings
from gemfi.errors import InputError
from gemfi.model import Inputs, Model

Kind = Literal["image", "row", "text", "array"]

DOUBT: Final = "max_prob"
"""The score of doubt of a policy that is fitted here."""


@dataclass(frozen=True, repr=False)
class Bundle:
    """A trained model with all that it takes to use it elsewhere.

    Attributes:
        name: of the file, without its ending.
        model: in evaluation mode.
        info: what it is.
        policy: that decides; None if it was saved without one.
        calibration: what was observed of the calibration data; with it a policy for another goal
            can be had without them.
        references: score -> its quantiles (201,) on calibration data, from the least to the
            greatest.
        run: folder of the run that it was opened from; None for a file, which cannot make gemfi
            read data at a path of its choice.
    """

    name: str
    model: Model
    info: Description
    policy: Policy | None = None
    calibration: Readings | None = None
    references: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    run: Path | None = None

    def __repr__(self) -> str:
        return describe(self)

    @property
    def kind(self) -> Kind:
        """What an input is: `image` is (C, H, W) with one channel or three, `row` is (D,)."""
        if self.model.tokens is not None:
            return "text"
        shape = self.info.sample_shape
        if shape is not None and len(shape) == 3 and shape[0] in {1, 3}:
            return "image"
        return "row" if shape is not None and len(shape) == 1 else "array"

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of an input, or an error that says that it has none."""
        if self.info.sample_shape is None:
            reason = (
                "takes texts as token ids, of any length"
                if self.model.tokens is not None
                else "was saved before it was trained, and does not say of which shape inputs are"
            )
            raise InputError(f"{self.name} {reason}: ask it in Python, with predict")
        return self.info.sample_shape

    @property
    def columns(self) -> Columns | None:
        """Of a table, whose cells become the numbers that the model takes."""
        if self.info.columns is not None or self.info.feature_names is None:
            return self.info.columns
        return Columns.of_numbers(self.info.feature_names)

    def predict(self, x: Inputs | Any, batch_size: int = 512) -> Belief:
        """The belief on inputs.

        Args:
            x: (N, ...) as `Model.predict` takes them; or a data frame, of a model of a table.
            batch_size: how many at a time.
        """
        if hasattr(x, "iloc"):
            x = self._numbers(x)
        return self.model.predict(x, batch_size)

    def _numbers(self, frame: Any) -> npt.NDArray[np.float64]:
        """The rows of a data frame as the model takes them."""
        if self.columns is None:
            raise InputError(f"{self.name} knows no names of columns: give the numbers alone")
        table, filled = self.columns.filled(frame_cells(frame))
        warn_of_missing(filled)
        return self.columns.encode_all(table, lambda row: f"row {row}")

    def decide(self, x: Inputs | Any, goal: Goal | str | None = None) -> Decisions:
        """Accept, abstain or unfamiliar for each input.

        Args:
            x: as for `predict`.
            goal: in place of that of the bundle's policy, as for `policy_for`.
        """
        policy = self.policy if goal is None else self.policy_for(goal)
        if policy is None:
            raise InputError(
                f"{self.name} has no policy: give a goal, such as false_alarm=0.05, or save it "
                "with one"
            )
        return policy(self.predict(x))

    def policy_for(self, goal: Goal | str | None = None, **goals: Any) -> Policy:
        """A policy for another goal, from the calibration data that the bundle remembers.

        Args:
            goal: a `Goal`, or a text as `Goal.parse` reads it.
            goals: or its fields, such as `false_alarm=0.01`.
        """
        if self.calibration is None:
            raise InputError(
                f"{self.name} was saved without calibration data, and a policy needs them: save "
                "it again with calibration="
            )
        return fitted_policy(
            self.calibration, Goal.of(goal, goals), self.score, self.info.class_names
        )

    @property
    def score(self) -> str:
        """The score of unfamiliarity that `calibration` holds."""
        if self.policy is not None:
            return self.policy.score
        return self.model.head.named_scores["epistemic"]


def fitted_policy(
    calibration: Readings, goal: Goal, score: str, class_names: tuple[str, ...]
) -> Policy:
    """A policy from what was observed of calibration data."""
    if goal.needs_ood:
        raise InputError(
            "youden and costs need OOD-validation data, which a bundle does not hold: fit the "
            "policy with Policy.fit, and save it with policy="
        )
    policy = Policy.from_readings(calibration, goal, names=class_names)
    return replace(policy, score=score, doubt=DOUBT, class_names=class_names)
