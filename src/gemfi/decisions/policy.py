"""Policy: from a belief to a decision, with guarantees that come from calibration data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gemfi._config import check_seed, from_plain, to_plain
from gemfi.belief import Belief
from gemfi.data import Role, Split, require_role, require_use
from gemfi.decisions import selection
from gemfi.decisions.choice import Trial
from gemfi.decisions.conformal import Reference
from gemfi.decisions.decision import Decisions, Verdict
from gemfi.decisions.describe import accepts, describe
from gemfi.decisions.goal import Costs, Goal
from gemfi.decisions.readings import Readings, known_errors, read_belief
from gemfi.errors import InputError
from gemfi.model import Model

Floats = npt.NDArray[np.float64]

_PARTITION = 7_031_977  # so that a caller's own generator of the same seed draws otherwise


@dataclass(frozen=True, eq=False, repr=False)
class Policy:
    """Accept, abstain or unfamiliar, by two stages that were fitted on independent data.

    First the conformal p-value of the score: an input is unfamiliar if it is at most `level`. Then,
    of the rest, the label is accepted if its doubt is at most `threshold`.

        >>> policy = Policy.fit(model, task.calibration, false_alarm=0.05, risk=0.02)
        >>> policy(model.predict(images))[0]
        Decision(verdict=<Verdict.ACCEPT: 0>, label=7, confidence=0.998, p_value=0.61)

    What is promised is promised of inputs that are exchangeable with the calibration data, and of
    nothing else: see `docs/decisions.md`.

    Attributes:
        score: name of the score of the first stage.
        doubt: name of the score of the second.
        reference: calibration scores of the first stage.
        level: p-values up to it are unfamiliar.
        threshold: doubts up to it are accepted.
        goal: what it was fitted for.
        facts: where the false-alarm rate lies, and what is seen of the calibration data of the last
            stage; these found the threshold, where there is one, so that they promise nothing.
        class_names: of the labels.
    """

    score: str
    doubt: str
    reference: Reference
    level: float
    threshold: float
    goal: Goal
    facts: Mapping[str, float] = field(default_factory=dict)
    class_names: tuple[str, ...] | None = None

    @classmethod
    def fit(
        cls,
        model: Model,
        calibration: Split,
        goal: Goal | str | None = None,
        *,
        ood_validation: Mapping[str, Split] | Split | None = None,
        score: str | None = None,
        doubt: str = "max_prob",
        conditional: bool = False,
        seed: int = 0,
        **goals: Any,
    ) -> Policy:
        """A policy of a trained model.

        Args:
            model: a trained model.
            calibration: a labelled split of role calibration, which nothing else has seen.
            goal: a `Goal`, or a text as `Goal.parse` reads it; or give its fields by name, such
                as `false_alarm=0.05, risk=0.02`.
            ood_validation: sets of role ood-validation, for `youden` and `costs`; they are pooled.
            score: of the first stage, a name in `SCORES` or of a detector in the belief's `extra`;
                None for the method's epistemic score.
            doubt: of the second stage, likewise.
            conditional: p-values within each predicted class (Mondrian), so that the false-alarm
                rate holds in each of them.
            seed: of the random partition of the calibration data. Choose it once: to try seeds
                until a risk is met breaks its `delta`.
            goals: fields of `Goal`.
        """
        wanted = Goal.of(goal, goals)
        require_use(calibration, "policy")
        name = score or model.head.named_scores["epistemic"]
        observed = read_belief(model.predict(calibration), name, doubt, calibration)
        unknown = _ood(model, wanted, ood_validation, name, doubt)
        names = calibration.class_names
        classes = model.head.num_classes if conditional else None
        policy = cls.from_readings(
            observed, wanted, ood_validation=unknown, num_classes=classes, seed=seed, names=names
        )
        return replace(policy, score=name, doubt=doubt, class_names=names)

    @classmethod
    def from_readings(
        cls,
        observed: Readings,
        goal: Goal,
        *,
        ood_validation: Sequence[Readings] = (),
        num_classes: int | None = None,
        seed: int = 0,
        names: Sequence[str] | None = None,
    ) -> Policy:
        """A policy from what was observed of calibration data, without a model.

        Args:
            observed: with `wrong`.
            goal: what it is to achieve.
            ood_validation: observed of each OOD-validation set.
            num_classes: for p-values within each predicted class; None for one reference.
            seed: of the random partition.
            names: of the classes, for messages.
        """
        known_errors(observed)
        goal = Goal.of(goal, {})
        if goal.needs_ood and not sum(map(len, ood_validation)):
            raise InputError(
                "youden and costs need OOD-validation data: give ood_validation=, or a "
                "false_alarm= rate, which needs none"
            )
        parts = _parts(observed, _needed_parts(goal), seed)
        reference = _reference(parts[0], num_classes)
        policy = cls("score", "doubt", reference, float(goal.false_alarm or 0), math.inf, goal)
        if goal.needs_ood:  # what chooses has a reference of its own, see docs/decisions.md
            beside = replace(policy, reference=_reference(parts[1], num_classes))
            trial = beside._trial(parts[1], ood_validation)
            if goal.costs is not None:
                level, threshold = trial.cheapest(goal.costs)
                policy = replace(policy, level=level, threshold=threshold)
                return policy._by_costs(goal.costs, parts[2], ood_validation)
            policy = replace(policy, level=min(trial.youden_level(), 1 - 1e-9))
        reference.require_level(policy.level, names, len(parts))
        return policy._with_threshold(parts[0], parts[-1])

    def __call__(self, belief: Belief) -> Decisions:
        """Decisions on the inputs of a belief, as `model.predict` returns it."""
        return self.decide(read_belief(belief, self.score, self.doubt))

    def decide(self, observed: Readings) -> Decisions:
        """Decisions on what was observed."""
        p = self._p(observed)
        verdict = np.where(observed.doubt <= self.threshold, Verdict.ACCEPT, Verdict.ABSTAIN)
        verdict = np.where(p <= self.level, Verdict.UNFAMILIAR, verdict).astype(np.int8)
        return Decisions(verdict, observed.label, observed.confidence, p)

    def at(self, level: float) -> Policy:
        """The same with another false-alarm rate; a bound on the risk holds no longer then."""
        self.reference.require_level(level, self.class_names)
        facts = _rates(self.reference, level)
        return replace(self, level=level, goal=Goal(false_alarm=level), facts=facts)

    def __repr__(self) -> str:
        return (
            f"Policy({self.goal}: unfamiliar if p ≤ {self.level:.4g} by {self.score}, accepts "
            f"{accepts(self)})"
        )

    def summary(self) -> str:
        """What it does and what is promised, in a few lines."""
        return describe(self)

    # -- the stages ------------------------------------------------------------------------------

    def _p(self, observed: Readings) -> Floats:
        return self.reference.p_values(observed.score, observed.label)

    def _trial(self, known: Readings, ood: Sequence[Readings]) -> Trial:
        return Trial(
            self._p(known),
            known.doubt,
            known_errors(known),
            np.concatenate([self._p(each) for each in ood]),
            np.concatenate([each.doubt for each in ood]),
        )

    def _with_threshold(self, proposing: Readings, judge: Readings) -> Policy:
        """With the threshold of the goal; the data that propose it are those of the reference."""
        goal, kept = self.goal, self._familiar(judge)
        found = self
        if goal.risk is not None:
            first = self._familiar(proposing)
            proposed = first.doubt, known_errors(first)
            tested = kept.doubt, known_errors(kept)
            value = selection.threshold_for_risk(proposed, tested, goal.risk, goal.delta)
            found = replace(self, threshold=value)
        elif goal.coverage is not None:
            value = selection.threshold_for_coverage(kept.doubt, goal.coverage)
            found = replace(self, threshold=value)
        return replace(found, facts=found._facts(judge))

    def _familiar(self, observed: Readings) -> Readings:
        return observed[self._p(observed) > self.level]

    def _by_costs(self, costs: Costs, judge: Readings, ood: Sequence[Readings]) -> Policy:
        trial = self._trial(judge, ood)
        cost = trial.expected_costs(costs, self.level, np.array([self.threshold]))
        return replace(self, facts=self._facts(judge) | {"cost": float(cost[0])})

    def _facts(self, judge: Readings) -> dict[str, float]:
        taken = self.decide(judge).accepted
        wrong = known_errors(judge)[taken]
        return {
            **_rates(self.reference, self.level),
            "coverage": float(taken.mean()),
            "error": float(wrong.mean()) if len(wrong) else math.nan,
            "judged": float(len(judge)),
        }

    # -- as plain values -------------------------------------------------------------------------

    def to_plain(self) -> dict[str, Any]:
        """JSON values that `from_plain` reads; floats survive exactly.

        A threshold of infinity is None; other numbers that JSON lacks are the texts inf, -inf, nan.
        """
        plain: dict[str, Any] = to_plain(replace(self, reference=None))  # type: ignore[arg-type]
        plain["threshold"] = None if self.threshold == math.inf else _written(self.threshold)
        plain["reference"] = _written([group.tolist() for group in self.reference.groups])
        plain["facts"] = _written(plain["facts"])
        return plain

    @classmethod
    def from_plain(cls, plain: Any, where: str = "policy") -> Policy:
        """The inverse of `to_plain`, strictly.

        Args:
            plain: as `to_plain` made it.
            where: what is being read, for messages.
        """
        if isinstance(plain, Mapping):
            read = {name: _read(plain[name]) for name in _NUMBERS if name in plain}
            plain = {**plain, **read}
        stored = from_plain(_Stored, plain, where)
        groups = tuple(np.asarray(group, dtype=np.float64) for group in stored.reference)
        if not groups or any(
            np.isnan(group).any() or not (group[1:] >= group[:-1]).all() for group in groups
        ):
            raise InputError(f"{where}.reference: expected sorted numbers, in at least one group")
        threshold = math.inf if stored.threshold is None else stored.threshold
        if not 0 <= stored.level <= 1 or math.isnan(threshold):
            raise InputError(
                f"{where}: expected a level from 0 to 1 and a threshold, got {stored.level} and "
                f"{threshold}"
            )
        return cls(
            stored.score,
            stored.doubt,
            Reference(groups),
            stored.level,
            threshold,
            stored.goal,
            stored.facts,
            stored.class_names,
        )


_NUMBERS = ("threshold", "reference", "facts")  # that may be other than finite


@dataclass(frozen=True)
class _Stored:
    """A policy in plain values; a threshold of infinity is None."""

    score: str
    doubt: str
    reference: tuple[tuple[float, ...], ...]
    level: float
    threshold: float | None
    goal: Goal
    facts: Mapping[str, float]
    class_names: tuple[str, ...] | None


def _written(value: Any) -> Any:
    """Numbers that JSON lacks as texts, in lists and mappings, too."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {key: _written(inner) for key, inner in value.items()}
    return [_written(inner) for inner in value] if isinstance(value, list) else value


def _read(value: Any) -> Any:
    """The inverse of `_written`; any other text is left to be refused."""
    if isinstance(value, str):
        return float(value) if value in ("inf", "-inf", "nan") else value
    if isinstance(value, Mapping):
        return {key: _read(inner) for key, inner in value.items()}
    return [_read(inner) for inner in value] if isinstance(value, list | tuple) else value


def _ood(
    model: Model,
    goal: Goal,
    given: Mapping[str, Split] | Split | None,
    score: str,
    doubt: str,
) -> list[Readings]:
    """What is observed of the OOD-validation data, where the goal needs them."""
    if not goal.needs_ood:
        if given is not None:
            raise InputError("OOD-validation data choose nothing for this goal: leave them out")
        return []
    splits = [] if given is None else [given] if isinstance(given, Split) else [*given.values()]
    for split in splits:
        require_role(split, (Role.OOD_VALIDATION,), "choosing a level")
    return [read_belief(model.predict(split), score, doubt) for split in splits]


def _needed_parts(goal: Goal) -> int:
    """One is the reference; whatever is chosen or tested has data of its own."""
    if goal.costs is not None:
        return 3
    return 1 + goal.youden + (goal.risk is not None or goal.coverage is not None)


def _reference(observed: Readings, num_classes: int | None) -> Reference:
    labels = None if num_classes is None else observed.label
    return Reference.of(observed.score, labels, num_classes or 0)


def _parts(observed: Readings, count: int, seed: int) -> list[Readings]:
    check_seed("seed", seed)
    if len(observed) < count:
        raise InputError(f"{len(observed)} calibration samples are too few for {count} stages")
    order = np.random.default_rng((_PARTITION, seed)).permutation(len(observed))
    return [observed[rows] for rows in np.array_split(order, count)]


def _rates(reference: Reference, level: float) -> dict[str, float]:
    low, high = reference.rate_interval(level) if level > 0 else (0.0, 0.0)
    return {
        "calibration": float(reference.size),
        "false_alarm_low": low,
        "false_alarm_high": high,
    }
