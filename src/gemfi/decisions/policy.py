"""Policy: from a belief to a decision, with guarantees that come from calibration data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, overload

import numpy as np
import numpy.typing as npt
from torch import Tensor

from gemfi._config import check_seed, from_plain, to_plain
from gemfi.belief import Belief
from gemfi.data import AnySplit, Role, require_role, require_use
from gemfi.decisions.goal import Goal
from gemfi.decisions.guarantees import (
    Reference,
    Trial,
    checked_scores,
    threshold_for_coverage,
    threshold_for_risk,
)
from gemfi.errors import InputError
from gemfi.metrics import Bools, Floats, Ints
from gemfi.model import Model
from gemfi.scores import score_label, score_of

_PARTITION = 7_031_977  # so that a caller's own generator of the same seed draws otherwise
_MUCH_LOST = 0.2  # share of the level lost to ties, from which on the summary says so


# -- decisions ------------------------------------------------------------------------------------


class Verdict(IntEnum):
    """What to do with an input."""

    ACCEPT = 0
    """Familiar, and clear if the policy has a goal for clarity: use the label."""
    ABSTAIN = 1
    """Familiar, but ambiguous between known classes."""
    UNFAMILIAR = 2
    """Unlike the data that the model was calibrated on; its label means nothing."""

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Decision:
    """What to do with one input."""

    verdict: Verdict
    label: Any  # the most probable class, whatever the verdict
    confidence: float  # its probability
    p_value: float  # of "this input is like the calibration data", a twentieth of which have ≤ 0.05

    def __str__(self) -> str:
        return (
            f"{self.verdict}: label {self.label}, confidence {self.confidence:.3f}, "
            f"p = {self.p_value:.3g}"
        )


@dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions on N inputs; `decisions[i]` is one, `decisions[:3]` and `decisions[mask]` are some.

    All four are (N,), as in `Decision`.
    """

    verdict: npt.NDArray[np.int8]  # values of `Verdict`
    label: npt.NDArray[Any]
    confidence: Floats
    p_value: Floats

    def __len__(self) -> int:
        return len(self.verdict)

    @overload
    def __getitem__(self, index: int) -> Decision: ...

    @overload
    def __getitem__(self, index: slice | npt.NDArray[Any]) -> Decisions: ...

    def __getitem__(self, index: int | slice | npt.NDArray[Any]) -> Decision | Decisions:
        chosen = [column[index] for column in vars(self).values()]
        if isinstance(index, slice) or np.ndim(index):
            return Decisions(*chosen)
        verdict, label, confidence, p_value = chosen
        label = label.item() if hasattr(label, "item") else label
        return Decision(Verdict(int(verdict)), label, float(confidence), float(p_value))

    def __iter__(self) -> Iterator[Decision]:
        return (self[index] for index in range(len(self)))

    @property
    def accepted(self) -> Bools:
        """(N,) whether the label is to be used."""
        return np.equal(self.verdict, Verdict.ACCEPT)

    def counts(self) -> dict[str, int]:
        """How many inputs have each verdict."""
        return {str(verdict): int((self.verdict == verdict).sum()) for verdict in Verdict}

    def names(self) -> list[str]:
        """The verdicts as words."""
        return [str(Verdict(int(value))) for value in self.verdict]

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self.counts().items())
        return f"Decisions({counts})"


# -- what a policy reads of beliefs ---------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Readings:
    """What a policy reads of beliefs on N inputs; of score and doubt only the order counts."""

    score: Floats  # (N,) how unfamiliar each input is
    doubt: Floats  # (N,) how uncertain its label is
    label: Ints  # (N,) predicted classes
    confidence: Floats  # (N,) their probabilities
    wrong: Bools | None = None  # (N,) whether the label is wrong, where it is known

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in vars(self).items() if column is not None}
        if len(set(lengths.values())) > 1:
            raise InputError(f"readings need arrays of one length, got {lengths}")
        checked_scores(self.score, "scores")
        checked_scores(self.doubt, "doubts")

    def __len__(self) -> int:
        return len(self.score)

    def __getitem__(self, rows: npt.NDArray[Any]) -> Readings:
        chosen: list[Any] = [None if col is None else col[rows] for col in vars(self).values()]
        return Readings(*chosen)

    @classmethod
    def cat(cls, parts: Sequence[Readings]) -> Readings:
        """One after the other."""
        columns: Any = zip(*(vars(part).values() for part in parts), strict=True)
        joined: Any = (None if column[0] is None else np.concatenate(column) for column in columns)
        return cls(*joined)

    @property
    def errors(self) -> Bools:
        """`wrong`, where it is needed."""
        if self.wrong is None:
            raise InputError("this needs to know which labels are wrong: give the labelled split")
        return self.wrong


def read_belief(belief: Belief, score: str, doubt: str, labels: Tensor | None = None) -> Readings:
    """The two scores, the predictions and their probabilities; with labels (N,), which are wrong.

    `score` and `doubt` are names in `SCORES`, or of detectors in the belief's `extra`.
    """
    top = belief.log_probs().max(dim=1)
    label = top.indices.numpy(force=True)
    return Readings(
        score_of(belief, score).numpy(force=True).astype(np.float64),
        score_of(belief, doubt).numpy(force=True).astype(np.float64),
        label,
        top.values.exp().numpy(force=True).astype(np.float64),
        None if labels is None else label != labels.numpy(force=True),
    )


def read_model(
    model: Model, split: AnySplit, score: str, doubt: str, *, labelled: bool = True
) -> Readings:
    """`read_belief` of what a model makes of a split, batch by batch.

    Args:
        model: trained.
        split: of any role.
        score: as of `read_belief`.
        doubt: likewise.
        labelled: whether to see which labels are wrong.
    """
    model.require_finished("a policy")
    return Readings.cat(
        [
            read_belief(belief, score, doubt, y if labelled else None)
            for belief, y in model.beliefs(split)
        ]
    )


def read_ood_sets(
    model: Model, sets: Mapping[str, AnySplit] | None, score: str, doubt: str
) -> dict[str, Readings]:
    """What is read of each OOD-validation set."""
    readings = {}
    for name, split in (sets or {}).items():
        require_role(split, (Role.OOD_VALIDATION,), "choosing a level")
        readings[name] = read_model(model, split, score, doubt, labelled=False)
    return readings


# -- the policy -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Policy:
    """Accept, abstain or unfamiliar, by two stages that were fitted on independent data.

    First the conformal p-value of the score: an input is unfamiliar if it is at most `level`. Then,
    of the rest, the label is accepted if its doubt is at most `threshold`.

        >>> policy = Policy.fit(model, task.calibration, false_alarm=0.05, risk=0.02)
        >>> policy(model.predict(images))[0]
        Decision(verdict=<Verdict.ACCEPT: 0>, label=7, confidence=0.998, p_value=0.61)

    What is promised is promised of inputs that are exchangeable with the calibration data, and of
    nothing else: see `docs/decisions.md`. `facts` hold the interval of the false-alarm rate, and
    how the policy does on the calibration data of the last stage. These found the threshold, so
    that such facts promise nothing.
    """

    score: str  # name of the score of the first stage
    doubt: str  # name of the score of the second
    reference: Reference  # calibration scores of the first stage
    level: float  # p-values up to it are unfamiliar
    threshold: float  # doubts up to it are accepted
    goal: Goal
    facts: Mapping[str, float]
    class_names: tuple[str, ...] | None

    @classmethod
    def fit(
        cls,
        model: Model,
        calibration: AnySplit,
        goal: Goal | str | None = None,
        *,
        ood_validation: Mapping[str, AnySplit] | AnySplit | None = None,
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
            goal: a `Goal`, or a text as `Goal.parse` reads it; or give its fields by name.
            ood_validation: sets of role ood-validation, for `youden` and `costs`; they are pooled.
            score: of the first stage, a name in `SCORES` or of a detector in the belief's `extra`.
                Defaults to the method's epistemic score.
            doubt: of the second stage, in the same way.
            conditional: let the false-alarm rate hold within each predicted class (Mondrian).
            seed: of the random partition of the calibration data. Choose it once: to try seeds
                until a risk is met breaks its `delta`.
            goals: fields of `Goal`, such as `false_alarm=0.05, risk=0.02`.
        """
        wanted = Goal.of(goal, goals)
        require_use(calibration, "policy")
        score = score or model.head.named_scores["epistemic"]
        known = read_model(model, calibration, score, doubt)
        if not wanted.needs_ood and ood_validation is not None:
            raise InputError("OOD-validation data choose nothing for this goal: leave them out")
        sets = {"": ood_validation} if isinstance(ood_validation, AnySplit) else ood_validation
        names = calibration.class_names
        policy = cls.from_readings(
            known,
            wanted,
            ood_validation=[*read_ood_sets(model, sets, score, doubt).values()],
            num_classes=model.head.num_classes if conditional else None,
            seed=seed,
            names=names,
        )
        return replace(policy, score=score, doubt=doubt, class_names=names)

    @classmethod
    def from_readings(
        cls,
        known: Readings,
        goal: Goal,
        *,
        ood_validation: Sequence[Readings] = (),
        num_classes: int | None = None,
        seed: int = 0,
        names: Sequence[str] | None = None,
    ) -> Policy:
        """A policy from what was read of beliefs on calibration data, without a model.

        With `num_classes` the false-alarm rate holds within each predicted class. `names` of the
        classes are for messages.
        """
        known.errors  # noqa: B018 - refused here, before anything is computed
        goal = Goal.of(goal, {})
        if goal.needs_ood and not sum(map(len, ood_validation)):
            raise InputError(
                "youden and costs need OOD-validation data: give ood_validation=, or a "
                "false_alarm= rate, which needs none"
            )
        parts = _parts(known, goal, seed)
        reference = _reference(parts[0], num_classes)
        level = float(goal.false_alarm or 0)
        policy = cls("score", "doubt", reference, level, math.inf, goal, {}, None)
        if goal.needs_ood:  # what chooses has a reference of its own, see docs/decisions.md
            trial = _trial(_reference(parts[1], num_classes), parts[1], ood_validation)
            if goal.costs is not None:
                level, threshold = trial.cheapest(goal.costs)
                policy = replace(policy, level=level, threshold=threshold)
                unseen = _trial(reference, parts[2], ood_validation)
                cost = unseen.expected_costs(goal.costs, level, np.array([threshold]))
                return replace(policy, facts=policy._facts(parts[2]) | {"cost": float(cost[0])})
            policy = replace(policy, level=min(trial.youden_level(), 1 - 1e-9))
        reference.require_level(policy.level, names, len(parts))
        policy = replace(policy, threshold=policy._threshold(parts[0], parts[-1]))
        return replace(policy, facts=policy._facts(parts[-1]))

    def __call__(self, belief: Belief) -> Decisions:
        """Decisions on the inputs of a belief, as `model.predict` returns it."""
        return self.decide(read_belief(belief, self.score, self.doubt))

    def decide(self, readings: Readings) -> Decisions:
        """Decisions on what was read of a belief."""
        p = self.reference.p_values(readings.score, readings.label)
        verdict = np.where(readings.doubt <= self.threshold, Verdict.ACCEPT, Verdict.ABSTAIN)
        verdict = np.where(p <= self.level, Verdict.UNFAMILIAR, verdict).astype(np.int8)
        return Decisions(verdict, readings.label, readings.confidence, p)

    def at(self, level: float) -> Policy:
        """The same with another false-alarm rate; a bound on the risk no longer holds then."""
        self.reference.require_level(level, self.class_names)
        policy = replace(self, level=level, goal=Goal(false_alarm=level))
        return replace(policy, facts=policy._rate_facts())

    # -- fitting ---------------------------------------------------------------------------------

    def _threshold(self, proposing: Readings, testing: Readings) -> float:
        """The threshold of doubt; the data that propose it are those of the reference."""
        goal, tested = self.goal, self._familiar(testing)
        if goal.risk is not None:
            first = self._familiar(proposing)
            return threshold_for_risk(
                (first.doubt, first.errors), (tested.doubt, tested.errors), goal.risk, goal.delta
            )
        if goal.coverage is not None:
            return threshold_for_coverage(tested.doubt, goal.coverage)
        return math.inf

    def _familiar(self, readings: Readings) -> Readings:
        return readings[self.reference.p_values(readings.score, readings.label) > self.level]

    def _facts(self, judged: Readings) -> dict[str, float]:
        accepted = self.decide(judged).accepted
        return {
            **self._rate_facts(),
            "coverage": float(accepted.mean()),
            "error": float(judged.errors[accepted].mean()) if accepted.any() else math.nan,
            "judged": float(len(judged)),
        }

    def _rate_facts(self) -> dict[str, float]:
        low, high = self.reference.rate_interval(self.level)
        size = float(self.reference.size)
        return {"calibration": size, "false_alarm_low": low, "false_alarm_high": high}

    # -- in words --------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return (
            f"Policy({self.goal}: unfamiliar if p ≤ {self.level:.4g} by {self.score}, accepts "
            f"{self._accepts()})"
        )

    def summary(self) -> str:
        """What it does and what is promised, in a few lines."""
        facts = self.facts
        count = int(facts["calibration"])
        lines = [
            f"Policy {self.goal} ({count} calibration samples in the first stage)",
            f"unfamiliar  {self._rejects()}",
            f"accept      {self._accepts()}",
        ]
        if "coverage" in facts:
            error = "none accepted" if math.isnan(facts["error"]) else f"{facts['error']:.2%} wrong"
            lines.append(
                f"seen        of {facts['judged']:.0f} calibration samples "
                f"{facts['coverage']:.1%} accepted, {error}"
            )
        if "cost" in facts:
            lines.append(f"            expected cost of an input {facts['cost']:.4g}")
        return "\n".join(lines)

    def _rejects(self) -> str:
        """Which inputs are unfamiliar, what is promised of them, and whether ties take power."""
        where = "in each predicted class" if self.reference.is_conditional else "of known inputs"
        promised = (
            f"{score_label(self.score)}: p ≤ {self.level:.4g}, so at most {_percent(self.level)} "
            f"{where} on average"
        )
        threshold = self.reference.threshold(self.level)
        if threshold.lost < _MUCH_LOST:
            low, high = self.facts["false_alarm_low"], self.facts["false_alarm_high"]
            return f"{promised}; with these samples {low:.2%} to {high:.2%}"
        tied = f"{threshold.tied:.1%} of the calibration scores are {threshold.value:.4g}"
        if math.isinf(threshold.value):
            return (
                f"{promised}. This holds, but without power: {tied}, and no score is higher, so no "
                "input is ever called unfamiliar"
            )
        return (
            f"{promised}. This holds, but with little power: {tied}, which is the threshold, so "
            f"with these samples about {threshold.above:.2%} are called unfamiliar"
        )

    def _accepts(self) -> str:
        """Which inputs are accepted, and what is promised of them."""
        goal, chosen = self.goal, "every familiar input"
        if self.threshold == math.inf and not goal.asks_clarity:
            unasked = "the goal does not say how clear (risk=, coverage= or costs do)"
            return f"{chosen}, clear or not: {unasked}"
        if self.threshold == -math.inf:
            chosen = "nothing"
        elif self.threshold < math.inf:
            chosen = f"familiar inputs with {score_label(self.doubt)} ≤ {self.threshold:.4g}"
        if goal.risk is not None:
            sure = _percent(1 - goal.delta)
            return f"{chosen}: at most {_percent(goal.risk)} wrong with probability {sure}"
        if goal.coverage is not None:
            return f"{chosen}: at least {_percent(goal.coverage)} of them on average"
        return chosen

    # -- as plain values -------------------------------------------------------------------------

    def to_plain(self) -> dict[str, Any]:
        """Plain values that `from_plain` reads; floats survive exactly.

        A threshold of infinity is None; a threshold and facts that JSON lacks are the texts -inf
        and nan. Scores of the reference may be infinite numbers.
        """
        threshold = None if self.threshold == math.inf else self.threshold
        groups = [group.tolist() for group in self.reference.groups]
        plain = to_plain(vars(self) | {"threshold": threshold, "reference": groups})
        encoded: dict[str, Any] = _encoded(plain)
        return encoded

    @classmethod
    def from_plain(cls, plain: Any, where: str = "policy") -> Policy:
        """The inverse of `to_plain`, strictly; `where` says in messages what is being read."""
        numbers = tuple[tuple[float, ...], ...]
        stored = from_plain(cls, _decoded(plain), where, reference=numbers, threshold=float | None)
        scores: Any = stored.reference  # still the plain numbers
        groups = tuple(np.asarray(group, dtype=np.float64) for group in scores)
        if not groups or any(
            np.isnan(group).any() or not (group[1:] >= group[:-1]).all() for group in groups
        ):
            raise InputError(f"{where}.reference: expected sorted numbers, in at least one group")
        threshold = math.inf if plain["threshold"] is None else stored.threshold
        if not 0 <= stored.level <= 1 or math.isnan(threshold):
            raise InputError(
                f"{where}: expected a level from 0 to 1 and a threshold, got {stored.level} and "
                f"{threshold}"
            )
        return replace(stored, reference=Reference(groups), threshold=threshold)


def _encoded(value: Any) -> Any:
    """Numbers that JSON lacks as texts, also in mappings."""
    if isinstance(value, Mapping):
        return {key: _encoded(inner) for key, inner in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _decoded(value: Any) -> Any:
    """The inverse of `_encoded`."""
    if isinstance(value, Mapping):
        return {key: _decoded(inner) for key, inner in value.items()}
    return float(value) if value in ("inf", "-inf", "nan") else value


def _parts(known: Readings, goal: Goal, seed: int) -> list[Readings]:
    """The reference first; whatever is chosen or tested has data of its own."""
    check_seed("seed", seed)
    count = 1 + goal.youden + (goal.risk is not None or goal.coverage is not None)
    count = 3 if goal.costs is not None else count
    if len(known) < count:
        raise InputError(f"{len(known)} calibration samples are too few for {count} stages")
    order = np.random.default_rng((_PARTITION, seed)).permutation(len(known))
    return [known[rows] for rows in np.array_split(order, count)]


def _reference(readings: Readings, num_classes: int | None) -> Reference:
    if num_classes is None:
        return Reference.of(readings.score)
    return Reference.of(readings.score, readings.label, num_classes)


def _trial(reference: Reference, known: Readings, ood_validation: Sequence[Readings]) -> Trial:
    return Trial(
        reference.p_values(known.score, known.label),
        known.doubt,
        known.errors,
        np.concatenate([reference.p_values(ood.score, ood.label) for ood in ood_validation]),
        np.concatenate([ood.doubt for ood in ood_validation]),
    )


def _percent(share: float) -> str:
    """With the digits that it takes: 99.5 % must not become 100 %."""
    return f"{100 * share:.4g}%"
