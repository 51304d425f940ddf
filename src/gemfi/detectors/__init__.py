"""Post-hoc detectors: how unfamiliar an input is to a model that is trained already.

train, validation = observe(model, task.train), observe(model, task.validation)
detector = KNN()
detector.fit(train, validation)
detector.score(observe(model, task.test))  # (N,), higher is more out-of-distribution
"""

from __future__ import annotations

from collections.abc import Iterable

from gemfi.detectors.base import Detector, DetectorInfo, Observed, joint_logits, observe
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
    "joint_logits",
    "knn_distance",
    "observe",
]
