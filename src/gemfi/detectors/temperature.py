"""Maximum probability after temperature scaling."""

from __future__ import annotations

import math
from typing import ClassVar

from torch import Tensor

from gemfi import calibration, scores
from gemfi.detectors.base import Detector, DetectorInfo, Observed


class TemperatureScaling(Detector):
    """1 − max_c p̂_c at the temperature of the smallest NLL on ID validation data."""

    info: ClassVar[DetectorInfo] = DetectorInfo(
        name="temperature",
        summary="1 − the largest probability at the temperature of the best validation NLL",
        paper="On Calibration of Modern Neural Networks",
        venue="ICML",
        year=2017,
        needs="logits",
    )
    log_temperature: Tensor

    def _fit(self, train: Observed, validation: Observed) -> None:
        labels = validation.required_split.labels
        self.log_temperature = calibration.fit_temperature(validation.belief.log_probs(), labels)
        value = math.exp(float(self.log_temperature))
        note = f"T = {value:.4g}, fitted on {len(labels):,} validation samples"
        if calibration.at_bound(self.log_temperature):
            note += ": a bound, since no T has the smallest NLL"
        self.notes = [note]

    def _score(self, observed: Observed) -> Tensor:
        return scores.max_prob(calibration.calibrated(observed.belief, self.log_temperature))
