"""Training: one loop for every method, with exact resume."""

from __future__ import annotations

from gemfi.training.config import TrainConfig
from gemfi.training.loop import FitResult, fit

__all__ = ["FitResult", "TrainConfig", "fit"]
