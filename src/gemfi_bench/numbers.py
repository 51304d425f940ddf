"""The numbers of a run, from the arrays that it keeps: every metric under every convention.

Percent, except the NLL. They are computed once, when the run is evaluated, and are read from its
record after that; as the arrays are kept too, a new metric needs no training.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from gemfi import evaluation, metrics
from gemfi_bench.observation import named

Arrays = Mapping[str, npt.NDArray[Any]]


def classification(arrays: Arrays) -> dict[str, float]:
    """Accuracy, NLL, three Brier scores, ECE and error detection of a labelled set."""
    return metrics.classification_metrics(arrays["log_probs"], arrays["label"])


def detection(inside: Arrays, outside: Arrays) -> dict[str, dict[str, dict[str, float]]]:
    """How well each score and detector tells a set from the ID set: `by_score`, `by_detector`.

    Args:
        inside: of the ID set.
        outside: of an OOD set, or of a corrupted one.
    """
    return {
        f"by_{kind}": evaluation.detection(named(inside, kind), named(outside, kind))
        for kind in ("score", "detector")
    }
