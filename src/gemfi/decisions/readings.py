"""What a policy reads of a belief."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from gemfi.belief import Belief
from gemfi.data import Split
from gemfi.decisions.conformal import checked_scores
from gemfi.errors import InputError
from gemfi.scores import score_of

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Readings:
    """What a policy reads of beliefs on N inputs.

    Attributes:
        score: (N,) how unfamiliar each input is; only the order counts.
        doubt: (N,) how uncertain its label is; likewise.
        label: (N,) predicted classes.
        confidence: (N,) their probabilities.
        wrong: (N,) whether the label is wrong, where it is known.
    """

    score: Floats
    doubt: Floats
    label: npt.NDArray[np.int64]
    confidence: Floats
    wrong: Bools | None = None

    def __post_init__(self) -> None:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        lengths = {name: len(value) for name, value in values.items() if value is not None}
        if len(set(lengths.values())) > 1:
            raise InputError(f"readings need arrays of one length, got {lengths}")
        checked_scores(self.score, "scores")
        checked_scores(self.doubt, "doubts")

    def __len__(self) -> int:
        return len(self.score)

    def __getitem__(self, rows: npt.NDArray[Any]) -> Readings:
        return Readings(
            self.score[rows],
            self.doubt[rows],
            self.label[rows],
            self.confidence[rows],
            None if self.wrong is None else self.wrong[rows],
        )


def read_belief(belief: Belief, score: str, doubt: str, labelled: Split | None = None) -> Readings:
    """The two scores, the labels and their probabilities; with labelled data, which are wrong.

    Args:
        belief: as `model.predict` returns it.
        score: name of the score of unfamiliarity: in `SCORES`, or of a detector in `extra`.
        doubt: name of the score of doubt, likewise.
        labelled: the inputs with their classes.
    """
    log_probs = belief.log_probs()
    top = log_probs.max(dim=1)
    label = top.indices.numpy(force=True)
    wrong = None if labelled is None else label != labelled.labels.numpy(force=True)
    confidence = top.values.exp().numpy(force=True).astype(np.float64)
    values = [
        score_of(belief, name).numpy(force=True).astype(np.float64) for name in (score, doubt)
    ]
    return Readings(values[0], values[1], label, confidence, wrong)


def known_errors(observed: Readings) -> Bools:
    """Which labels are wrong, of labelled data."""
    if observed.wrong is None:
        raise InputError("this needs to know which labels are wrong: give the labelled split")
    return observed.wrong
