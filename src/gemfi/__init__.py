"""gemfi: single-pass uncertainty for PyTorch classifiers.

>>> from gemfi import TrainConfig, build_model, evaluate, fit
>>> from gemfi.data import digits
>>> task = digits()
>>> model = build_model("gem-fi", "convnet", task.num_classes, size=8, channels=32)
>>> fit(model, task.train, task.validation, TrainConfig(epochs=20, batch_size=32))
>>> evaluate(model, task.test, task.ood_test).row("digits-8-9")["auroc_epistemic"]

Here are the names of every day. The rest has an address: `gemfi.scores`, `gemfi.metrics`,
`gemfi.data`, `gemfi.methods`, `gemfi.detectors`, `gemfi.decisions`, `gemfi.errors` and so on. Names
and modules are imported when they are first asked for, so that `import gemfi` costs nothing.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gemfi._version import __version__

if TYPE_CHECKING:
    from gemfi.attachment import attach
    from gemfi.backbones import Frozen
    from gemfi.belief import Belief
    from gemfi.bundle import load, save
    from gemfi.calibration import calibrated
    from gemfi.data import Split, Task, as_split
    from gemfi.data.normalisation import Normalisation
    from gemfi.decisions import Policy
    from gemfi.diagnosis import diagnose
    from gemfi.errors import GemfiError
    from gemfi.estimator import GEMClassifier
    from gemfi.evaluation import evaluate
    from gemfi.methods import METHODS, GEMConfig
    from gemfi.model import Model, build_model
    from gemfi.monitor import Monitor
    from gemfi.outliers import OutlierConfig
    from gemfi.training import Objective, TrainConfig, fit

__all__ = [
    "METHODS",
    "Belief",
    "Frozen",
    "GEMClassifier",
    "GEMConfig",
    "GemfiError",
    "Model",
    "Monitor",
    "Normalisation",
    "Objective",
    "OutlierConfig",
    "Policy",
    "Split",
    "Task",
    "TrainConfig",
    "__version__",
    "as_split",
    "attach",
    "build_model",
    "calibrated",
    "diagnose",
    "evaluate",
    "fit",
    "load",
    "save",
]

_HOMES = {  # module -> the names above that it has
    "attachment": "attach",
    "backbones": "Frozen",
    "belief": "Belief",
    "bundle": "load save",
    "calibration": "calibrated",
    "data": "Split Task as_split",
    "data.normalisation": "Normalisation",
    "decisions": "Policy",
    "diagnosis": "diagnose",
    "errors": "GemfiError",
    "estimator": "GEMClassifier",
    "evaluation": "evaluate",
    "methods": "METHODS GEMConfig",
    "model": "Model build_model",
    "monitor": "Monitor",
    "outliers": "OutlierConfig",
    "training": "Objective TrainConfig fit",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """A public name, or a module of the package, when it is first asked for."""
    if name in _HOME:
        value = getattr(import_module(f"gemfi.{_HOME[name]}"), name)
    elif name.startswith("_") or find_spec(f"gemfi.{name}") is None:
        raise AttributeError(f"module 'gemfi' has no attribute {name!r}")
    else:
        value = import_module(f"gemfi.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
