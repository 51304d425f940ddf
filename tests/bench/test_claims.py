"""The ledger: verdicts on numbers whose answer is known."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from gemfi import metrics
from gemfi_bench.claims import CLAIMS, Claim, ledger
from gemfi_bench.claims import Test as OneTest
from gemfi_bench.claims.claim_tests import GridRow, better_by, better_ood, rising, sign_of, within
from gemfi_bench.claims.ledger import Tests, judge
from gemfi_bench.claims.numbers import (
    Number,
    correlation,
    gain_of_temperature,
    mean_among,
    mean_over,
    on_sets,
    on_test,
    under_shift,
    used_heads,
)
from gemfi_bench.grid import ABLATION, ABLATION_OURS, FISHER, KL, MAIN, OUTLIERS
from gemfi_bench.protocol import Shift
from gemfi_bench.record_file import Sets
from gemfi_bench.resampling import Draw, over_samples
from gemfi_bench.results import Results
from gemfi_bench.statistics import Difference, Interval
from gemfi_bench.tables.diagnostics import conditions
from gemfi_bench.unavailable import Unavailable
from support.benches import classified, detected, made_results

A, B, GEM = GridRow("a"), GridRow("b"), GridRow("gem-fi")


def claim(tests: Tests) -> Claim:
    return Claim("name", "text", "where", "statistic", tests)


def accuracy(results: Results) -> list[OneTest]:
    return [better_by(results, A, B, on_test("accuracy"), "accuracy")]


@pytest.mark.parametrize(
    ("first", "outcome"),
    [([97.0, 97.1, 97.3], "supported"), ([92.0, 92.1, 92.3], "refuted"),
     ([93.0, 97.0, 95.1], "undecided")],
)  # fmt: skip
def test_a_difference_is_called_one_only_beyond_its_interval(
    tmp_path: Path, first: list[float], outcome: str
) -> None:
    rows = {
        (MAIN, "a"): [classified(accuracy=each) for each in first],
        (MAIN, "b"): [classified(accuracy=each) for each in (95.0, 95.1, 95.2)],
    }
    found = judge(made_results(tmp_path, rows), claim(accuracy))
    assert (found.outcome, found.few_seeds) == (outcome, False)


def test_the_interval_is_students_of_the_paired_differences(tmp_path: Path) -> None:
    a, b = [97.0, 96.2, 98.4], [95.0, 95.9, 95.2]
    rows = {
        (MAIN, "a"): [classified(accuracy=each) for each in a],
        (MAIN, "b"): [classified(accuracy=each) for each in b],
    }
    (test,) = judge(made_results(tmp_path, rows), claim(accuracy)).tests
    gaps = np.subtract(a, b)
    low, high = stats.t.interval(0.95, 2, gaps.mean(), stats.sem(gaps))
    assert test.difference.interval is not None
    assert test.difference.interval.low == pytest.approx(low)
    assert test.difference.interval.high == pytest.approx(high)
    assert len(test.keys) == 6


def test_a_seed_without_a_number_is_told(tmp_path: Path) -> None:
    rows = {
        (MAIN, "a"): [classified(accuracy=each) for each in (97.0, None, 97.2)],
        (MAIN, "b"): [classified(accuracy=each) for each in (95.0, 95.1, 95.2)],
    }
    (test,) = judge(made_results(tmp_path, rows), claim(accuracy)).tests
    assert test.what.endswith("(in 2 of 3 seeds)")
    assert len(test.keys) == 4
    assert test.difference.estimate == pytest.approx(2.0)


def test_two_seeds_decide_nothing(tmp_path: Path) -> None:
    rows = {
        (MAIN, "a"): [classified(accuracy=97.0), classified(accuracy=97.2)],
        (MAIN, "b"): [classified(accuracy=90.0), classified(accuracy=90.1)],
    }
    found = judge(made_results(tmp_path, rows), claim(accuracy))
    assert (found.outcome, found.few_seeds) == ("undecided", True)


def test_one_refuted_test_refutes_and_all_must_support(tmp_path: Path) -> None:
    values = (95.0, 95.1, 95.2)
    near = {
        (MAIN, "a"): [detected(digits_8_9=value) for value in values],
        (MAIN, "b"): [detected(digits_8_9=90.0)] * 3,
    }
    results = made_results(tmp_path / "near", near)
    better = claim(lambda results: better_ood(results, A, B))
    assert judge(results, better).outcome == "supported"
    both = {
        (MAIN, "a"): [detected(digits_8_9=value, noise=value - 10) for value in values],
        (MAIN, "b"): [detected(digits_8_9=90.0, noise=90.0)] * 3,
    }
    found = judge(made_results(tmp_path / "both", both), better)
    assert [test.verdict for test in found.tests] == ["supported", "refuted"]
    assert found.outcome == "refuted"


def test_missing_runs_say_which(tmp_path: Path) -> None:
    results = made_results(tmp_path, {(MAIN, "a"): [classified(accuracy=97.0)]})
    found = judge(results, claim(accuracy))
    assert (found.outcome, found.reason) == ("not tested", "no runs of b")


def test_with_one_seed_the_interval_is_the_paired_bootstrap(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def arrays(shift: float) -> Sets:
        return {
            "test": {"score/entropy": rng.normal(size=400)},
            "noise": {"score/entropy": rng.normal(size=400) + shift},
        }

    kept = {(MAIN, "a"): [arrays(3.0)], (MAIN, "b"): [arrays(0.5)]}
    rows = {
        key: [
            detected(
                noise=metrics.auroc(sets["test"]["score/entropy"], sets["noise"]["score/entropy"])
            )
        ]
        for key, (sets,) in kept.items()
    }
    results = made_results(tmp_path, rows, kept)
    found = judge(results, claim(lambda results: better_ood(results, A, B, "auroc")))
    (test,) = found.tests
    assert test.difference.interval is not None
    assert test.difference.interval.low < test.difference.estimate < test.difference.interval.high
    assert (found.outcome, found.few_seeds) == ("undecided", True)


def classified_arrays(right: float, seed: int, n: int = 400) -> Sets:
    """Predictions of which this share is right, sure of themselves."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 3, n)
    said = np.where(rng.random(n) < right, label, (label + 1) % 3)
    probs = np.full((n, 3), 0.05)
    probs[np.arange(n), said] = 0.9
    return {"test": {"log_probs": np.log(probs), "label": label, "prediction": said}}


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_difference_that_seeds_do_not_vary_has_an_interval_over_samples(
    tmp_path: Path, seeds: int
) -> None:
    one, other = classified_arrays(0.95, 1), classified_arrays(0.7, 2)
    kept = {(MAIN, "a"): [one] * seeds, (MAIN, "b"): [other] * seeds}
    accuracies = {
        key: metrics.accuracy(np.exp(sets["test"]["log_probs"]), sets["test"]["label"])
        for key, (sets, *_) in kept.items()
    }
    rows = {key: [classified(accuracy=each)] * seeds for key, each in accuracies.items()}
    (test,) = judge(made_results(tmp_path / "with", rows, kept), claim(accuracy)).tests
    interval = test.difference.interval
    assert interval is not None
    assert 10 < interval.low < test.difference.estimate < interval.high < 40
    assert interval.estimate == pytest.approx(test.difference.estimate)
    assert test.verdict == ("supported" if seeds == 3 else "undecided")

    (test,) = judge(made_results(tmp_path / "without", rows), claim(accuracy)).tests
    assert (test.difference.interval, test.verdict) == (None, "undecided")


NUMBERS: dict[str, Number] = {
    **{name: on_test(name) for name in ("accuracy", "nll", "brier", "ece", "aupr_correct")},
    "epistemic": on_sets(["digits-8-9", "noise"], "epistemic", "aupr_id"),
    "entropy": on_sets(["noise"], "entropy", "auroc"),
    "detector": on_sets(["noise"], "knn", "auroc", detector=True),
    "severe": under_shift(5, "aleatoric", "aupr_ood"),
    "shifted": under_shift(None, "aleatoric", "aupr_ood"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_arrays_give_the_number_of_the_record(small_results: Results, name: str) -> None:
    number = NUMBERS[name]
    run = small_results.runs("softmax" if name == "detector" else "gem-fi")[0]
    seen: list[float | None] = []

    def statistic(draw: Draw) -> float | None:
        seen.append(number.measure(run, draw(small_results.arrays(run))))
        return seen[-1]

    found = over_samples(statistic, 20)
    assert number.pick is not None
    assert seen[0] == pytest.approx(number.pick(run), abs=2e-5)  # the arrays are float32
    assert len(set(seen)) > 10
    assert found is not None
    assert found.low < found.high


def test_within_a_margin_needs_the_whole_interval_inside(tmp_path: Path) -> None:
    rows = {
        (FISHER, "0.1"): [classified(accuracy=95.0)] * 3,
        (FISHER, "same"): [classified(accuracy=v) for v in (95.1, 95.0, 94.9)],
        (FISHER, "other"): [classified(accuracy=v) for v in (90.1, 90.0, 89.9)],
        (FISHER, "noisy"): [classified(accuracy=v) for v in (99.0, 95.0, 91.0)],
    }
    default, number = GridRow("0.1", FISHER), on_test("accuracy")
    found = within(made_results(tmp_path, rows), default, number, "accuracy", 1.0)
    assert [test.verdict for test in found] == ["supported", "refuted", "undecided"]


def test_sweeps_are_judged_by_accuracy_too(tmp_path: Path) -> None:
    """The AUPR is the same for all; one of the weights costs three points of accuracy."""
    rows = {
        (KL, name): [
            {**detected(noise=90.0 + at / 10), "test": {"id": {"accuracy": accuracy + at / 10}}}
            for at in range(3)
        ]
        for name, accuracy in (("0.0001", 95.0), ("1e-05", 95.01), ("0.01", 92.0))
    }
    rows[KL, "1e-05"][1]["test"]["id"]["accuracy"] += 0.01
    rows[KL, "0.01"][1]["test"]["id"]["accuracy"] += 0.01
    for name in ("1e-05", "0.01"):
        rows[KL, name][1]["ood"]["noise"]["by_score"]["entropy"]["aupr_id"] += 0.01
    (sweep,) = (each for each in CLAIMS if each.name == "lambda-kl")
    found = judge(made_results(tmp_path, rows), sweep)
    assert [(each.what.split(" at ")[0], each.verdict) for each in found.tests] == [
        ("mean AUPR", "supported"),
        ("mean AUPR", "supported"),
        ("accuracy", "supported"),
        ("accuracy", "refuted"),
    ]


@pytest.mark.parametrize(
    ("numbers", "ratio", "said"),
    [
        ((1.2345, 0.5, 2.0), False, ("+1.23", "[+0.50, +2.00]")),
        ((-0.0048, -0.0061, -0.0035), False, ("-0.0048", "[-0.0061, -0.0035]")),
        ((-4.2e-6, -6.1e-6, 1e-7), False, ("-4.2e-06", "[-6.1e-06, +1.0e-07]")),
        ((0.0, 0.0, 0.0), False, ("+0.00", "[+0.00, +0.00]")),
        ((1.4, 1.3, 1.5), True, ("1.40", "[1.30, 1.50]")),
        ((3.0, None, None), False, ("+3.00", "no interval")),
    ],
)
def test_a_test_is_told_with_the_digits_that_it_needs(
    numbers: tuple[float, float | None, float | None], ratio: bool, said: tuple[str, str]
) -> None:
    estimate, low, high = numbers
    interval = None if low is None or high is None else Interval(low, high, estimate)
    difference = Difference(estimate, interval, 3)
    found = OneTest("a", difference, "undecided", ratio=ratio)
    assert found.shown() == said


def test_rows_are_called_as_people_call_them(tmp_path: Path) -> None:
    rows = {
        (OUTLIERS, name): [detected(noise=value + at * at) for at in range(3)]
        for name, value in (("gem-fi+none", 80.0), ("daedl+vos", 70.0))
    } | {
        (ABLATION, name): [detected(noise=value + at * at) for at in range(3)]
        for name, value in (("ablation-sn", 80.0), ("ablation-none", 70.0))
    }
    results = made_results(tmp_path, rows)
    first, second = GridRow("gem-fi+none", OUTLIERS), GridRow("daedl+vos", OUTLIERS)
    (test,) = better_ood(results, first, second)
    assert test.what.endswith("GEM-FI without outliers against DAEDL + VOS")
    first, second = GridRow("ablation-sn", ABLATION), GridRow("ablation-none", ABLATION)
    (test,) = better_ood(results, first, second)
    assert test.what.endswith("row SN against row none")


# -- measures -------------------------------------------------------------------------------------


def sets_of(seed: int = 0) -> Sets:
    rng = np.random.default_rng(seed)
    n = 300
    probs = rng.dirichlet(np.full(4, 0.3), n)
    label = np.array([rng.choice(4, p=p) for p in probs])
    sharp = probs**3 / (probs**3).sum(axis=1, keepdims=True)  # T = 1/3 would undo this
    tested = {
        "log_probs": np.log(sharp + 1e-12),
        "label": label,
        "prediction": sharp.argmax(axis=1),
        "score/max_prob": 1 - sharp.max(axis=1),
        "part/distance": rng.random(n),
        "router": rng.dirichlet(np.ones(3), n),
    }
    tested["score/energy"] = tested["part/distance"] ** 3
    tested["part/router_entropy"] = rng.random(n)
    return {"test": tested, "validation": tested, "noise": {"part/router_entropy": np.ones(9)}}


def routed(steps: tuple[float, float, float], seed: int) -> Sets:
    """A router of the given entropies on easy inputs, at the boundary, and far away."""
    sets = sets_of(seed)
    tested, noise = sets["test"], np.random.default_rng(seed).normal(0, 1e-8, 300)
    groups = conditions(tested)
    entropy = np.select([groups["easy"], groups["boundary"]], steps[:2], 0.5) + noise
    tested["part/router_entropy"] = entropy
    return {"test": tested, "noise": {"part/router_entropy": steps[2] + noise}}


@pytest.mark.parametrize(
    ("steps", "outcome"),
    [
        ((0.2, 0.7, 1.05), "supported"),
        ((1.098610, 1.098611, 1.098612), "refuted"),  # rising, and the same for all that it means
        ((0.2, 0.7, 0.6), "refuted"),
    ],
)
def test_a_router_must_tell_inputs_apart_by_more_than_the_last_digits(
    tmp_path: Path, steps: tuple[float, float, float], outcome: str
) -> None:
    kept = {(MAIN, "gem-fi"): [routed(steps, seed) for seed in range(3)]}
    results = made_results(tmp_path, {(MAIN, "gem-fi"): [detected(noise=90.0)] * 3}, kept)
    found = next(each for each in CLAIMS if each.name == "routing")
    assert judge(results, found).outcome == outcome


def of_arrays(number: Number, sets: Sets) -> float | None:
    """A number that asks nothing of the run."""
    return number.measure(None, sets)  # type: ignore[arg-type]


def test_correlation_is_scipys() -> None:
    sets = sets_of()
    tested = sets["test"]
    oracle = stats.spearmanr(tested["router"][:, 0], tested["part/distance"]).statistic
    tested["first"] = tested["router"][:, 0]
    assert of_arrays(correlation("first", "part/distance"), sets) == pytest.approx(oracle)
    assert of_arrays(correlation("score/energy", "part/distance"), sets) == pytest.approx(1.0)
    assert of_arrays(correlation("no", "part/distance"), sets) is None


def test_easy_and_boundary_are_right_predictions_by_confidence() -> None:
    sets = sets_of()
    tested = sets["test"]
    for group in ("easy", "boundary"):
        chosen = []
        for row in range(len(tested["label"])):
            confidence = np.exp(tested["log_probs"][row]).max()
            right = tested["log_probs"][row].argmax() == tested["label"][row]
            wanted = confidence >= 0.9 if group == "easy" else confidence < 0.6
            chosen += [tested["part/router_entropy"][row]] if right and wanted else []
        found = of_arrays(mean_among("part/router_entropy", group), sets)
        assert found == pytest.approx(np.mean(chosen))


def test_temperature_takes_away_what_overconfidence_put_there() -> None:
    sets = sets_of()  # validation and test data are the same, so that the best T is known by search
    tested = sets["test"]
    nlls = []
    for beta in np.linspace(0.05, 2, 500):
        scaled = beta * tested["log_probs"]
        logs = scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))
        nlls.append(-logs[np.arange(len(logs)), tested["label"]].mean())
    before = -tested["log_probs"][np.arange(300), tested["label"]].mean()
    gain = of_arrays(gain_of_temperature("nll"), sets)
    assert gain == pytest.approx(before - min(nlls), abs=1e-4)


def test_used_heads_is_the_perplexity_of_the_mean_weights() -> None:
    weights = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert of_arrays(used_heads(), {"test": {"router": weights}}) == pytest.approx(2.0)
    assert of_arrays(used_heads(), {"test": {"router": weights[:1]}}) == pytest.approx(1.0)
    assert of_arrays(used_heads(), {"test": {}}) is None


def test_rising_and_sign_read_the_arrays(tmp_path: Path) -> None:
    kept = {(MAIN, "gem-fi"): [sets_of(seed) for seed in range(3)]}
    results = made_results(tmp_path, {(MAIN, "gem-fi"): [classified()] * 3}, kept)
    steps = [
        ("ID", mean_over("part/router_entropy")),
        ("far", mean_over("part/router_entropy", ("noise",))),
    ]
    (up,) = rising(results, GEM, steps, "entropy")
    (down,) = rising(results, GEM, steps[::-1], "entropy")
    (far,) = rising(results, GEM, steps, "entropy", margin=100.0)  # they rise by less than that
    follows = correlation("score/energy", "part/distance")
    falls = sign_of(results, GEM, follows, "correlation", better="low")
    verdicts = [test.verdict for test in (up, down, far, falls)]
    assert verdicts == ["supported", "refuted", "refuted", "refuted"]


# -- the whole ledger -----------------------------------------------------------------------------


def test_names_of_claims_are_unique() -> None:
    names = [each.name for each in CLAIMS]
    assert len(set(names)) == len(names)


def test_every_claim_can_be_judged_by_records_without_anything(tmp_path: Path) -> None:
    results = made_results(tmp_path, {(MAIN, "softmax"): [detected(noise=90.0)]})
    for each in ledger(results, CLAIMS):
        assert each.outcome == "not tested", each.claim.name
        assert each.reason


@pytest.mark.parametrize(
    ("shift", "said"),
    [
        (Shift(), "this protocol has no corruptions"),
        (Shift(("fog",), (3,)), "the corruptions of this protocol have one severity"),
    ],
)
def test_severity_needs_corruptions_of_several(tmp_path: Path, shift: Shift, said: str) -> None:
    results = made_results(tmp_path, {(MAIN, "gem-fi"): [classified(accuracy=90.0)]})
    results.protocol = replace(results.protocol, shift=shift)
    (severity,) = (each for each in CLAIMS if each.name == "shift-severity")
    found = judge(results, severity)
    assert (found.outcome, found.reason) == ("not tested", said)


def test_the_ablation_is_judged_under_both_settings(tmp_path: Path) -> None:
    """Here spectral normalisation helps under our settings, and hurts under the paper's."""
    rows = {
        (group, name): [detected(digits_8_9=value + at / 10, noise=value) for at in range(3)]
        for group, gain in ((ABLATION_OURS, 5.0), (ABLATION, -5.0))
        for name, value in (("ablation-sn", 80.0 + gain), ("ablation-none", 80.0))
    }
    results = made_results(tmp_path, rows)
    known = {each.name: each for each in CLAIMS}
    ours, papers = (judge(results, known[name]) for name in ("sn", "sn (the paper's settings)"))
    assert [test.difference.estimate for test in ours.tests] == pytest.approx([5.0, 5.0])
    assert [test.difference.estimate for test in papers.tests] == pytest.approx([-5.0, -5.0])
    assert "ablation of our settings" in ours.claim.statistic
    for name in ("core", "mix", "fi-ebm", "full", "without-sn", "collapse"):
        assert {name, f"{name} (the paper's settings)"} <= known.keys()


def test_both_kinds_of_mutual_information_are_judged(tmp_path: Path) -> None:
    areas = {"mutual_information": 95.0, "disagreement": 70.0, "max_prob": 90.0, "entropy": 91.0,
             "evidence": 92.0, "energy": 80.0}  # fmt: skip
    seeds = []
    for at in range(3):
        by = {
            name: {"auroc": value + at * (name == "disagreement") + at * at * (name == "energy")}
            for name, value in areas.items()
        }
        by["mutual_information"]["auroc"] += at / 7
        sets = ("digits-8-9", "noise", "inverted", "shuffled")
        seeds.append({"ood": {name: {"by_score": by, "by_detector": {}} for name in sets}})
    results = made_results(tmp_path, {(MAIN, "gem-fi"): seeds})
    known = {each.name: each for each in CLAIMS}
    total, between = (judge(results, known[name]) for name in ("mi", "mi-between"))
    assert (total.outcome, between.outcome) == ("supported", "refuted")
    assert [test.what for test in between.tests] == [
        f"mean AUROC: disagreement against {other}"
        for other in ("1 − max p", "entropy", "evidence score", "energy")
    ]


def test_seeds_without_arrays_are_left_out_and_counted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    key = (MAIN, "gem-fi")
    x = rng.normal(size=200)
    sets: Sets = {"test": {"a": x, "b": x + rng.normal(size=200)}}
    results = made_results(tmp_path, {key: [classified(accuracy=90.0)] * 3}, {key: [sets] * 3})
    follows = partial(sign_of, results, GEM, correlation("a", "b"), "correlation")
    whole = follows()
    assert (whole.what, whole.difference.n) == ("correlation", 3)
    for run in results.runs("gem-fi")[1:]:
        results.file.arrays(run.key).unlink()
    test = follows()
    assert (test.what, test.difference.n) == ("correlation (in 1 of 3 seeds)", 1)
    assert test.difference.interval is not None  # over samples
    assert (whole.verdict, test.verdict) == ("supported", "undecided")
    results.file.arrays(results.runs("gem-fi")[0].key).unlink()
    with pytest.raises(Unavailable, match="the arrays of the runs are not here"):
        follows()


def test_a_step_counts_the_seeds_that_both_have(tmp_path: Path) -> None:
    """The arrays of one seed are gone: heads that collapse are told of the other two."""
    rng = np.random.default_rng(0)
    rows = [(ABLATION, name) for name in ("ablation-fi", "ablation-mix")]
    sets: dict[tuple[str, str], list[Sets]] = {
        row: [{"test": {"router": rng.dirichlet([3.0] * 3, 50)}} for _ in range(3)] for row in rows
    }
    results = made_results(tmp_path, {row: [classified(accuracy=90.0)] * 3 for row in rows}, sets)
    (collapse,) = (each for each in CLAIMS if each.name == "collapse (the paper's settings)")
    (whole,) = judge(results, collapse).tests
    assert (whole.what, whole.difference.n) == ("effective heads", 3)
    results.file.arrays(results.runs("ablation-mix", ABLATION)[1].key).unlink()
    (test,) = judge(results, collapse).tests
    assert (test.what, test.difference.n) == ("effective heads (in 2 of 3 seeds)", 2)
    assert test.difference.few_seeds
    assert test.verdict == "undecided"
