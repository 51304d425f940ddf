"""Evaluation: one model on a test split and its OOD sets, by the scores its method names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gemfi import metrics
from gemfi.belief import Belief
from gemfi.data import Role, Split, require_role
from gemfi.errors import InputError
from gemfi.model import Model
from gemfi.scores import SCORES


@dataclass(frozen=True)
class Evaluation:
    """Numbers of one model, with the beliefs that they come from.

    Attributes:
        method: name of the method.
        classification: accuracy, NLL, Brier, ECE and error detection on the ID split.
        ood: for each OOD set, the metrics of the `aleatoric` and of the `epistemic` score.
        belief: on the ID split.
        ood_beliefs: on each OOD set.
        labels: of the ID split.
    """

    method: str
    classification: dict[str, float]
    ood: dict[str, dict[str, dict[str, float]]]
    belief: Belief
    ood_beliefs: dict[str, Belief]
    labels: Tensor

    def row(self, ood: str) -> dict[str, Any]:
        """One flat record for one OOD set, as tables and JSON files hold it."""
        if ood not in self.ood:
            raise InputError(f"no OOD set {ood!r} was evaluated; there are: {', '.join(self.ood)}")
        aleatoric, epistemic = self.ood[ood]["aleatoric"], self.ood[ood]["epistemic"]
        return {
            "method": self.method,
            "ood": ood,
            **self.classification,
            **{f"{name}_aleatoric": value for name, value in aleatoric.items()},
            **{f"{name}_epistemic": value for name, value in epistemic.items()},
        }


def evaluate(model: Model, test: Split, ood: Mapping[str, Split] | None = None) -> Evaluation:
    """Accuracy and calibration on `test`, and OOD detection against each set of `ood`.

    Args:
        model: a trained model.
        test: an ID split of role test (or validation).
        ood: named sets of role ood-test or ood-validation, such as `{"svhn": split}`.
    """
    ood = {} if ood is None else ood
    if not isinstance(ood, Mapping):
        raise InputError(f"ood must map names to splits, got {type(ood).__name__}")
    require_role(test, (Role.TEST, Role.VALIDATION), "evaluation as ID data")
    for split in ood.values():
        require_role(split, (Role.OOD_TEST, Role.OOD_VALIDATION), "evaluation as OOD data")
    used = {kind: SCORES[name] for kind, name in model.head.named_scores.items()}
    belief = model.predict(test.x)
    inside = {kind: score(belief) for kind, score in used.items()}
    beliefs = {name: model.predict(split) for name, split in ood.items()}
    return Evaluation(
        method=model.head.info.name,
        classification=metrics.classification_metrics(belief.log_probs(), test.labels),
        ood={
            name: {
                kind: metrics.ood_metrics(inside[kind], score(outside))
                for kind, score in used.items()
            }
            for name, outside in beliefs.items()
        },
        belief=belief,
        ood_beliefs=beliefs,
        labels=test.labels,
    )
