"""Post-hoc detectors: how unfamiliar an input is to a model that is trained already.

detector = KNN()
detector.fit(model, task.train)
detector.score(model, task.test)  # (N,), higher is more out-of-distribution
"""

from __future__ import annotations

from collections.abc import Iterable

from gemfi.detectors.base import (
    Detector,
    DetectorInfo,
    Observed,
    fit_together,
    joint_logits,
    looks,
    observe,
)
from gemfi.detectors.gradients import ODIN, Mahalanobis, MahalanobisConfig, ODINConfig
from gemfi.detectors.single_pass import (
    DDU,
    KNN,
    LTS,
    DDUConfig,
    Energy,
    EnergyConfig,
    KNNConfig,
    LTSConfig,
    MaxP,
    TemperatureScaling,
    knn_distance,
)
from gemfi.errors import InputError

DETECTORS: dict[str, type[Detector]] = {
    detector.info.name: detector
    for detector in (MaxP, Energy, ODIN, Mahalanobis, LTS, TemperatureScaling, DDU, KNN)
}

ALL = "all"
"""In the place of names: every detector that a model has what it needs for."""


def detector_names(names: Iterable[str]) -> list[str]:
    """Names of detectors in the order of `DETECTORS`; `all` stands for each of them."""
    wanted = set(names)
    for name in sorted(wanted - {ALL}):
        if name not in DETECTORS:
            raise InputError(f"unknown detector {name!r}; known: {', '.join(DETECTORS)}, or {ALL}")
    return [name for name in DETECTORS if ALL in wanted or name in wanted]


__all__ = [
    "ALL",
    "DDU",
    "DETECTORS",
    "KNN",
    "LTS",
    "ODIN",
    "DDUConfig",
    "Detector",
    "DetectorInfo",
    "Energy",
    "EnergyConfig",
    "KNNConfig",
    "LTSConfig",
    "Mahalanobis",
    "MahalanobisConfig",
    "MaxP",
    "ODINConfig",
    "Observed",
    "TemperatureScaling",
    "detector_names",
    "fit_together",
    "joint_logits",
    "knn_distance",
    "looks",
    "observe",
]
