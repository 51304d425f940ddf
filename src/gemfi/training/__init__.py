"""Training: one loop for every method, with exact resume."""

from __future__ import annotations

from gemfi.training.config import TrainConfig
from gemfi.training.loop import fit
from gemfi.training.state import FitResult

__all__ = ["FitResult", "TrainConfig", "fit"]
