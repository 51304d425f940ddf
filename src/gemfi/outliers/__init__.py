"""Virtual outliers: what a model is shown so that it learns where its support ends.

Nothing here ever reads a test set. `features` makes them in the space that the heads see, `inputs`
from training inputs taken apart; `auxiliary` outliers come from a split with the role of that name.
Heads receive them as `Batch.outliers`, whatever their kind.
"""

from gemfi.outliers.config import NONE, VOS, Kind, OutlierConfig, require_outliers
from gemfi.outliers.features import SYNTHESISERS, Synthesiser, synthesiser
from gemfi.outliers.inputs import scramble

__all__ = [
    "NONE",
    "SYNTHESISERS",
    "VOS",
    "Kind",
    "OutlierConfig",
    "Synthesiser",
    "require_outliers",
    "scramble",
    "synthesiser",
]
