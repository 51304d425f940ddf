"""Decisions: accept, abstain or unfamiliar, with guarantees.

`policy.py` puts the stages together; `conformal.py` is the first, `selection.py` the second,
`choice.py` what OOD-validation data choose. `operating.py` draws what there is to choose from.
"""

from gemfi.decisions.decision import Decision, Decisions, Verdict
from gemfi.decisions.goal import Costs, Goal
from gemfi.decisions.operating import OperatingPoints, operating_points, plot_operating_points
from gemfi.decisions.policy import Policy
from gemfi.decisions.readings import Readings, read_belief

__all__ = [
    "Costs",
    "Decision",
    "Decisions",
    "Goal",
    "OperatingPoints",
    "Policy",
    "Readings",
    "Verdict",
    "operating_points",
    "plot_operating_points",
    "read_belief",
]
