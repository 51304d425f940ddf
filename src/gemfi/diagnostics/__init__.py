"""Diagnostics: does each part of a model do what it is said to do, and is it healthy?"""

from gemfi.diagnostics.findings import Finding, Health
from gemfi.diagnostics.health import diagnose
from gemfi.diagnostics.measures import (
    Heads,
    Support,
    heads,
    knn_distance,
    rank_correlation,
    support,
)

__all__ = [
    "Finding",
    "Heads",
    "Health",
    "Support",
    "diagnose",
    "heads",
    "knn_distance",
    "rank_correlation",
    "support",
]
