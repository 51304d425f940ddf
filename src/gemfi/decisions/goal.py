"""Goal: what a policy is to achieve, in the words of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from gemfi._config import check_number
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

    Attributes:
        error: a wrong label that is used.
        unfamiliar: an unfamiliar input whose label is used.
        abstain: somebody has to look at an input.
        prevalence: share of unfamiliar inputs that is expected.
    """

    error: float = 1.0
    unfamiliar: float = 1.0
    abstain: float = 0.1
    prevalence: float = 0.1

    def __post_init__(self) -> None:
        for name in ("error", "unfamiliar", "abstain"):
            check_number(f"costs.{name}", getattr(self, name), 0)
        check_number("costs.prevalence", self.prevalence, 0, below=1)


@dataclass(frozen=True)
class Goal:
    """What a policy is to achieve. By default a false-alarm rate of 5 %.

    Unfamiliar inputs are found by `false_alarm`, `youden` or `costs`; which of the familiar ones
    are accepted is decided by `risk`, `coverage` or `costs`. Without any of these no input is asked
    how clear it is: all familiar ones are accepted.

    Attributes:
        false_alarm: share of known inputs that may be called unfamiliar.
        risk: largest error rate among the accepted.
        delta: probability with which the bound on the risk may fail; it needs `risk`.
        coverage: share of the familiar inputs that is accepted at least.
        youden: take the level at which detection minus false alarms is largest on OOD-validation
            data.
        costs: what mistakes cost; it needs OOD-validation data, too.
    """

    false_alarm: float | None = None
    risk: float | None = None
    delta: float = _DEFAULT_DELTA
    coverage: float | None = None
    youden: bool = False
    costs: Costs | None = None

    def __post_init__(self) -> None:
        for name in ("false_alarm", "risk", "coverage"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), above=0, below=1)
        check_number("delta", self.delta, above=0, below=1)
        if self.risk is None and self.delta != _DEFAULT_DELTA:
            raise InputError("delta is how often the risk may fail: give risk= with it")
        if not isinstance(self.youden, bool):
            raise InputError(f"youden must be True or False, got {self.youden!r}")
        if not isinstance(self.costs, Costs | None):
            raise InputError(f"costs must be Costs(error=…, …), got {self.costs!r}")
        first = [name for name in ("false_alarm", "youden", "costs") if getattr(self, name)]
        second = [name for name in ("risk", "coverage", "costs") if getattr(self, name)]
        for names in (first, second):
            if len(names) > 1:
                raise InputError(f"a policy has one goal a stage: give {' or '.join(names)}")
        if not first:
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
        if isinstance(goal, str):
            return cls.parse(goal)
        if not isinstance(goal, Goal | None):
            raise InputError(
                f"a goal is a Goal, a text such as 'false_alarm=0.05', or its fields by name, got "
                f"{goal!r}"
            )
        known = [field.name for field in fields(cls)]
        unknown = sorted(goals.keys() - set(known))
        if unknown:
            raise InputError(f"unknown goal {', '.join(unknown)}; known: {', '.join(known)}")
        return cls(**goals) if goal is None else goal

    @classmethod
    def parse(cls, text: str) -> Goal:
        """A goal from a text such as `false_alarm=0.05,risk=0.02,delta=0.1` or `youden`.

        Costs are `error=1,unfamiliar=5,abstain=0.1,prevalence=0.02`.
        """
        costs = {field.name for field in fields(Costs)}
        plain = {field.name for field in fields(cls)} - {"costs", "youden"}
        given: dict[str, Any] = {}
        for part in text.split(","):
            name, equals, value = (word.strip() for word in part.partition("="))
            if name == "youden":
                if equals:
                    raise InputError(f"policy {text!r}: youden takes no value")
                given[name] = True
                continue
            if name not in costs | plain:
                known = ", ".join(sorted(plain | {"youden"})), ", ".join(sorted(costs))
                raise InputError(
                    f"policy {text!r}: unknown {name!r}; known: {known[0]}, or the costs {known[1]}"
                )
            if name in given:
                raise InputError(f"policy {text!r}: {name} is given twice")
            given[name] = _number(text, name, value)
        cost = {name: given.pop(name) for name in costs & given.keys()}
        return cls(**given, costs=Costs(**cost) if cost else None)

    def __str__(self) -> str:
        if self.costs is not None:
            parts = [f"{field.name}={getattr(self.costs, field.name):g}" for field in fields(Costs)]
            return ",".join(parts)
        parts = ["youden"] if self.youden else [f"false_alarm={self.false_alarm:g}"]
        if self.risk is not None:
            parts += [f"risk={self.risk:g}", f"delta={self.delta:g}"]
        if self.coverage is not None:
            parts.append(f"coverage={self.coverage:g}")
        return ",".join(parts)


def _number(text: str, name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InputError(
            f"policy {text!r}: {name} must be a number, such as {name}=0.05, got {value!r}"
        ) from None
