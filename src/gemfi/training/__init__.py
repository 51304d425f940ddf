"""Training: one loop for every method, with exact resume.

`loop.py` trains, step by step and epoch by epoch, what `objective.py` computes. `run_data.py` has
its splits and the order of their rows, `features.py` the features of frozen backbones,
`checkpoint.py` and `run_dir.py` what a run leaves on disk, and `result.py` what it returns.
"""

from __future__ import annotations

from gemfi.training.config import TrainConfig
from gemfi.training.loop import fit
from gemfi.training.objective import Objective
from gemfi.training.result import FitResult

__all__ = ["FitResult", "Objective", "TrainConfig", "fit"]
