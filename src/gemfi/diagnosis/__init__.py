"""Diagnosis: does each part of a model do what it is said to do, and is it healthy?

`checks.py` is a table of measures, limits and remedies, `measures.py` compares heads,
and `health.py` puts findings into words.
"""

from gemfi.diagnosis.checks import CHECKS, diagnose
from gemfi.diagnosis.health import Finding, Health
from gemfi.diagnosis.measures import Heads, heads, rank_correlation

__all__ = [
    "CHECKS",
    "Finding",
    "Heads",
    "Health",
    "diagnose",
    "heads",
    "rank_correlation",
]
