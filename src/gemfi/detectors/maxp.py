"""Maximum probability: what a classifier is unsure of may be no class at all."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from gemfi import scores
from gemfi.detectors.base import Detector, DetectorInfo, Observed


class MaxP(Detector):
    """1 − max_c p̂_c."""

    info: ClassVar[DetectorInfo] = DetectorInfo(
        name="maxp",
        summary="1 − the largest probability",
        paper="A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural "
        "Networks",
        venue="ICLR",
        year=2017,
        needs="logits",
    )

    def _score(self, observed: Observed) -> Tensor:
        return scores.max_prob(observed.belief)
