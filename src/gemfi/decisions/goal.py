"""Goal: what a policy is to achieve, in the words of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from gemfi._config import check_number, parse
from gemfi.errors import InputError

_DEFAULT_LEVEL = 0.05
_DEFAULT_DELTA = 0.1


@dataclass(frozen=True)
class Costs:
    """What mistakes cost, in any unit; the least expected cost decides.

    | | accept | abstain | unfamiliar |
    |---|---|---|---|
    | known, label right | 0 | abstain | abstain |
    | known, label wrong | error | abstain | abstain |
    | unfamiliar | unfamiliar | abstain | 0 |
    """

    error: float = 1.0  # a wrong label that is used
    unfamiliar: float = 1.0  # an unfamiliar input whose label is used
    abstain: float = 0.1  # somebody has to look at an input
    prevalence: float = 0.1  # expected share of unfamiliar inputs

    def __post_init__(self) -> None:
        for name in ("error", "unfamiliar", "abstain"):
            check_number(f"costs.{name}", getattr(self, name), 0)
        check_number("costs.prevalence", self.prevalence, 0, below=1)


@dataclass(frozen=True)
class Goal:
    """What a policy is to achieve. By default a false-alarm rate of 5 %.

    `false_alarm`, `youden` or `costs` decides what is unfamiliar; `risk`, `coverage` or `costs`
    which familiar inputs are accepted: without one of these, all of them.

    Attributes:
        false_alarm: share of known inputs that may be called unfamiliar.
        risk: largest error rate among the accepted.
        delta: probability with which the bound on the risk may fail; it needs `risk`.
        coverage: least share of the familiar inputs that is accepted.
        youden: take the level with the largest detection minus false alarms on OOD-validation data.
        costs: what mistakes cost; it needs OOD-validation data, too.
    """

    false_alarm: float | None = None
    risk: float | None = None
    delta: float = _DEFAULT_DELTA
    coverage: float | None = None
    youden: bool = False
    costs: Costs | None = None

    def __post_init__(self) -> None:
        for name in ("false_alarm", "risk", "coverage", "delta"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), above=0, below=1)
        if self.risk is None and self.delta != _DEFAULT_DELTA:
            raise InputError("delta is how often the risk may fail: give risk= with it")
        if not isinstance(self.youden, bool):
            raise InputError(f"youden must be True or False, got {self.youden!r}")
        if not isinstance(self.costs, Costs | None):
            raise InputError(f"costs must be Costs(error=…, …), got {self.costs!r}")
        for stage in (("false_alarm", "youden", "costs"), ("risk", "coverage", "costs")):
            given = [name for name in stage if getattr(self, name)]
            if len(given) > 1:
                raise InputError(f"a policy has one goal a stage: give {' or '.join(given)}")
        if not (self.false_alarm or self.needs_ood):
            object.__setattr__(self, "false_alarm", _DEFAULT_LEVEL)

    @property
    def asks_clarity(self) -> bool:
        """Whether anything decides which of the familiar inputs are clear enough."""
        return not (self.risk is None and self.coverage is None and self.costs is None)

    @property
    def needs_ood(self) -> bool:
        """Whether OOD-validation data take part."""
        return self.youden or self.costs is not None

    @classmethod
    def of(cls, goal: Goal | str | None, goals: Mapping[str, Any]) -> Goal:
        """From a goal, a text as `parse` reads it, or fields such as `{"false_alarm": 0.05}`."""
        if goal is not None and goals:
            raise InputError(f"give a goal or {', '.join(goals)}, not both")
        if isinstance(goal, str | Goal):
            return cls.parse(goal) if isinstance(goal, str) else goal
        if goal is not None:
            raise InputError(f"a goal is a Goal or a text such as 'false_alarm=0.05', got {goal!r}")
        known = [field.name for field in fields(cls)]
        if unknown := sorted(goals.keys() - set(known)):
            raise InputError(f"unknown goal {', '.join(unknown)}; known: {', '.join(known)}")
        return cls(**goals)

    @classmethod
    def parse(cls, text: str) -> Goal:
        """A goal from a text such as `false_alarm=0.05,risk=0.02,delta=0.1` or `youden`.

        Costs are `error=1,unfamiliar=5,abstain=0.1,prevalence=0.02`.
        """
        of_costs = [field.name for field in fields(Costs)]
        known = [field.name for field in fields(cls) if field.name != "costs"] + of_costs
        given: dict[str, Any] = {}
        for part in text.split(","):
            name, equals, value = (word.strip() for word in part.partition("="))
            where = f"policy {text!r}: {name}"
            if name not in known:
                raise InputError(f"policy {text!r}: unknown {name!r}; known: {', '.join(known)}")
            if name in given:
                raise InputError(f"{where} is given twice")
            if name == "youden" and equals:
                raise InputError(f"{where} takes no value")
            given[name] = True if name == "youden" else parse(float, value, where)
        costs = {name: given.pop(name) for name in of_costs if name in given}
        return cls(**given, costs=Costs(**costs) if costs else None)

    def __str__(self) -> str:
        if self.costs is not None:
            return ",".join(f"{name}={value:g}" for name, value in vars(self.costs).items())
        parts = ["youden"] if self.youden else [f"false_alarm={self.false_alarm:g}"]
        if self.risk is not None:
            parts += [f"risk={self.risk:g}", f"delta={self.delta:g}"]
        if self.coverage is not None:
            parts.append(f"coverage={self.coverage:g}")
        return ",".join(parts)
