"""Detectors on what was observed before."""

from __future__ import annotations

from gemfi.detectors import Detector, Observed


def fit_observed(detector: Detector, train: Observed, validation: Observed) -> None:
    """As `Detector.fit`, of one batch each."""
    detector.notes = []
    detector._begin()
    detector._from_train(train)
    detector._from_validation(validation)
    detector._end()
    detector.fitted = True
