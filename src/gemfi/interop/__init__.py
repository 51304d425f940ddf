"""A trained model in the forms that other libraries know; none of them is needed to import this.

| library | what it gets |
|---|---|
| pytorch-ood | `OutlierDetector`: `fit`, `predict`, higher is more OOD |
| OpenOOD | `Postprocessor`: `setup`, `postprocess`, `inference`, higher confidence is more ID |
| Lightning | `lightning_module(model, ...)`, which a `Trainer` trains |
| scikit-learn, MAPIE | `gemfi.GEMClassifier`, with `predict_proba` |
"""

from gemfi.interop.detector import OutlierDetector
from gemfi.interop.lightning import lightning_module
from gemfi.interop.postprocessor import Postprocessor

__all__ = ["OutlierDetector", "Postprocessor", "lightning_module"]
