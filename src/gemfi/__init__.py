"""gemfi: single-pass uncertainty for PyTorch classifiers.

>>> from gemfi import TrainConfig, build_model, digits, evaluate, fit
>>> task = digits()
>>> model = build_model("gem-fi", "convnet", task.num_classes, size=8, channels=32)
>>> fit(model, task.train, task.validation, TrainConfig(epochs=20, batch_size=32))
>>> evaluate(model, task.test, task.ood_test).row("digits-8-9")["auroc_epistemic"]
"""

from typing import TYPE_CHECKING, Any

from gemfi import scores
from gemfi._version import __version__
from gemfi.attachment import attach
from gemfi.backbones import Frozen, Tokens
from gemfi.belief import Belief
from gemfi.bundle import Bundle, load, save
from gemfi.calibration import calibrated, fit_temperature
from gemfi.data import (
    DATA_SETS,
    TASKS,
    Role,
    Split,
    Task,
    as_split,
    digits,
    line,
    load_split,
    two_moons,
)
from gemfi.data.augmentation import AUGMENTATIONS, Augmentation
from gemfi.data.normalisation import Normalisation
from gemfi.data.own import task_from_path
from gemfi.decisions import Costs, Decision, Decisions, Goal, Policy, Verdict
from gemfi.detectors import DETECTORS, observe
from gemfi.diagnostics import Finding, Health, diagnose
from gemfi.errors import (
    CheckFailedError,
    CheckpointError,
    DownloadError,
    GemfiError,
    InputError,
    MissingDataError,
    NonFiniteLossError,
    RoleError,
)
from gemfi.evaluation import Evaluation, evaluate
from gemfi.methods import METHODS, PRESETS, EDLConfig, GEMConfig, Head, MethodInfo
from gemfi.model import Model, build_model
from gemfi.monitor import Monitor, MonitorState
from gemfi.outliers import OutlierConfig
from gemfi.scores import SCORES, Uncertainty, uncertainty
from gemfi.spectral import Spectral
from gemfi.training import FitResult, TrainConfig, fit

if TYPE_CHECKING:
    from gemfi.estimator import GEMClassifier

__all__ = [
    "AUGMENTATIONS",
    "DATA_SETS",
    "DETECTORS",
    "METHODS",
    "PRESETS",
    "SCORES",
    "TASKS",
    "Augmentation",
    "Belief",
    "Bundle",
    "CheckFailedError",
    "CheckpointError",
    "Costs",
    "Decision",
    "Decisions",
    "DownloadError",
    "EDLConfig",
    "Evaluation",
    "Finding",
    "FitResult",
    "Frozen",
    "GEMClassifier",
    "GEMConfig",
    "GemfiError",
    "Goal",
    "Head",
    "Health",
    "InputError",
    "MethodInfo",
    "MissingDataError",
    "Model",
    "Monitor",
    "MonitorState",
    "NonFiniteLossError",
    "Normalisation",
    "OutlierConfig",
    "Policy",
    "Role",
    "RoleError",
    "Spectral",
    "Split",
    "Task",
    "Tokens",
    "TrainConfig",
    "Uncertainty",
    "Verdict",
    "__version__",
    "as_split",
    "attach",
    "build_model",
    "calibrated",
    "diagnose",
    "digits",
    "evaluate",
    "fit",
    "fit_temperature",
    "line",
    "load",
    "load_split",
    "observe",
    "save",
    "scores",
    "task_from_path",
    "two_moons",
    "uncertainty",
]


def __getattr__(name: str) -> Any:
    """The estimator when it is first asked for: scikit-learn takes seconds to import."""
    if name == "GEMClassifier":
        from gemfi.estimator import GEMClassifier  # noqa: PLC0415 - as above

        return GEMClassifier
    raise AttributeError(f"module 'gemfi' has no attribute {name!r}")
