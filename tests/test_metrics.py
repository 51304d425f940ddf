"""Metrics against scikit-learn, slow loops, identities and the known values of the literature."""

from __future__ import annotations

import doctest
import itertools
import math

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gemfi import metrics
from gemfi.errors import InputError

INF = float("inf")
NAN = float("nan")
EXACT = {"rel": 1e-12, "abs": 1e-10}

quick = settings(deadline=None, max_examples=100)
small_scores = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=12)
any_scores = st.lists(
    st.one_of(st.sampled_from([-INF, INF, -0.0, 0.0]), st.floats(allow_nan=False)),
    min_size=1,
    max_size=30,
)


def random_probs(n=400, classes=5, seed=0):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(classes, 0.4), size=n)
    wrong = rng.random(n) < 0.3
    labels = np.where(wrong, rng.integers(0, classes, n), probs.argmax(1))
    return probs, labels


def random_scores(tied, n_id=300, n_ood=170, seed=1):
    rng = np.random.default_rng(seed)
    inside, outside = rng.normal(size=n_id), rng.normal(1.0, 1.3, size=n_ood)
    return (inside.round(1), outside.round(1)) if tied else (inside, outside)


def stacked(inside, outside):
    """Scores and OOD labels, as scikit-learn takes them."""
    truth = np.concatenate([np.zeros(len(inside)), np.ones(len(outside))])
    return truth, np.concatenate([inside, outside])


# ---------------------------------------------------------------- probabilities and labels


def test_accuracy_nll_and_brier_match_scikit_learn():
    probs, labels = random_probs()
    assert metrics.accuracy(probs, labels) == pytest.approx(
        100 * sk.accuracy_score(labels, probs.argmax(1)), **EXACT
    )
    assert metrics.nll(np.log(probs), labels) == pytest.approx(sk.log_loss(labels, probs), **EXACT)
    binary = np.stack([1 - probs[:, 0], probs[:, 0]], 1)
    hit = (labels == 0).astype(int)  # scikit-learn's binary score counts one class of the two
    assert metrics.brier(binary, hit) == pytest.approx(
        200 * sk.brier_score_loss(hit, binary[:, 1]), **EXACT
    )


def test_brier_conventions_match_a_loop():
    probs, labels = random_probs(n=50)
    squares = [
        sum((p - (c == y)) ** 2 for c, p in enumerate(row))
        for row, y in zip(probs, labels, strict=True)
    ]
    total = 100 * sum(squares) / 50
    assert metrics.brier(probs, labels) == pytest.approx(total, **EXACT)
    assert metrics.brier(probs, labels, "mean") == pytest.approx(total / 5, **EXACT)
    assert metrics.brier(probs, labels, "norm") == pytest.approx(
        100 * sum(math.sqrt(s) for s in squares) / 50, **EXACT
    )


def predictions_at(accuracy, row_when_wrong, n=10_000, classes=10):
    """Right and one-hot at label 9, except for a share of rows that hold `row_when_wrong`."""
    probs = np.zeros((n, classes))
    probs[:, 9] = 1.0
    probs[: round(n * (1 - accuracy))] = row_when_wrong
    return probs, np.full(n, 9)


def test_brier_at_93_34_percent_cannot_be_lower_than_3_33():
    tied = np.zeros(10)
    tied[[0, 9]] = 0.5  # argmax takes class 0, so the row is wrong at the least cost
    probs, labels = predictions_at(0.9334, tied)
    assert metrics.accuracy(probs, labels) == pytest.approx(93.34)
    assert metrics.brier(probs, labels) == pytest.approx(3.33)
    onehot, labels = predictions_at(0.9334, np.eye(10)[0])
    assert metrics.brier(onehot, labels) == pytest.approx(13.32)
    assert metrics.brier(onehot, labels, "mean") == pytest.approx(1.332)
    assert metrics.brier(onehot, labels, "norm") == pytest.approx(6.66 * math.sqrt(2))


def softmax(x):
    e = np.exp(x)
    return e / e.sum(1, keepdims=True)


def test_a_second_softmax_gives_the_known_floor_and_no_path_of_ours_takes_it():
    onehot, labels = predictions_at(1.0, np.eye(10)[9])
    twice = softmax(onehot)
    assert metrics.brier(twice, labels, "mean") == pytest.approx(6.55, abs=0.005)
    assert metrics.brier(onehot, labels, "mean") == 0.0
    missed, labels = predictions_at(0.9375, np.eye(10)[0])
    assert metrics.brier(softmax(missed), labels, "mean") == pytest.approx(6.74, abs=0.005)
    with pytest.raises(InputError, match=r"log_probs\[0, 9\] is 1.0, expected a log-probability"):
        metrics.classification_metrics(onehot, labels)  # probabilities where logs are meant
    with pytest.raises(InputError, match=r"probs\[0\] sums to 2\.7"):
        metrics.brier(onehot * math.e, labels)


def slow_ece(probs, labels, bins):
    total = 0.0
    edges = np.linspace(0, 1, bins + 1)
    for low, high in itertools.pairwise(edges):
        inside = [i for i, row in enumerate(probs) if low < max(row) <= high]
        if inside:
            right = sum(np.argmax(probs[i]) == labels[i] for i in inside) / len(inside)
            sure = sum(max(probs[i]) for i in inside) / len(inside)
            total += len(inside) / len(probs) * abs(right - sure)
    return 100 * total


@pytest.mark.parametrize("bins", [1, 2, 10, 15, 1000])
def test_ece_matches_a_loop(bins):
    probs, labels = random_probs()
    assert metrics.ece(probs, labels, bins) == pytest.approx(slow_ece(probs, labels, bins), **EXACT)


def test_a_confidence_on_an_edge_belongs_to_the_lower_bin():
    probs = np.array([[0.5, 0.25, 0.25], [0.75, 0.25, 0.0], [1.0, 0.0, 0.0]])
    diagram = metrics.reliability(probs, [0, 1, 0], bins=4)
    assert diagram.edges.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert diagram.count.tolist() == [0, 1, 1, 1]
    np.testing.assert_array_equal(diagram.confidence, [NAN, 0.5, 0.75, 1.0])
    np.testing.assert_array_equal(diagram.accuracy, [NAN, 1, 0, 1])
    assert metrics.ece(probs, [0, 1, 0], bins=4) == pytest.approx(100 * (0.5 + 0.75 + 0) / 3)


def test_nll_of_an_impossible_label_is_infinite_and_of_a_sure_one_zero():
    logs = np.log(np.array([[1.0, 1e-300]]))
    logs[0, 1] = -INF
    assert metrics.nll(logs, [1]) == INF
    assert math.copysign(1, metrics.nll(logs, [0])) == 1.0
    assert metrics.nll(logs, [0]) == 0.0


def test_classification_metrics_agree_with_the_single_functions():
    probs, labels = random_probs()
    found = metrics.classification_metrics(np.log(probs), labels)
    correct = probs.argmax(1) == labels
    top = probs.max(1)
    expected = {
        "accuracy": metrics.accuracy(probs, labels),
        "nll": sk.log_loss(labels, probs),
        "brier": metrics.brier(probs, labels),
        "brier_mean": metrics.brier(probs, labels, "mean"),
        "brier_norm": metrics.brier(probs, labels, "norm"),
        "ece": metrics.ece(probs, labels),
        "aupr_correct": 100 * sk.average_precision_score(correct, top),
        "aupr_error": 100 * sk.average_precision_score(~correct, -top),
        "aurc": metrics.aurc(1 - top, ~correct),
        "auroc_error": 100 * sk.roc_auc_score(~correct, -top),
    }
    assert found == pytest.approx(expected, **EXACT)


def test_confident_predictions_are_still_ranked():
    # 1 - max p is 0 in float64 for both rows; their log-probabilities tell them apart
    logs = np.array([[-1e-25, math.log(1e-25)], [-1e-20, math.log(1e-20)]])
    found = metrics.classification_metrics(logs, [0, 1])
    assert found["aupr_error"] == 100.0
    assert found["aurc"] == 25.0


# ---------------------------------------------------------------- ID against OOD


@pytest.mark.parametrize("tied", [False, True])
def test_ranking_metrics_match_scikit_learn(tied):
    inside, outside = random_scores(tied)
    truth, scores = stacked(inside, outside)
    # at the first threshold that keeps 95 % of ID, with ID positive and ranked by -score
    fpr, tpr, _ = sk.roc_curve(1 - truth, -scores, drop_intermediate=False)
    expected = {
        "auroc": 100 * sk.roc_auc_score(truth, scores),
        "aupr_id": 100 * sk.average_precision_score(1 - truth, -scores),
        "aupr_ood": 100 * sk.average_precision_score(truth, scores),
        "fpr95": 100 * fpr[np.argmax(tpr >= 0.95)],
        "n_id": 300,
        "n_ood": 170,
    }
    found = metrics.ood_metrics(inside, outside)
    assert found == pytest.approx(expected, **EXACT)
    for name in ("auroc", "aupr_id", "aupr_ood", "fpr95"):
        assert getattr(metrics, name)(inside, outside) == found[name]


@quick
@given(any_scores, any_scores)
def test_auroc_counts_pairs(inside, outside):
    wins = sum((o > i) + 0.5 * (o == i) for o in outside for i in inside)
    expected = 100 * wins / len(inside) / len(outside)
    assert metrics.auroc(inside, outside) == pytest.approx(expected, **EXACT)


@quick
@given(any_scores, any_scores)
def test_average_precision_sums_precision_over_the_positives(inside, outside):
    expected = 0.0
    for t in outside:  # a positive sees the precision of everything at its score or above
        above = sum(o >= t for o in outside), sum(i >= t for i in inside)
        expected += 100 * above[0] / sum(above) / len(outside)
    assert metrics.aupr_ood(inside, outside) == pytest.approx(expected, **EXACT)


def slow_fpr95(inside, outside):
    for t in sorted(inside):
        if 100 * sum(i <= t for i in inside) >= 95 * len(inside):
            return 100 * sum(o <= t for o in outside) / len(outside)
    raise AssertionError


@quick
@given(any_scores, any_scores)
def test_fpr95_matches_a_loop(inside, outside):
    assert metrics.fpr95(inside, outside) == pytest.approx(slow_fpr95(inside, outside), **EXACT)


def test_fpr95_keeps_as_few_id_samples_as_95_percent_allows():
    for n in range(1, 301):
        # OOD k + 1/2 is accepted when the threshold is above k: all ID kept count, less 1
        kept = 1 + round(metrics.fpr95(np.arange(n), np.arange(n) + 0.5) * n / 100)
        assert 100 * kept >= 95 * n > 100 * (kept - 1), n


def test_ties_with_the_threshold_are_accepted():
    assert metrics.fpr95(np.arange(20), [18.0, 18.5, 19.0]) == pytest.approx(100 / 3)
    assert metrics.fpr95([1, 1, 1], [1, 1, 2]) == pytest.approx(200 / 3)


def test_constant_scores_give_the_base_rates():
    # CIFAR-10 against all of the SVHN test set: 10,000 and 26,032 images
    found = metrics.ood_metrics(np.zeros(10_000), np.zeros(26_032))
    assert found["aupr_id"] == pytest.approx(27.75, abs=0.005)
    assert found["aupr_ood"] == pytest.approx(72.25, abs=0.005)
    assert found["auroc"] == 50.0
    assert found["fpr95"] == 100.0


def test_the_best_aupr_that_an_auroc_allows():
    # of a class, 81.29 % ranked above all others and the rest below all others
    n_id, n_ood = 10_000, 26_032
    inside = np.where(np.arange(n_id) < 0.8129 * n_id, -1.0, 1.0 + np.arange(n_id))
    found = metrics.ood_metrics(inside, np.zeros(n_ood))
    assert found["auroc"] == pytest.approx(81.29)
    assert found["aupr_id"] == pytest.approx(86.1, abs=0.05)  # so that 90.60 is not ID+
    outside = np.where(np.arange(n_ood) < 0.8129 * n_ood, 1.0, -1.0 - np.arange(n_ood))
    found = metrics.ood_metrics(np.zeros(n_id), outside)
    assert found["aupr_ood"] == pytest.approx(94.4, abs=0.05)


@quick
@given(small_scores, small_scores)
def test_only_the_ranks_count(inside, outside):
    found = metrics.ood_metrics(inside, outside)
    for strictly_increasing in (
        lambda x: 8.0 * x,
        lambda x: x**3 + x,
        lambda x: 2.0**x - 5.0,
        lambda x: np.where(x == 4, INF, np.where(x == -4, -INF, x)),
    ):
        moved = [strictly_increasing(np.array(s)) for s in (inside, outside)]
        assert metrics.ood_metrics(*moved) == found


@quick
@given(any_scores, any_scores)
def test_exchanging_the_classes_and_the_sign(inside, outside):
    forth, back = metrics.auroc(inside, outside), metrics.auroc(outside, inside)
    assert forth + back == pytest.approx(100.0, **EXACT)
    negated = -np.array(outside), -np.array(inside)
    assert metrics.auroc(*negated) == forth
    assert metrics.aupr_ood(*negated) == metrics.aupr_id(inside, outside)


@quick
@given(any_scores, any_scores)
def test_aupr_lies_between_the_worst_ranking_and_100(inside, outside):
    found = metrics.ood_metrics(inside, outside)
    for name, n, others in (("id", len(inside), len(outside)), ("ood", len(outside), len(inside))):
        worst = 100 * sum(i / (i + others) for i in range(1, n + 1)) / n
        assert worst - 1e-10 <= found[f"aupr_{name}"] <= 100.0


def test_perfect_separation_is_exact():
    inside, outside = -np.arange(1.0, 1001), np.arange(777.0)
    perfect = {"auroc": 100.0, "aupr_id": 100.0, "aupr_ood": 100.0, "fpr95": 0.0}
    assert metrics.ood_metrics(inside, outside) == {**perfect, "n_id": 1000, "n_ood": 777}
    assert metrics.auroc(outside, inside) == 0.0


@pytest.mark.parametrize("tied", [False, True])
def test_curves_match_scikit_learn_and_enclose_the_metrics(tied):
    inside, outside = random_scores(tied)
    truth, scores = stacked(inside, outside)
    roc = metrics.roc_curve(inside, outside)
    fpr, tpr, threshold = sk.roc_curve(truth, scores, drop_intermediate=False)
    np.testing.assert_allclose(roc.x, fpr)
    np.testing.assert_allclose(roc.y, tpr)
    np.testing.assert_array_equal(roc.threshold[1:], threshold[1:])
    assert math.isnan(roc.threshold[0])
    assert 100 * sk.auc(roc.x, roc.y) == pytest.approx(metrics.auroc(inside, outside))
    for positive, sign in (("id", -1), ("ood", 1)):
        pr = metrics.pr_curve(inside, outside, positive)
        hit = truth if positive == "ood" else 1 - truth
        precision, recall, threshold = sk.precision_recall_curve(hit, sign * scores)
        np.testing.assert_allclose(pr.x[::-1], recall[:-1])
        np.testing.assert_allclose(pr.y[::-1], precision[:-1])
        np.testing.assert_array_equal(pr.threshold[::-1], sign * threshold)
        area = 100 * np.sum(np.diff(pr.x, prepend=0) * pr.y)
        assert area == pytest.approx(getattr(metrics, f"aupr_{positive}")(inside, outside))


# ---------------------------------------------------------------- right against wrong


def slow_risk(uncertainty, errors):
    """Mean risk at each coverage over every order of the samples that respects the scores."""
    n = len(errors)
    curves = [
        np.cumsum([errors[i] for i in order]) / np.arange(1, n + 1)
        for order in itertools.permutations(range(n))
        if all(uncertainty[a] <= uncertainty[b] for a, b in itertools.pairwise(order))
    ]
    return np.mean(curves, axis=0)


@quick
@given(
    st.lists(st.tuples(st.sampled_from([-INF, 0.0, 1.0]), st.booleans()), min_size=1, max_size=6)
)
def test_risk_coverage_is_the_expectation_over_tie_breaks(samples):
    uncertainty, errors = zip(*samples, strict=True)
    expected = slow_risk(uncertainty, errors)
    curve = metrics.risk_coverage(uncertainty, errors)
    np.testing.assert_allclose(curve.y, expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(curve.x, np.arange(1, len(errors) + 1) / len(errors))
    np.testing.assert_array_equal(curve.threshold, sorted(uncertainty))
    assert metrics.aurc(uncertainty, errors) == pytest.approx(100 * expected.mean(), **EXACT)


def test_aurc_known_values():
    assert metrics.aurc(np.zeros(7), [1, 0, 0, 0, 0, 0, 0]) == pytest.approx(100 / 7)
    best, worst = metrics.aurc([1, 2, 3], [0, 0, 1]), metrics.aurc([1, 2, 3], [1, 0, 0])
    assert best == pytest.approx(100 * (1 / 3) / 3)
    assert worst == pytest.approx(100 * (1 + 1 / 2 + 1 / 3) / 3)


def test_error_detection_matches_scikit_learn():
    probs, labels = random_probs()
    correct = probs.argmax(1) == labels
    uncertainty = (1 - probs.max(1)).round(2)  # with ties
    assert metrics.error_detection(uncertainty, correct) == pytest.approx(
        {
            "aupr_correct": 100 * sk.average_precision_score(correct, -uncertainty),
            "aupr_error": 100 * sk.average_precision_score(~correct, uncertainty),
            "auroc": 100 * sk.roc_auc_score(~correct, uncertainty),
            "aurc": metrics.aurc(uncertainty, ~correct),
        },
        **EXACT,
    )


def test_an_uninformative_uncertainty_gives_the_accuracy():
    found = metrics.error_detection(np.ones(1000), np.arange(1000) < 936)
    expected = {"aupr_correct": 93.6, "aupr_error": 6.4, "auroc": 50.0, "aurc": 6.4}
    assert found == pytest.approx(expected)


def test_what_does_not_exist_is_nan():
    same = pytest.approx
    assert metrics.error_detection([0.1, 0.2], [True, True]) == same(
        {"aupr_correct": 100.0, "aupr_error": NAN, "auroc": NAN, "aurc": 0.0}, nan_ok=True
    )
    assert metrics.error_detection([0.1, 0.2], [False, False]) == same(
        {"aupr_correct": NAN, "aupr_error": 100.0, "auroc": NAN, "aurc": 100.0}, nan_ok=True
    )


# ---------------------------------------------------------------- input


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_tensors_give_what_arrays_give(dtype):
    probs, labels = random_probs()
    inside, outside = (torch.tensor(s).to(dtype).requires_grad_() for s in random_scores(False))
    arrays = [s.detach().double().numpy() for s in (inside, outside)]
    assert metrics.ood_metrics(inside, outside) == metrics.ood_metrics(*arrays)
    logs = torch.tensor(probs).log()
    assert metrics.classification_metrics(logs, torch.tensor(labels)) == (
        metrics.classification_metrics(logs.numpy(), labels)
    )
    errors = torch.arange(300) % 3 == 0
    assert metrics.aurc(inside, errors) == metrics.aurc(arrays[0], errors.numpy())


def test_inputs_are_not_changed():
    probs, labels = random_probs(n=20)
    inside, outside = random_scores(tied=True)
    before = [x.copy() for x in (probs, labels, inside, outside)]
    metrics.brier(probs, labels)
    metrics.ece(probs, labels)
    metrics.ood_metrics(inside, outside)
    metrics.risk_coverage(inside, inside > 0)
    for now, then in zip((probs, labels, inside, outside), before, strict=True):
        np.testing.assert_array_equal(now, then)


GOOD = [[0.9, 0.1], [0.2, 0.8]]
PROBS = (metrics.accuracy, metrics.brier, metrics.ece, metrics.reliability)
LOGS = (metrics.nll, metrics.classification_metrics)


@pytest.mark.parametrize("function", PROBS)
@pytest.mark.parametrize(
    ("probs", "message"),
    [
        ([[0.9, 0.1], [0.2, 0.9]], r"probs\[1\] sums to 1\.1.*, expected 1 within 0.0001"),
        ([[0.9, 0.1], [0.2, 0.7997]], r"probs\[1\] sums to 0\.9997"),
        ([[0.9, 0.1], [1.2, -0.2]], r"probs\[1, 1\] is -0\.2, expected a probability"),
        ([[0.9, 0.1], [NAN, 0.8]], r"probs\[1, 0\] is nan"),
        ([[0.9, 0.1], [0.0, INF]], r"probs\[1\] sums to inf"),
        ([0.9, 0.1], r"probs must have shape \(n, C\), got \(2,\)"),
        ([[1.0], [1.0]], r"at least 2 classes, got an array of shape \(2, 1\)"),
        (np.zeros((0, 3)), "probs is empty"),
        ([[0.9, 0.1], [1.0]], "probs cannot be read as one array"),
        ([["a", "b"]], "probs must hold real numbers, got dtype <U1"),
        (torch.ones(2, 2, dtype=torch.complex64), "real numbers, got dtype complex"),
    ],
)
def test_bad_probabilities_are_refused(function, probs, message):
    with pytest.raises(InputError, match=message):
        function(probs, [0, 1])


@pytest.mark.parametrize("function", LOGS)
@pytest.mark.parametrize(
    ("log_probs", "message"),
    [
        (GOOD, r"log_probs\[0, 0\] is 0\.9, expected a log-probability"),
        ([[3.0, -1e9], [0, 1000]], r"log_probs\[0, 0\] is 3\.0"),
        ([[-0.5, -3.0], [-9.0, -9.0]], r"exp\(log_probs\[0\]\) sums to 0\.65"),
        ([[0.0, -INF], [-INF, -INF]], r"exp\(log_probs\[1\]\) sums to 0\.0"),
        ([[0.0, -INF], [NAN, 0.0]], r"log_probs\[1, 0\] is nan"),
    ],
)
def test_bad_log_probabilities_are_refused(function, log_probs, message):
    with pytest.raises(InputError, match=message):
        function(log_probs, [0, 1])


@pytest.mark.parametrize("function", PROBS + LOGS)
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 2], r"labels\[1\] is 2, expected a class in 0\.\.1"),
        ([-1, 0], r"labels\[0\] is -1, expected a class"),
        (np.array([0, 2**64 - 1], dtype=np.uint64), r"labels\[1\] is 18446744073709551615"),
        ([0.0, 1.0], "labels must be integers, got dtype float64"),
        ([0, 1, 1], "labels has 3 entries, expected one for each of 2 rows"),
        ([[0], [1]], r"labels must have shape \(n,\), got \(2, 1\)"),
    ],
)
def test_bad_labels_are_refused(function, labels, message):
    with pytest.raises(InputError, match=message):
        function(np.log(GOOD) if function in LOGS else GOOD, labels)


@pytest.mark.parametrize(
    "name", ["auroc", "aupr_id", "aupr_ood", "fpr95", "ood_metrics", "roc_curve"]
)
def test_bad_scores_are_refused(name):
    function = getattr(metrics, name)
    with pytest.raises(InputError, match=r"id_scores\[1\] is NaN, expected a number or ±inf"):
        function([0.0, NAN], [1.0])
    with pytest.raises(InputError, match="ood_scores is empty"):
        function([0.0], [])
    with pytest.raises(InputError, match=r"ood_scores must have shape \(n,\), got \(1, 1\)"):
        function([0.0], [[1.0]])


@pytest.mark.parametrize("name", ["aurc", "risk_coverage", "error_detection"])
def test_bad_flags_are_refused(name):
    function = getattr(metrics, name)
    with pytest.raises(InputError, match=r"\[1\] is 2, expected true or false"):
        function([0.1, 0.2], [0, 2])
    with pytest.raises(InputError, match=r"\[0\] is nan, expected true or false"):
        function([0.1, 0.2], [NAN, 1])
    with pytest.raises(InputError, match=r"uncertainty has 2 entries but (errors|correct) has 3"):
        function([0.1, 0.2], [0, 1, 1])


def test_bad_options_are_refused():
    with pytest.raises(InputError, match="convention must be one of sum, mean, norm, got 'l2'"):
        metrics.brier(GOOD, [0, 1], "l2")
    with pytest.raises(InputError, match="bins must be an integer of at least 1, got 0"):
        metrics.ece(GOOD, [0, 1], bins=0)
    with pytest.raises(InputError, match="positive must be one of id, ood, got 'OOD'"):
        metrics.pr_curve([0.0], [1.0], "OOD")


def test_sums_within_float32_rounding_are_accepted():
    logits = torch.tensor(np.random.default_rng(0).normal(size=(200, 1000)), dtype=torch.float32)
    labels = torch.arange(200)
    found = metrics.classification_metrics(logits.log_softmax(1), labels)
    assert found["brier"] == pytest.approx(metrics.brier(logits.softmax(1), labels), rel=1e-5)


def test_examples_in_the_docstrings():
    outcome = doctest.testmod(metrics)
    assert outcome.attempted >= 5
    assert outcome.failed == 0
