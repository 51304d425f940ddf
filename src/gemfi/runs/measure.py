"""The numbers of a model on an ID split and its OOD sets, as `metrics.json` holds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gemfi import metrics, scores
from gemfi.data import Split
from gemfi.evaluation import evaluate
from gemfi.model import Model
from gemfi.runs.facts import SplitFacts
from gemfi.runs.plain import to_plain


def measure(
    model: Model, inside: Split, outside: Mapping[str, Split], absent: Iterable[str]
) -> dict[str, Any]:
    """One section: `id`, `scores` (which ones the method names), `ood` and `absent`.

    Each OOD set has the metrics of the method's `aleatoric` and `epistemic` score and, in
    `by_score`, those of every score that its belief allows and that is not the same for all inputs
    (disagreement of one component is). Percent, except the NLL.

    Args:
        model: trained.
        inside: role test or validation.
        outside: name -> set of role ood-test or ood-validation.
        absent: names of OOD sets that are known and not here.
    """
    found = evaluate(model, inside, outside)
    every = {name: scores.SCORES[name] for name in scores.available(found.belief)}
    base = {name: score(found.belief) for name, score in every.items()}
    every = {
        name: every[name] for name, values in base.items() if bool((values != values[0]).any())
    }
    sets = {}
    for key, split in outside.items():
        belief = found.ood_beliefs[key]
        sets[key] = {
            **to_plain(SplitFacts.of(split)),
            **found.ood[key],
            "by_score": {
                name: metrics.ood_metrics(base[name], score(belief))
                for name, score in every.items()
            },
        }
    return {
        "id": {**to_plain(SplitFacts.of(inside)), **found.classification},
        "scores": model.head.named_scores,
        "ood": sets,
        "absent": sorted(absent),
    }
