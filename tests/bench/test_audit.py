"""Bounds against brute force and simulation; rules on made-up numbers, then on the paper's."""

from __future__ import annotations

import doctest
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from gemfi import metrics
from gemfi.errors import InputError
from gemfi.metrics import Floats
from gemfi_bench import audit as audit_module
from gemfi_bench.audit import RULES, Flag, audit, quantity
from gemfi_bench.published import PAIRS, PUBLISHED, Key, Published, bounds
from gemfi_bench.published.known import CONVENTIONS, PROBLEMS, is_one_of

SVHN = PAIRS["cifar10>svhn"]
TINY = 1e-9


# --- the Brier score --------------------------------------------------------------------------


@pytest.mark.parametrize("convention", ["sum", "mean"])
def test_no_brier_score_is_below_its_bound(convention: str) -> None:
    rng = np.random.default_rng(0)
    for concentration in (0.05, 0.3, 1.0, 20.0):
        probs = rng.dirichlet(np.full(10, concentration), 400)
        labels = np.where(rng.random(400) < 0.8, probs.argmax(1), rng.integers(0, 10, 400))
        accuracy = metrics.accuracy(probs, labels) / 100
        found = metrics.brier(probs, labels, convention) / 100  # type: ignore[arg-type]
        assert found >= bounds.least_brier(accuracy, convention) - TINY


@pytest.mark.parametrize("convention", ["sum", "mean"])
def test_ties_with_the_label_reach_the_least_brier_score(convention: str) -> None:
    probs = np.zeros((100, 10))
    probs[:, 0] = 1.0
    probs[:7] = np.eye(10)[0] / 2 + np.eye(10)[1] / 2  # the first of equals is predicted
    labels = np.zeros(100, dtype=int)
    labels[:7] = 1
    assert metrics.accuracy(probs, labels) == 93.0
    found = metrics.brier(probs, labels, convention) / 100  # type: ignore[arg-type]
    assert found == pytest.approx(bounds.least_brier(0.93, convention))


# --- average precision and AUROC --------------------------------------------------------------


def measured(positive: Floats, negative: Floats) -> tuple[float, float, float]:
    """AP, AUROC and base rate by scikit-learn; higher is more positive."""
    truth = np.repeat([1, 0], [len(positive), len(negative)])
    scores = np.concatenate([positive, negative])
    ap = float(average_precision_score(truth, scores))
    return ap, float(roc_auc_score(truth, scores)), len(positive) / len(truth)


def every_ranking(positives: int, negatives: int) -> Iterator[tuple[Floats, Floats]]:
    """Every order of few samples, tied in every way that neighbours can."""
    total = positives + negatives
    for chosen in itertools.combinations(range(total), positives):
        for cuts in itertools.product([0, 1], repeat=total - 1):
            scores = np.cumsum([0, *cuts]).astype(float)
            yield scores[list(chosen)], np.delete(scores, chosen)


def test_no_ranking_of_few_samples_crosses_a_bound() -> None:
    most: dict[float, float] = {}
    for positive, negative in every_ranking(3, 3):
        inside = metrics.ood_metrics(-positive, -negative)  # ID is positive
        ap, auroc = inside["aupr_id"] / 100, inside["auroc"] / 100
        assert ap <= bounds.largest_ap_with_ties(auroc, 0.5) + TINY
        assert ap >= bounds.least_ap_with_ties(auroc, 0.5) - TINY
        most[round(auroc, 6)] = max(most.get(round(auroc, 6), 0.0), ap)
    for share in (0.0, 1 / 3, 2 / 3, 1.0):  # of positives above, the others tied below
        assert most[round(share, 6)] == pytest.approx(bounds.largest_ap_with_ties(share, 0.5))


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=15),
    st.lists(st.integers(0, 5), min_size=1, max_size=15),
)
def test_no_tied_scores_cross_a_bound(inside: list[int], outside: list[int]) -> None:
    found = metrics.ood_metrics(np.array(inside, float), np.array(outside, float))
    rate = len(inside) / (len(inside) + len(outside))
    for side, base_rate in (("aupr_id", rate), ("aupr_ood", 1 - rate)):
        ap, auroc = found[side] / 100, found["auroc"] / 100
        assert ap <= bounds.largest_ap_with_ties(auroc, base_rate) + TINY
        assert ap >= bounds.least_ap_with_ties(auroc, base_rate) - TINY


@settings(max_examples=40)
@given(st.permutations([True] * 6 + [False] * 6), st.integers(1, 11))
def test_no_untied_scores_cross_a_bound(order: list[bool], cut: int) -> None:
    is_positive = np.array([*order[:cut], True, False, *order[cut:]])
    ranks = np.arange(len(is_positive), dtype=float)
    ap, auroc, rate = measured(ranks[is_positive], ranks[~is_positive])
    assert bounds.least_ap(auroc, rate) - TINY <= ap
    assert ap <= bounds.largest_ap(auroc, rate) + 1 / is_positive.sum()


@pytest.mark.parametrize(("auroc", "negatives"), [(0.8, 6000), (0.75, 2000), (0.95, 700)])
def test_scores_that_reach_the_largest_ap(auroc: float, negatives: int) -> None:
    above = round(2000 * auroc)
    low = np.linspace(-2, -1, 2000 - above)
    positive = np.append(np.linspace(1, 2, above), low)
    ap, found, rate = measured(positive, np.linspace(-0.5, 0.5, negatives))
    assert found == pytest.approx(auroc)
    assert ap == pytest.approx(bounds.largest_ap(auroc, rate), abs=1e-3)
    tied = np.append(np.linspace(1, 2, above), np.full_like(low, -2.0))
    ap, _, _ = measured(tied, np.linspace(-0.5, 0.5, negatives))
    assert ap == pytest.approx(bounds.largest_ap_with_ties(auroc, rate))


def lowest_path(r: float, price: float, size: int) -> tuple[float, float]:
    """AP and AUROC of the order of positives and negatives with the least AP + price·∫f.

    The best way to each point of the grid comes from the best ways to its two neighbours.
    """
    recall, share = np.arange(size + 1) / size, np.arange(size + 1) / size
    cost, ap, area = (np.zeros(size + 1) for _ in range(3))  # along the negatives, no positive yet
    for t in recall[1:]:
        precision = t / (t + r * share)
        cost, ap, area = (
            cost + (precision + price * share) / size,
            ap + precision / size,
            area + share / size,
        )
        for at in range(1, size + 1):  # a negative before the next positive costs nothing
            if cost[at - 1] < cost[at]:
                cost[at], ap[at], area[at] = cost[at - 1], ap[at - 1], area[at - 1]
    return float(ap[-1]), 1 - float(area[-1])


@pytest.mark.parametrize("r", [0.384, 1.0, 2.6032])
@pytest.mark.parametrize("price", [0.3, 0.6, 1.0, 2.0, 3.0])
def test_the_least_ap_is_that_of_the_worst_order(r: float, price: float) -> None:
    for size in (30, 150):
        ap, auroc = lowest_path(r, price, size)
        excess = ap - bounds.least_ap(auroc, 1 / (1 + r))
        assert -TINY <= excess <= 0.5 / size  # goes to 0: the bound is reached


def test_ends_of_the_bounds() -> None:
    for rate in (0.1, 0.5, 0.9):
        assert bounds.least_ap(1.0, rate) == pytest.approx(1.0)
        assert bounds.largest_ap(1.0, rate) == 1.0
        assert bounds.least_ap(0.0, rate) == pytest.approx(bounds.largest_ap(0.0, rate))
        assert bounds.largest_ap_with_ties(0.0, rate) == pytest.approx(rate)


@settings(max_examples=40)
@given(st.floats(0, 1), st.floats(0, 1), st.floats(0.05, 0.95))
def test_bounds_hold_for_means(one: float, other: float, rate: float) -> None:
    middle = (one + other) / 2
    for most in (bounds.largest_ap, bounds.largest_ap_with_ties):
        assert (most(one, rate) + most(other, rate)) / 2 <= most(middle, rate) + TINY
    for least in (bounds.least_ap, bounds.least_ap_with_ties):
        assert (least(one, rate) + least(other, rate)) / 2 >= least(middle, rate) - TINY


@settings(max_examples=40)
@given(st.floats(0, 1), st.floats(0.05, 0.95))
def test_bounds_are_in_order(auroc: float, rate: float) -> None:
    low, high = bounds.least_ap(auroc, rate), bounds.largest_ap(auroc, rate)
    assert bounds.least_ap_with_ties(auroc, rate) <= low + TINY
    assert low <= high + TINY
    assert high <= bounds.largest_ap_with_ties(auroc, rate) + TINY
    assert bounds.least_auroc(bounds.largest_ap_with_ties(auroc, rate), rate) == pytest.approx(
        auroc, abs=1e-12
    )


def test_figures_that_were_derived_by_hand() -> None:
    assert 100 * bounds.largest_ap(0.8129, SVHN.base_rate_id) == pytest.approx(86.1, abs=0.05)
    assert 100 * bounds.largest_ap(0.8129, SVHN.base_rate_ood) == pytest.approx(94.4, abs=0.05)
    assert 100 * bounds.largest_ap(0.7460, 0.5) == pytest.approx(86.4, abs=0.05)
    assert 100 * bounds.least_brier(0.9334) == pytest.approx(3.33)
    assert bounds.least_ap(0.5, 1e-4) / 1e-4 == pytest.approx(8 / 9, abs=1e-3)  # r large: 4/9 / ½


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InputError, match=r"auroc must be at least 0 and at most 1, got 81.29"):
        bounds.largest_ap(81.29, 0.5)
    with pytest.raises(InputError, match="base_rate must be above 0 and below 1, got 1"):
        bounds.least_ap(0.5, 1)
    with pytest.raises(InputError, match="ap must be at least 0"):
        bounds.least_auroc(-0.1, 0.5)
    with pytest.raises(InputError, match="accuracy must be at least 0"):
        bounds.least_brier(math.nan)
    with pytest.raises(InputError, match="convention must be one of sum, mean"):
        bounds.least_brier(0.9, "median")


def test_random_scores_have_the_accuracy_as_error_detection() -> None:
    rng = np.random.default_rng(0)
    correct = rng.random(4000) < 0.93
    found = [metrics.error_detection(rng.random(4000), correct)["aupr_correct"] for _ in range(30)]
    assert np.mean(found) == pytest.approx(100 * correct.mean(), abs=0.2)


# --- the rules on made-up numbers -------------------------------------------------------------


def number(key: Key, mean: float, std: float | None = 0.0, metric: str = "") -> Published:
    return Published(*key, metric or key[2], mean, std, "")


def flags(*entries: Published) -> dict[Key, set[str]]:
    """Label, row and column -> severities."""
    return {key: {flag.severity for flag in found} for key, found in audit(entries).items()}


ROW = ("table3", "new")
CELL = ("new", "cifar10>svhn/epistemic")


def pair(aupr: float, auroc: float, std: float = 0.0, auroc_std: float = 0.0) -> list[Published]:
    return [
        number(("table2", *CELL), aupr, std, "aupr_id"),
        number(("table2b", *CELL), auroc, auroc_std, "auroc"),
    ]


@pytest.mark.parametrize(
    ("brier", "std", "impossible"), [(1.27, 0.02, True), (3.4, 0.0, False), (3.0, 0.3, False)]
)
def test_brier_below_errors(brier: float, std: float, impossible: bool) -> None:
    accuracy = number((*ROW, "accuracy"), 93.34, 0.0)
    found = flags(accuracy, number((*ROW, "brier"), brier, std))
    assert found == ({(*ROW, "brier"): {"impossible"}} if impossible else {})


def test_brier_of_another_table_takes_the_accuracy_of_table3_and_its_convention() -> None:
    accuracy = number((*ROW, "accuracy"), 93.34)
    key, mean = ("table13-cifar10", "new", "brier"), ("ts_calibration", "new", "brier/before")
    entries = (accuracy, number(key, 1.27), number(mean, 1.27, None, "brier"))
    assert flags(*entries) == {key: {"impossible"}}
    assert flags(number(key, 1.27)) == {}  # without an accuracy nothing can be said


def test_aupr_above_what_the_auroc_allows() -> None:
    both = {("table2", *CELL): {"impossible"}, ("table2b", *CELL): {"impossible"}}
    assert flags(*pair(90.60, 81.29, 0.23, 1.06)) == both
    assert flags(*pair(86.40, 81.29, 0.1, 0.2)) == {}  # with ties it is possible
    excused = flags(*pair(88.00, 81.29, 0.1, 3.0))
    assert excused == {("table2", *CELL): {"suspicious"}, ("table2b", *CELL): {"suspicious"}}


def test_aupr_below_what_the_auroc_allows() -> None:
    ours = audit(pair(40.00, 81.29, 0.1, 0.2))["table2", *CELL]
    assert "with ID positive at least 45.03 without ties" in " ".join(f.reason for f in ours)
    assert {flag.severity for flag in ours} == {"suspicious"}  # ties might do it
    assert "impossible" in flags(*pair(25.00, 81.29, 0.1, 0.2))["table2", *CELL]


def test_aupr_that_cannot_have_ood_positive() -> None:
    found = audit(pair(87.80, 94.36, 0.15, 1.02))
    assert list(found) == [("table2", *CELL)]
    assert "at least 91.65 without ties if OOD were positive" in found["table2", *CELL][0].reason
    assert flags(*pair(87.80, 94.36, 2.5, 1.02)) == {}


def test_error_detection() -> None:
    accuracy, key = number((*ROW, "accuracy"), 93.40, 0.15), (*ROW, "aupr_correct")
    assert flags(accuracy, number(key, 89.68, 0.30)) == {key: {"suspicious"}}
    assert flags(accuracy, number(key, 93.00, 0.30)) == {}
    assert flags(accuracy, number(key, 99.50, 0.01)) == {}
    found = audit([accuracy, number(key, 99.94, 0.01)])[key]
    assert [flag.severity for flag in found] == ["suspicious"]
    assert "needs an AUROC of 99.1 or more" in found[0].reason


@pytest.mark.parametrize(("after", "impossible"), [(0.2189, True), (0.2134, False), (0.21, False)])
def test_temperature_scaling(after: float, impossible: bool) -> None:
    keys = [("ts_calibration", "new", f"nll/{when}") for when in ("before", "after")]
    entries = [number(keys[0], 0.2133, None, "nll"), number(keys[1], after, None, "nll")]
    assert flags(*entries) == ({keys[1]: {"impossible"}} if impossible else {})


def cells(offset: float, std: float, count: int) -> Iterable[Published]:
    for at, (name, kind) in enumerate(
        itertools.product(list(PAIRS)[:4], ("aleatoric", "epistemic"))
    ):
        if at < count:
            column = f"{name}/{kind}"
            yield number(("table2", "new", column), 90.0, 0.5, "aupr_id")
            yield number(("table2b", "new", column), 90.0 - offset, std, "auroc")


def test_copied_auroc() -> None:
    assert len(flags(*cells(0.5, 0.5, 4))) == 4
    assert flags(*cells(0.5, 0.5, 1)) == {}  # once is an accident
    assert flags(*cells(0.5, 0.4, 4)) == {}
    assert len(flags(*cells(2.0, 0.5, 4))) == 4  # only the std is the same, in the whole row
    assert flags(*cells(2.0, 0.5, 3)) == {}


def test_mean_auroc() -> None:
    of = {"svhn": 94.0, "cifar100": 90.0}
    single = [number(("table2b", "new", f"cifar10>{ood}/epistemic"), value, 1.0, "auroc")
              for ood, value in of.items()]  # fmt: skip
    key = ("table13-cifar10", "new", "mean_auroc")
    assert flags(*single, number(key, 92.0, 0.1, "auroc")) == {}
    found = audit([*single, number(key, 91.0, 0.1, "auroc")])
    assert "are 92.00 (epistemic)" in found[key][0].reason


def test_one_quantity_with_two_values() -> None:
    group = [
        ("table3", "gem-fi", "accuracy"),
        ("table5", "ablation-full", "accuracy"),
        ("gemfi_k_cifar", "3", "accuracy"),
        ("ood_aupr_auroc", "cifar10>svhn", "accuracy"),
        ("text", "gem-fi", "accuracy"),
    ]
    agreed = [number(key, 93.75, 0.36 if at == 0 else None) for at, key in enumerate(group)]
    assert flags(*agreed) == {}
    one_off = [*agreed[:4], number(group[4], 93.47, None)]
    assert flags(*one_off) == {group[4]: {"suspicious"}}
    assert set(flags(agreed[0], one_off[4])) == {group[0], group[4]}  # none is known to be right
    assert set(flags(agreed[0], number(group[1], 93.75, 0.30))) == set(group[:2])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("table3:edl:accuracy", "table5:ablation-none:accuracy"),
        ("ood_aupr_auroc:mnist>kmnist:accuracy", "ood_aupr_auroc:mnist>fmnist:accuracy"),
        ("table3:gem-core:brier", "ts_calibration:gem-core:brier/before"),
        ("table13-cifar10:gem-mix:ece", "text:gem-mix:ece/before"),
        ("table2:edl:cifar10>svhn/aleatoric", "text:edl:cifar10>svhn/pr-curve"),
        ("table2:gem-fi:cifar10>svhn/epistemic", "text:gem-fi:cifar10>svhn/pr-curve"),
        ("table2:gem-fi:cifar10>svhn/epistemic", "lambda_kl_appendix:1e-4:cifar10>svhn/epistemic"),
        ("table2b:gem-fi:mnist>kmnist/aleatoric", "ood_aupr_auroc:mnist>kmnist:max_prob/auroc"),
        ("table2b:gem-mix:cifar10>svhn/aleatoric", "text:gem-mix:cifar10>svhn/roc-curve"),
        ("hparams:batch_size:mnist", "text:gem-fi:batch_size/mnist"),
        ("hparams:gate_low:cifar10", "text:gem-fi:gate_low"),
    ],
)
def test_what_stands_in_two_places_is_one_quantity(one: str, other: str) -> None:
    numbers = {":".join(each.key): each for each in PUBLISHED}
    assert quantity(numbers[one]) == quantity(numbers[other])


def test_a_table_has_no_quantity_twice() -> None:
    found = Counter((each.label, quantity(each)) for each in PUBLISHED)
    twice = {label for (label, _), count in found.items() if count > 1}
    assert twice == {"ood_aupr_auroc", "text"}  # one accuracy for pairs, and the curves
    groups = Counter(quantity(each) for each in PUBLISHED)
    assert sum(count > 1 for count in groups.values()) == 80


# --- the paper's numbers ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def found() -> dict[Key, tuple[Flag, ...]]:
    return audit()


def reasons(found: dict[Key, tuple[Flag, ...]], *key: str) -> str:
    return " | ".join(flag.reason for flag in found.get(key, ()))  # type: ignore[call-overload]


def test_what_is_impossible(found: dict[Key, tuple[Flag, ...]]) -> None:
    impossible = {key for key, flagged in found.items() if flagged[0].severity == "impossible"}
    assert impossible == {
        ("table2", "gem-mix", "cifar10>svhn/epistemic"),
        ("table2b", "gem-mix", "cifar10>svhn/epistemic"),
        ("table3", "gem-core", "brier"),
        ("table13-cifar10", "gem-core", "brier"),
        ("text", "gem-core", "brier"),
        ("ts_calibration", "gem-fi", "nll/after"),
    }
    assert "at most 86.12 without ties, 86.48 with them (with OOD positive 94.42)" in reasons(
        found, "table2", "gem-mix", "cifar10>svhn/epistemic"
    )


def test_means_of_gem_core_on_mnist_cross_a_bound(found: dict[Key, tuple[Flag, ...]]) -> None:
    for name in ("mnist>kmnist/epistemic", "mnist>fmnist/epistemic"):
        assert "only their 2 std allow it" in reasons(found, "table2", "gem-core", name)


def test_error_detection_of_the_ablation(found: dict[Key, tuple[Flag, ...]]) -> None:
    worse = {key[1] for key in found if "a random score has" in reasons(found, *key)}
    assert worse == {
        "ablation-fi-reg",
        "ablation-fi-mod",
        "ablation-fi",
        "ablation-ebm",
        "ablation-full-without-sn",
    }


def test_which_aurocs_look_copied(found: dict[Key, tuple[Flag, ...]]) -> None:
    copied = [key[1] for key in found if reasons(found, *key).startswith("AUPR less")]
    assert {row: copied.count(row) for row in copied} == {
        "mc-dropout": 4,
        "kl-pn": 8,
        "rkl-pn": 8,
        "postnet": 8,
        "edl": 4,
        "i-edl": 4,
        "r-edl": 2,
        "lts": 4,
        "cedl-plus": 2,
    }


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("table13-cifar10:gem-core:aupr_correct", "99.87±0.01 in table3, table5; 99.22±0.01 in"),
        ("text:gem-core:cifar10>svhn/pr-curve", "89.87±0.33 in table2, table5; 93.87 in text"),
        ("text:gem-mix:cifar10>svhn/pr-curve", "88.80±0.24 in table2, table5; 93.72 in text"),
        ("text:gem-core:cifar10>svhn/roc-curve", "93.65 in text"),
        ("text:gem-mix:cifar10>svhn/roc-curve", "93.05±0.88 in table2b; 93.08 in text"),
        ("table13-cifar10:gem-fi:mean_auroc", "90.86 (aleatoric) and 92.08 (epistemic)"),
        ("table13-cifar10:daedl:mean_auroc", "it is the AUPR of cifar10>cifar100/epistemic"),
        ("table5:ablation-none:cifar10>svhn/epistemic", "79.32±1.70 in table2; 79.12±3.70 in"),
        ("table5:ablation-none:cifar10>cifar100/epistemic", "84.80±1.00 in table2; 84.18±0.70"),
        ("ood_aupr_auroc:cifar10>tinyimagenet:accuracy", "93.47 in ood_aupr_auroc"),
        ("hparams:batch_size:mnist", "64 in hparams; 50 in text"),
        ("table2:gem-mix:cifar10>cifar100/epistemic", "close to the largest AUPR of any curve"),
        ("table5:ablation-fi-mod:cifar10>svhn/epistemic", "at most 10.5 %"),
        ("overhead:gem-core:parameters", "13.18 M"),
        ("table3:gem-fi:brier", "6.55"),
        ("table3:gem-fi:aupr_correct", "never looks at what was right"),
    ],
)
def test_what_was_known_is_found(found: dict[Key, tuple[Flag, ...]], key: str, words: str) -> None:
    assert words in reasons(found, *key.split(":"))


def test_what_is_sound_has_no_flag(found: dict[Key, tuple[Flag, ...]]) -> None:
    for key in (
        ("table2", "daedl", "cifar10>svhn/epistemic"),
        ("table3", "gem-fi", "accuracy"),
        ("table3", "daedl", "brier"),
        ("ts_calibration", "gem-core", "nll/after"),
        ("table2b", "re-edl", "cifar10>svhn/epistemic"),
        ("gemfi_k_cifar", "3", "accuracy"),
    ):
        assert key not in found


def test_figures_of_the_known_problems() -> None:
    perfect = np.full((1, 10), 1.0 / (math.e + 9))
    perfect[0, 0] *= math.e  # the softmax of a one-hot prediction
    assert metrics.brier(perfect, [0], "mean") == pytest.approx(6.55, abs=0.005)
    assert 100 * (math.exp(0.1) - 1) == pytest.approx(10.5, abs=0.05)


def test_every_pattern_is_of_numbers_that_are_there() -> None:
    keys = [":".join(each.key) for each in PUBLISHED]
    listed = [*PROBLEMS.values(), *(patterns for _, patterns in CONVENTIONS)]
    for pattern in " ".join(listed).split():
        assert any(is_one_of(key, pattern) for key in keys), pattern


def test_every_reason_is_short_and_those_of_rules_name_numbers(
    found: dict[Key, tuple[Flag, ...]],
) -> None:
    for flag in {flag for flagged in found.values() for flag in flagged}:
        assert len(flag.reason) < 200
        assert flag.reason in PROBLEMS or len(re.findall(r"\d+(?:\.\d+)?", flag.reason)) >= 2


def test_no_numbers_no_flags() -> None:
    assert audit([]) == {}
    assert all(rule.__doc__ for rule in RULES)


@pytest.mark.parametrize("module", [audit_module, bounds])
def test_the_examples_in_the_docstrings_are_true(module: object) -> None:
    outcome = doctest.testmod(module)  # type: ignore[arg-type]
    assert outcome.attempted > 0
    assert outcome.failed == 0
