"""Policies: the stages together, what they promise, and what they refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from gemfi import Task, build_model, load, save
from gemfi.data import digits
from gemfi.decisions import (
    Costs,
    Decisions,
    Goal,
    Policy,
    Readings,
    Reference,
    Verdict,
    operating_points,
    plot_operating_points,
    read_belief,
)
from gemfi.decisions.policy import _parts
from gemfi.errors import InputError, RoleError
from gemfi.model import Model
from support.calibrations import drawn, fitted_for_risk


def fitted(text: str, seed: int = 0, count: int = 600, **more: object) -> Policy:
    observed = drawn(count, np.random.default_rng(seed))
    return Policy.from_readings(observed, Goal.parse(text), seed=seed, **more)  # type: ignore[arg-type]


# ---------------------------------------------------------------- what is promised


def test_false_alarms_hold_on_average() -> None:
    rng = np.random.default_rng(0)
    rates = []
    for seed in range(400):
        policy = Policy.from_readings(drawn(99, rng), Goal(false_alarm=0.1), seed=seed)
        rates.append((policy.decide(drawn(200, rng)).verdict == Verdict.UNFAMILIAR).mean())
    assert np.mean(rates) == pytest.approx(0.1, abs=0.005)


def test_false_alarms_hold_in_each_class_only_with_a_reference_for_each() -> None:
    rng = np.random.default_rng(1)
    rates: dict[bool, list[list[float]]] = {True: [], False: []}
    for seed in range(150):
        data = drawn(400, rng)
        fresh = drawn(800, rng)
        for conditional, found in rates.items():
            policy = Policy.from_readings(
                data, Goal(false_alarm=0.1), num_classes=4 if conditional else None, seed=seed
            )
            alarms = policy.decide(fresh).verdict == Verdict.UNFAMILIAR
            found.append([alarms[fresh.label == each].mean() for each in range(4)])
    assert np.mean(rates[True], axis=0) == pytest.approx([0.1] * 4, abs=0.012)
    pooled = np.mean(rates[False], axis=0)
    assert pooled[0] < 0.04  # the classes differ in their scores
    assert pooled[3] > 0.15


def test_the_risk_fails_no_more_often_than_delta() -> None:
    rng = np.random.default_rng(2)
    failures, covered = 0, []
    for seed in range(150):
        policy = fitted_for_risk(
            drawn(1200, rng), Goal(false_alarm=0.05, risk=0.06, delta=0.2), seed
        )
        fresh = drawn(20_000, rng)
        accepted = policy.decide(fresh).accepted
        assert fresh.wrong is not None
        failures += accepted.any() and fresh.wrong[accepted].mean() > 0.06
        covered.append(accepted.mean())
    assert stats.binomtest(failures, 150, 0.2, "greater").pvalue > 0.05
    assert failures > 3  # the bound is used, not merely kept
    assert np.mean(covered) > 0.3


def test_the_risk_is_tested_on_the_half_that_is_not_the_reference() -> None:
    observed = replace(drawn(400, np.random.default_rng(0)), confidence=np.arange(400.0))
    reference, tested = (
        np.isin(observed.confidence, part.confidence)
        for part in _parts(observed, Goal(risk=0.1), seed=0)
    )
    assert not (reference & tested).any()
    with pytest.raises(InputError, match="no threshold keeps the error rate"):
        Policy.from_readings(replace(observed, wrong=tested), Goal(risk=0.1))
    policy = Policy.from_readings(replace(observed, wrong=reference & tested), Goal(risk=0.1))
    assert policy.threshold == np.inf
    assert policy.reference.groups[0].tolist() == np.sort(observed.score[reference]).tolist()


def test_unfamiliar_samples_have_no_part_in_the_threshold() -> None:
    """All errors are among the strangest fifth, which the first stage takes away."""
    rng = np.random.default_rng(0)
    score, doubt = rng.random(2000), rng.random(2000)
    label, confidence = np.zeros(2000, np.int64), np.full(2000, 0.9)
    observed = Readings(score, doubt, label, confidence, score > 0.8)
    policy = Policy.from_readings(observed, Goal(false_alarm=0.25, risk=0.02))
    assert policy.threshold == np.inf
    stranger = replace(observed, doubt=np.where(score > 0.8, 2.0, doubt))
    policy = Policy.from_readings(stranger, Goal(false_alarm=0.25, coverage=0.9))
    assert policy.threshold == pytest.approx(0.9, abs=0.03)


def test_coverage_holds_on_average() -> None:
    rng = np.random.default_rng(3)
    shares = []
    for seed in range(300):
        policy = Policy.from_readings(
            drawn(100, rng), Goal(false_alarm=0.1, coverage=0.8), seed=seed
        )
        verdicts = policy.decide(drawn(300, rng)).verdict
        familiar = verdicts != Verdict.UNFAMILIAR
        shares.append((verdicts[familiar] == Verdict.ACCEPT).mean())
    assert 0.79 < np.mean(shares) < 0.82


def test_nothing_holds_where_inputs_are_not_exchangeable() -> None:
    rng = np.random.default_rng(4)
    policy = Policy.from_readings(drawn(2000, rng), Goal(false_alarm=0.05, risk=0.08, delta=0.1))
    other = drawn(5000, rng, shift=1.0, error=0.3)
    decisions = policy.decide(other)
    assert (decisions.verdict == Verdict.UNFAMILIAR).mean() > 0.1
    assert other.wrong is not None
    assert other.wrong[decisions.accepted].mean() > 0.16


def test_a_level_chosen_by_youden_keeps_its_rate() -> None:
    rng = np.random.default_rng(5)
    excess = []
    for seed in range(300):
        ood = drawn(80, rng, shift=2.0)
        policy = Policy.from_readings(
            drawn(120, rng), Goal(youden=True), ood_validation=[ood], seed=seed
        )
        alarms = (policy.decide(drawn(300, rng)).verdict == Verdict.UNFAMILIAR).mean()
        excess.append(alarms - policy.level)
    assert np.mean(excess) < 0.01


def test_a_level_that_was_chosen_knows_nothing_of_the_reference() -> None:
    """All unfamiliar inputs at one place c, so that Youden's level is p(c), whatever is known.

    Were p(c) that of the reference, the rate would be P(s ≥ c) + 1/(n + 1), above its mean. The
    rate of each policy is exact: scores are uniform.
    """
    rng = np.random.default_rng(0)
    strange = replace(drawn(50, rng), score=np.full(50, 0.6))
    excess = []
    for seed in range(300):
        observed = replace(drawn(12, rng), score=rng.uniform(size=12))
        policy = Policy.from_readings(
            observed, Goal(youden=True), ood_validation=[strange], seed=seed
        )
        highest = policy.reference.groups[0][::-1]
        rank = int(policy.level * (len(highest) + 1) + 1e-9)
        excess.append(1 - highest[rank - 1] - policy.level if rank <= len(highest) else 0.0)
    assert np.mean(excess) < 2 * np.std(excess) / np.sqrt(len(excess))


# ---------------------------------------------------------------- how it decides


def test_verdicts_follow_from_p_and_doubt() -> None:
    policy = replace(fitted("false_alarm=0.1,coverage=0.7"), level=0.2, threshold=0.5)
    fresh = drawn(300, np.random.default_rng(9))
    decisions = policy.decide(fresh)
    for each, doubt in zip(decisions, fresh.doubt, strict=True):
        expected = Verdict.ACCEPT if doubt <= 0.5 else Verdict.ABSTAIN
        assert each.verdict == (Verdict.UNFAMILIAR if each.p_value <= 0.2 else expected)
    assert sum(decisions.counts().values()) == 300
    assert set(decisions.names()) == {"accept", "abstain", "unfamiliar"}
    assert str(decisions[0]).startswith(decisions.names()[0] + ": label")
    counts = ", ".join(f"{count} {name}" for name, count in decisions.counts().items())
    assert repr(decisions) == f"Decisions({counts})"


def test_stages_have_data_of_their_own() -> None:
    sizes = {
        "false_alarm=0.1": 600,
        "false_alarm=0.1,coverage=0.7": 300,
        "youden": 300,
        "youden,coverage=0.7": 200,
        "error=1": 200,
    }
    ood = [drawn(100, np.random.default_rng(7), shift=3)]
    for text, size in sizes.items():
        goal = Goal.parse(text)
        policy = fitted(text, ood_validation=ood if goal.needs_ood else [])
        assert len(policy.reference.groups[0]) == size


def test_the_partition_follows_the_seed() -> None:
    observed = drawn(300, np.random.default_rng(0))
    goal = Goal(coverage=0.8)
    first, again, other = (
        Policy.from_readings(observed, goal, seed=seed).threshold for seed in (0, 0, 1)
    )
    assert first == again != other


def test_another_level_is_another_policy() -> None:
    policy = fitted("false_alarm=0.05")
    stricter = policy.at(0.2)
    fresh = drawn(500, np.random.default_rng(3))
    assert stricter.level == 0.2
    assert policy.level == 0.05
    flagged = [(each.decide(fresh).verdict == 2).sum() for each in (policy, stricter)]
    assert flagged[1] > 2 * flagged[0]
    with pytest.raises(InputError, match="needs 999 or more"):
        policy.at(0.001)


@pytest.mark.parametrize(
    "text",
    [
        "false_alarm=0.1",
        "false_alarm=0.1,coverage=0.7",
        "risk=0.2",
        "youden",
        "error=1,abstain=0.3",
    ],
)
def test_a_policy_survives_json(text: str) -> None:
    goal = Goal.parse(text)
    ood = [drawn(100, np.random.default_rng(7), shift=3)] if goal.needs_ood else []
    policy = fitted(text, ood_validation=ood)
    again = Policy.from_plain(json.loads(json.dumps(policy.to_plain(), allow_nan=False)))
    fresh = drawn(400, np.random.default_rng(1))
    before, after = policy.decide(fresh), again.decide(fresh)
    assert (before.verdict == after.verdict).all()
    assert (before.p_value == after.p_value).all()
    assert again.goal == goal
    assert again.summary() == policy.summary()


def test_a_policy_that_accepts_nothing_survives_json() -> None:
    """And infinite scores, which have a rank; those of the reference are no strict JSON."""
    observed = replace(drawn(300, np.random.default_rng(0)), wrong=np.ones(300, bool))
    observed.score[:40], observed.score[40:80], observed.doubt[:] = np.inf, -np.inf, 0
    ood = [drawn(100, np.random.default_rng(7), shift=3)]
    ood[0].doubt[:] = 0
    policy = Policy.from_readings(observed, Goal(costs=Costs(9, 9, 0.1, 0.1)), ood_validation=ood)
    assert policy.threshold == -np.inf
    again = Policy.from_plain(json.loads(json.dumps(policy.to_plain())))
    assert again.threshold == -np.inf
    assert again.summary() == policy.summary()
    assert "accept      nothing" in again.summary()
    assert not again.decide(observed).accepted.any()
    assert (again.decide(observed).p_value == policy.decide(observed).p_value).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"level": 1.5}, "expected a level from 0 to 1"),
        ({"level": float("nan")}, "expected a level from 0 to 1"),
        ({"threshold": "nan"}, "and a threshold, got 0.1 and nan"),
        ({"threshold": "low"}, "threshold: expected a number"),
        ({"reference": [[float("nan")]]}, "reference: expected sorted numbers"),
        ({"reference": [["nan"]]}, r"reference\[0\]\[0\]: expected a number"),
        ({"reference": [[2.0, 1.0]]}, "reference: expected sorted numbers"),
        ({"reference": []}, "reference: expected sorted numbers"),
        ({"level": "high"}, "level: expected a number"),
        ({"more": 1}, "unknown field"),
    ],
)
def test_garbled_policies_are_refused(change: dict[str, object], message: str) -> None:
    plain = fitted("false_alarm=0.1").to_plain() | change
    with pytest.raises(InputError, match=message):
        Policy.from_plain(plain)


def test_the_summary_says_what_is_promised() -> None:
    text = fitted("false_alarm=0.05,risk=0.2").summary()
    assert "at most 5% of known inputs on average" in text
    assert "at most 20% wrong with probability 90%" in text
    assert "300 calibration samples in the first stage" in text


UNASKED = "every familiar input, clear or not: the goal does not say how clear"


@pytest.mark.parametrize("text", ["false_alarm=0.05", "youden"])
def test_a_policy_without_a_goal_for_clarity_says_so(text: str) -> None:
    """Nine of ten labels are wrong, and all that is familiar is accepted."""
    observed = drawn(600, np.random.default_rng(0))
    observed = replace(observed, wrong=np.random.default_rng(1).random(600) < 0.9)
    ood = [drawn(100, np.random.default_rng(7), shift=3)] if text == "youden" else []
    policy = Policy.from_readings(observed, Goal.parse(text), ood_validation=ood)
    assert policy.facts["error"] > 0.8
    assert f"accept      {UNASKED}" in policy.summary()
    assert UNASKED in repr(policy)


@pytest.mark.parametrize("more", ["risk=0.9", "coverage=0.9"])
def test_a_policy_with_a_goal_for_clarity_does_not(more: str) -> None:
    policy = fitted(f"false_alarm=0.05,{more}")
    assert UNASKED not in policy.summary() + repr(policy)
    assert len(repr(policy)) < 250  # and not the whole reference
    lenient = policy.at(0.1)  # which keeps the threshold, and promises nothing of it
    assert (UNASKED in lenient.summary()) == (policy.threshold == np.inf)


def test_ties_and_infinite_scores_are_told() -> None:
    """The level holds then, but nothing is found; an alarm that never rings is no alarm."""
    observed = drawn(600, np.random.default_rng(0))
    assert "power" not in Policy.from_readings(observed, Goal(false_alarm=0.05)).summary()
    observed.score[:200] = 50.0
    tied = Policy.from_readings(observed, Goal(false_alarm=0.05))
    assert "little power: 33.3% of the calibration scores are 50, which is" in tied.summary()
    assert "about 0.00% are called unfamiliar" in tied.summary()
    observed.score[:200] = np.inf
    powerless = Policy.from_readings(observed, Goal(false_alarm=0.05))
    assert "33.3% of the calibration scores are inf, and no score is higher" in powerless.summary()
    far = replace(observed, score=np.full(600, np.inf))
    assert not (powerless.decide(far).verdict == Verdict.UNFAMILIAR).any()


def test_a_refused_risk_is_not_to_be_tried_again() -> None:
    observed = drawn(600, np.random.default_rng(0))
    observed = replace(observed, wrong=np.ones(600, bool))
    with pytest.raises(InputError, match="Do not try again with another seed"):
        Policy.from_readings(observed, Goal(false_alarm=0.05, risk=0.1))


def test_the_summary_does_not_round_a_promise_up() -> None:
    text = fitted("false_alarm=0.05,risk=0.2,delta=0.004").summary()
    assert "with probability 99.6%" in text
    assert "at least 99.5% of them" in fitted("coverage=0.995", count=900).summary()


def test_costs_move_the_decision() -> None:
    ood = [drawn(300, np.random.default_rng(7), shift=3)]
    observed = drawn(900, np.random.default_rng(0))
    dear = Policy.from_readings(observed, Goal(costs=Costs(1, 20, 0.05, 0.3)), ood_validation=ood)
    cheap = Policy.from_readings(observed, Goal(costs=Costs(1, 0.1, 0.05, 0.3)), ood_validation=ood)
    assert dear.level > cheap.level
    assert "expected cost of an input" in dear.summary()


# ---------------------------------------------------------------- with a model


@pytest.fixture(scope="module")
def task() -> Task:
    return digits()


@pytest.fixture(scope="module")
def model(task: Task) -> Model:
    torch.manual_seed(0)
    model = build_model("softmax", "mlp", task.num_classes, in_features=64, width=16)
    return model.eval()


def test_a_model_is_observed_as_its_belief_says(model: Model, task: Task) -> None:
    belief = model.predict(task.calibration)
    observed = read_belief(belief, "entropy", "max_prob", task.calibration.labels)
    p = belief.probs().numpy()
    assert observed.label.tolist() == p.argmax(1).tolist()
    assert observed.confidence == pytest.approx(p.max(1))
    assert observed.doubt == pytest.approx(1 - p.max(1))
    assert observed.score == pytest.approx(-(p * np.log(p)).sum(1))
    assert observed.wrong is not None
    assert (observed.wrong == (p.argmax(1) != task.calibration.labels.numpy())).all()


def test_a_policy_of_a_model(model: Model, task: Task) -> None:
    policy = Policy.fit(model, task.calibration, false_alarm=0.1)
    assert policy.score == model.head.named_scores["epistemic"]
    decisions = policy(model.predict(task.test))
    assert isinstance(decisions, Decisions)
    assert len(decisions) == len(task.test)
    flagged = (decisions.verdict == Verdict.UNFAMILIAR).mean()
    assert 0.02 < flagged < 0.2
    assert Policy.fit(model, task.calibration, "false_alarm=0.1").level == policy.level


def test_a_policy_with_infinite_scores_is_kept_in_a_file(
    model: Model, task: Task, tmp_path: Path
) -> None:
    policy = Policy.fit(model, task.calibration, false_alarm=0.1)
    scores = policy.reference.groups[0].copy()
    scores[-2:] = np.inf
    policy = replace(policy, reference=Reference((scores,)))
    again = load(save(tmp_path / "model.safetensors", model, policy=policy)).policy
    assert again is not None
    assert again.reference.groups[0].tolist() == scores.tolist()


def test_scores_of_detectors_count_too(model: Model, task: Task) -> None:
    belief = model.predict(task.calibration)
    belief = replace(belief, extra={"knn": torch.arange(len(belief)).double()})
    assert read_belief(belief, "knn", "max_prob").score[5] == 5.0
    with pytest.raises(InputError, match=r"unknown score 'nonsense'; known: .*knn"):
        read_belief(belief, "nonsense", "max_prob")


def test_other_roles_are_refused(model: Model, task: Task) -> None:
    for split in (task.train, task.validation, task.test):
        with pytest.raises(RoleError, match="which policy refuses"):
            Policy.fit(model, split)
    with pytest.raises(RoleError, match="choosing a level refuses"):
        Policy.fit(model, task.calibration, "youden", ood_validation=task.ood_test)


def test_bad_requests_are_refused(model: Model, task: Task) -> None:
    with pytest.raises(InputError, match="need OOD-validation data"):
        Policy.fit(model, task.calibration, "youden")
    with pytest.raises(InputError, match="leave them out"):
        Policy.fit(model, task.calibration, ood_validation=task.ood_validation)
    with pytest.raises(InputError, match="unknown goal alarm"):
        Policy.fit(model, task.calibration, alarm=0.1)
    with pytest.raises(InputError, match="not both"):
        Policy.fit(model, task.calibration, "youden", risk=0.1)
    with pytest.raises(InputError, match="which labels are wrong"):
        Policy.from_readings(replace(drawn(50, np.random.default_rng(0)), wrong=None), Goal())
    few = Readings(*(each[:1] for each in vars(drawn(5, np.random.default_rng(0))).values()))
    with pytest.raises(InputError, match="1 calibration samples are too few for 2 stages"):
        Policy.from_readings(few, Goal(coverage=0.5))
    with pytest.raises(
        InputError, match=r"0\.05 needs 37 or more .*, 19 of them in the first of 2"
    ):
        Policy.from_readings(drawn(36, np.random.default_rng(0)), Goal(coverage=0.5))
    with pytest.raises(InputError, match="need OOD-validation data"):
        Policy.from_readings(
            drawn(50, np.random.default_rng(0)),
            Goal(youden=True),
            ood_validation=[few[np.empty(0, int)]],
        )
    with pytest.raises(InputError, match="seed must be an integer of at least 0"):
        Policy.from_readings(drawn(50, np.random.default_rng(0)), Goal(), seed=-1)


def test_readings_are_numbers_of_one_length() -> None:
    good = drawn(5, np.random.default_rng(0))
    with pytest.raises(InputError, match=r"arrays of one length, got {'score': 5, 'doubt': 3"):
        replace(good, doubt=np.zeros(3))
    for name in ("score", "doubt"):
        with pytest.raises(InputError, match=f"{name}s must be numbers: number 2 is NaN"):
            replace(good, **{name: np.array([0, 0, np.nan, 0, 0])})


def test_a_single_calibration_sample_and_ties_everywhere() -> None:
    one = drawn(1, np.random.default_rng(0))
    policy = Policy.from_readings(one, Goal(false_alarm=0.5))
    higher = replace(one, score=one.score + 1)
    assert policy.decide(higher).p_value.tolist() == [0.5]
    assert policy.decide(one).p_value.tolist() == [1.0]
    alike = replace(drawn(300, np.random.default_rng(0)), score=np.zeros(300), doubt=np.zeros(300))
    decided = Policy.from_readings(alike, Goal(risk=0.2)).decide(alike)
    assert decided.counts() == {"accept": 300, "abstain": 0, "unfamiliar": 0}
    assert len(policy.decide(alike[np.empty(0, int)])) == 0


# ---------------------------------------------------------------- to choose by


def test_operating_points_are_what_policies_do(model: Model, task: Task) -> None:
    points = operating_points(model, task.calibration, task.ood_validation)
    observed = read_belief(
        model.predict(task.calibration), points.score, "max_prob", task.calibration.labels
    )
    assert observed.wrong is not None
    order = np.argsort(observed.doubt, kind="stable")
    assert points.risk[-1] == pytest.approx(observed.wrong.mean())
    half = (len(points.risk) + 1) // 2
    assert points.coverage[half - 1] == pytest.approx(half / len(order))
    assert points.risk[half - 1] == pytest.approx(observed.wrong[order[:half]].mean())
    name, found = next(iter(points.detection.items()))
    at = 12
    policy = Policy.fit(model, task.calibration, false_alarm=float(points.false_alarm[at]))
    flagged = policy(model.predict(task.ood_validation[name])).verdict == Verdict.UNFAMILIAR
    assert found[at] == pytest.approx(flagged.mean())


def test_the_figure_marks_the_policy(model: Model, task: Task, tmp_path: Path) -> None:
    points = operating_points(model, task.calibration, task.ood_validation)
    policy = Policy.fit(model, task.calibration, "false_alarm=0.05,coverage=0.8")
    figure = plot_operating_points(points, policy, tmp_path / "points.png")
    assert (tmp_path / "points.png").stat().st_size > 5000
    left, right = figure.axes
    mark = left.lines[1]
    assert mark.get_xdata()[0] == pytest.approx(100 * policy.facts["coverage"])
    assert right.lines[-1].get_xdata()[0] == pytest.approx(5.0)
    assert "OOD" not in left.get_title()
    bare = plot_operating_points(operating_points(model, task.calibration))
    assert "ood_validation=" in bare.axes[1].texts[0].get_text()


def test_decisions_can_be_cut_and_chosen() -> None:
    every = Decisions(
        np.array([0, 1, 2], np.int8), np.array([5, 6, 7]), np.array([0.9, 0.5, 0.8]),
        np.array([0.4, 0.3, 0.01]),
    )  # fmt: skip
    assert str(every[1]) == "abstain: label 6, confidence 0.500, p = 0.3"
    assert list(map(str, every[1:])) == [str(every[1]), str(every[2])]
    chosen = every[every.accepted]
    assert (len(chosen), str(chosen[0])) == (1, str(every[0]))
