"""Decisions: accept, abstain or unfamiliar, with guarantees.

`goal.py` says what is asked for, `policy.py` decides, `guarantees.py` holds the statistics behind
the promises, and `operating.py` draws what there is to choose from.
"""

from gemfi.decisions.goal import Costs, Goal
from gemfi.decisions.guarantees import Reference, least_samples, threshold_of
from gemfi.decisions.operating import OperatingPoints, operating_points, plot_operating_points
from gemfi.decisions.policy import Decision, Decisions, Policy, Readings, Verdict, read_belief

__all__ = [
    "Costs",
    "Decision",
    "Decisions",
    "Goal",
    "OperatingPoints",
    "Policy",
    "Readings",
    "Reference",
    "Verdict",
    "least_samples",
    "operating_points",
    "plot_operating_points",
    "read_belief",
    "threshold_of",
]
