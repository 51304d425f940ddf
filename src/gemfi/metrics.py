"""Metrics, each with its convention stated, because one name hides several in the literature.

Scales: every scalar is in **percent** (0..100; the Brier score is ×100), except the NLL, in
**nats**, here and wherever gemfi reports a metric but for `GEMClassifier.score`, a fraction as
scikit-learn expects it. The points of curves and of `reliability` are fractions in [0, 1].

Sign: a score is an **uncertainty**; higher is more out-of-distribution (OOD), more likely wrong.
Scores may be ±inf (a density may be exactly 0), never NaN. Equal scores are one threshold: no
result depends on the order of the samples.

Arguments are NumPy arrays or torch tensors of any device and dtype, and become float64: `probs`
and `log_probs` (n, C), `labels` integers 0..C-1 (n,), scores and `uncertainty` (n,). Rows of
probabilities must sum to 1 within 1e-4, which stops logits, evidence, and probabilities where
their log is meant, but no softmax that was applied twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from gemfi._config import check_choice, check_int
from gemfi.errors import InputError

Values: TypeAlias = npt.ArrayLike | torch.Tensor
Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

SUM_TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False)
class Reliability:
    """A reliability diagram; bin b is (edges[b], edges[b + 1]], and NaN where it is empty."""

    edges: Floats  # (bins + 1,), equal width over [0, 1]
    confidence: Floats  # (bins,), mean top-label probability
    accuracy: Floats  # (bins,), share of right predictions
    count: Ints  # (bins,)


@dataclass(frozen=True, eq=False)
class Curve:
    """Points of a curve and the score at which each is reached; the function says what x, y are."""

    x: Floats
    y: Floats
    threshold: Floats


def accuracy(probs: Values, labels: Values) -> float:
    """Share of samples whose most probable class (the first of equals) is the label, in percent."""
    p, y = _checked(probs, labels)
    return 100.0 * float((p.argmax(axis=1) == y).mean())


def nll(log_probs: Values, labels: Values) -> float:
    """Negative log-likelihood, the mean of -log p(y), in nats, from **log**-probabilities.

    Nothing is clamped: a label of probability 0 (`-inf`) makes the result `inf`.

    >>> round(nll(np.log([[0.5, 0.5]]), [1]), 4)
    0.6931
    """
    logs, p = _log_probabilities(log_probs)
    y = _classes(labels, p)
    return 0.0 - float(logs[np.arange(len(y)), y].mean())  # 0.0 - x: never shows as -0.0


def brier(
    probs: Values, labels: Values, convention: Literal["sum", "mean", "norm"] = "sum"
) -> float:
    """Brier score ×100: with d = p - onehot(y), the mean over samples of a size of d.

    `sum` is Σ_c d_c² (0..200; this project's numbers, and DAEDL's); `mean` is Σ_c d_c² / C (GEM's
    released code); `norm` is √Σ_c d_c², the L2 norm (what the code of PostNet, I-EDL and R-EDL
    reports). The three cannot be compared with each other.

    >>> brier([[0.5, 0.5]], [0]), brier([[0.5, 0.5]], [0], "mean")
    (50.0, 25.0)
    """
    check_choice("convention", convention, ("sum", "mean", "norm"))
    p, y = _checked(probs, labels)
    residual = p.copy()
    residual[np.arange(len(y)), y] -= 1.0
    size = np.einsum("nc,nc->n", residual, residual)
    size = np.sqrt(size) if convention == "norm" else size
    return 100.0 * float(size.mean()) / (p.shape[1] if convention == "mean" else 1)


def reliability(probs: Values, labels: Values, bins: int = 15) -> Reliability:
    """Top-label confidence against accuracy in `bins` equal-width bins (lo, hi]."""
    check_int("bins", bins, 1)
    p, y = _checked(probs, labels)
    return _diagram(p.max(axis=1), p.argmax(axis=1) == y, bins)


def _diagram(top: Floats, right: Bools, bins: int) -> Reliability:
    """Of confidences (n,), and whether each is right."""
    edges = np.linspace(0.0, 1.0, bins + 1)
    bin_of = np.searchsorted(edges[1:-1], top, side="left")  # a top on an edge: the lower bin
    count = np.bincount(bin_of, minlength=bins)
    sums = [np.bincount(bin_of, w, minlength=bins) for w in (top, right)]
    means = [np.divide(s, count, out=np.full(bins, np.nan), where=count > 0) for s in sums]
    return Reliability(edges, means[0], means[1], count)


def ece(probs: Values, labels: Values, bins: int = 15) -> float:
    """Expected calibration error Σ_b (n_b / n) |accuracy_b - confidence_b|, in percent.

    Top-label, `bins` bins of equal width (lo, hi] over [0, 1], no debiasing.

    >>> round(ece([[0.8, 0.2], [0.8, 0.2]], [0, 1]), 4)
    30.0
    """
    return _calibration_error(reliability(probs, labels, bins))


def _calibration_error(diagram: Reliability) -> float:
    full = diagram.count > 0
    gap = np.abs(diagram.accuracy[full] - diagram.confidence[full])
    return 100.0 * float(gap @ diagram.count[full]) / int(diagram.count.sum())


def classification_metrics(log_probs: Values, labels: Values) -> dict[str, float]:
    """Every metric of a classifier on labelled data, by name, from **log**-probabilities.

    Error detection (`aupr_correct`, `aupr_error`, `auroc_error`, `aurc`) is by 1 - max p.
    """
    return Answers.of(log_probs, labels).metrics()


@dataclass(frozen=True, eq=False)
class Answers:
    """What `classification_metrics` looks at: five numbers a sample, however many classes.

    So it can be had of data that come batch by batch: `Answers.cat(parts).metrics()`.
    """

    num_classes: int
    right: Bools  # (n,) whether the most probable class is the label
    certain: Bools  # (n,) the same by the log-probabilities, which tie less often
    log_loss: Floats  # (n,) −log p(y)
    square: Floats  # (n,) Σ_c (p − onehot(y))_c²
    confidence: Floats  # (n,) max p
    doubt: Floats  # (n,) 1 − max p, summed from the rest: confident predictions do not tie

    @classmethod
    def of(cls, log_probs: Values, labels: Values) -> Answers:
        """Of **log**-probabilities (n, C) and labels (n,)."""
        logs, p = _log_probabilities(log_probs)
        y = _classes(labels, p)
        rows, top = np.arange(len(p)), logs.argmax(axis=1)
        residual, others = p.copy(), p.copy()
        residual[rows, y] -= 1.0
        others[rows, top] = 0.0
        return cls(
            p.shape[1],
            p.argmax(axis=1) == y,
            top == y,
            -logs[rows, y],
            np.einsum("nc,nc->n", residual, residual),
            p.max(axis=1),
            others.sum(axis=1),
        )

    @classmethod
    def cat(cls, parts: Sequence[Answers]) -> Answers:
        """One after the other."""
        columns = zip(*(list(vars(part).values())[1:] for part in parts), strict=True)
        return cls(parts[0].num_classes, *map(np.concatenate, columns))

    def metrics(self) -> dict[str, float]:
        """By name."""
        detection = error_detection(self.doubt, self.certain)
        return {
            "accuracy": 100.0 * float(self.right.mean()),
            "nll": 0.0 + float(self.log_loss.mean()),  # 0.0 + x: never shows as -0.0
            "brier": 100.0 * float(self.square.mean()),
            "brier_mean": 100.0 * float(self.square.mean()) / self.num_classes,
            "brier_norm": 100.0 * float(np.sqrt(self.square).mean()),
            "ece": _calibration_error(_diagram(self.confidence, self.right, 15)),
            **{name: detection[name] for name in ("aupr_correct", "aupr_error", "aurc")},
            "auroc_error": detection["auroc"],
        }


@dataclass(frozen=True, eq=False)
class _Ranking:
    """The one sort: how many ID (or right) and OOD (or wrong) samples hold each distinct score."""

    score: Floats  # (G,), ascending
    n_id: Ints  # (G,)
    n_ood: Ints  # (G,)

    @classmethod
    def of(cls, scores: Floats, is_ood: Bools) -> _Ranking:
        order = np.argsort(scores)
        ranked = scores[order]
        last = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))  # ends of tied groups
        n_ood = np.diff(np.cumsum(is_ood[order])[last], prepend=0)
        return cls(ranked[last], np.diff(last, prepend=-1) - n_ood, n_ood)

    @classmethod
    def between(cls, id_scores: Values, ood_scores: Values) -> _Ranking:
        inside, outside = _scores(id_scores, "id_scores"), _scores(ood_scores, "ood_scores")
        is_ood = np.arange(len(inside) + len(outside)) >= len(inside)
        return cls.of(np.concatenate([inside, outside]), is_ood)

    def auroc(self) -> float:
        pairs = int(self.n_id.sum()) * int(self.n_ood.sum())
        below_twice = 2 * np.cumsum(self.n_id) - self.n_id  # ID below, twice; a tie is half
        return 100.0 * int(self.n_ood @ below_twice) / (2 * pairs) if pairs else float("nan")

    def aupr_id(self) -> float:
        return _average_precision(self.n_id, self.n_ood)

    def aupr_ood(self) -> float:
        return _average_precision(self.n_ood[::-1], self.n_id[::-1])

    def fpr95(self) -> float:
        accepted = np.cumsum(self.n_id)
        needed = -(-95 * int(accepted[-1]) // 100)  # ceil in integers: 0.95 is not a float
        end = int(np.searchsorted(accepted, needed)) + 1
        return 100.0 * int(self.n_ood[:end].sum()) / int(self.n_ood.sum())

    def risk(self) -> Floats:
        """Expected error rate of the j most certain samples, j = 1..n, over random tie breaks."""
        seen = np.append(0, np.cumsum(self.n_id + self.n_ood))
        wrong = np.append(0, np.cumsum(self.n_ood))
        j = np.arange(1.0, seen[-1] + 1)
        # inside a tied group the expected number of errors grows linearly
        return np.asarray(np.interp(j, seen, wrong) / j)


def _precision(positive: Ints, negative: Ints) -> Floats:
    """Precision at each threshold, from the most positive one on."""
    hits = np.cumsum(positive)
    return np.asarray(hits / (hits + np.cumsum(negative)))


def _average_precision(positive: Ints, negative: Ints) -> float:
    total = int(positive.sum())
    mass = 100.0 * float(positive @ _precision(positive, negative))
    return mass / total if total else float("nan")


def auroc(id_scores: Values, ood_scores: Values) -> float:
    """P(OOD score > ID score) + ½ P(equal), in percent.

    >>> auroc([0.1, 0.2], [0.2, 0.9])
    87.5
    """
    return _Ranking.between(id_scores, ood_scores).auroc()


def aupr_ood(id_scores: Values, ood_scores: Values) -> float:
    """Average precision with OOD positive, ranked by score, in percent, without interpolation.

    AP = Σ_t (recall_t - recall_{t-1}) precision_t over the distinct scores t, from high to low. A
    constant score gives the base rate n_ood / (n_id + n_ood).
    """
    return _Ranking.between(id_scores, ood_scores).aupr_ood()


def aupr_id(id_scores: Values, ood_scores: Values) -> float:
    """Average precision with ID positive, ranked by -score, in percent: the paper's Table 2."""
    return _Ranking.between(id_scores, ood_scores).aupr_id()


def fpr95(id_scores: Values, ood_scores: Values) -> float:
    """Share of OOD samples accepted when at least 95 % of ID samples are, in percent.

    A sample is accepted when score <= t, the ⌈0.95 n_id⌉-th smallest ID score; OOD samples tied
    with it are accepted too, so a constant score gives 100.

    >>> fpr95([0.1, 0.2], [0.2, 0.9])
    50.0
    """
    return _Ranking.between(id_scores, ood_scores).fpr95()


def ood_metrics(id_scores: Values, ood_scores: Values) -> dict[str, float]:
    """`auroc`, `aupr_id`, `aupr_ood` and `fpr95` from one sort, with `n_id` and `n_ood`."""
    ranking = _Ranking.between(id_scores, ood_scores)
    return {
        "auroc": ranking.auroc(),
        "aupr_id": ranking.aupr_id(),
        "aupr_ood": ranking.aupr_ood(),
        "fpr95": ranking.fpr95(),
        "n_id": int(ranking.n_id.sum()),
        "n_ood": int(ranking.n_ood.sum()),
    }


def roc_curve(id_scores: Values, ood_scores: Values) -> Curve:
    """Shares of ID (x) and OOD (y) with score >= threshold; the area by trapezoids is the AUROC.

    From (0, 0), whose threshold is NaN (nothing is flagged), to (1, 1).
    """
    ranking = _Ranking.between(id_scores, ood_scores)
    x, y = (np.append(0, np.cumsum(n[::-1])) / n.sum() for n in (ranking.n_id, ranking.n_ood))
    return Curve(x, y, np.append(np.nan, ranking.score[::-1]))


def pr_curve(id_scores: Values, ood_scores: Values, positive: Literal["id", "ood"]) -> Curve:
    """Recall (x) and precision (y) at each distinct score; the sum of Δx·y is the AUPR.

    A sample is called positive when score >= threshold (`ood`) or score <= threshold (`id`).
    """
    check_choice("positive", positive, ("id", "ood"))
    r = _Ranking.between(id_scores, ood_scores)
    hit, miss, threshold = r.n_id, r.n_ood, r.score
    if positive == "ood":
        hit, miss, threshold = r.n_ood[::-1], r.n_id[::-1], r.score[::-1]
    return Curve(np.cumsum(hit) / hit.sum(), _precision(hit, miss), threshold)


def risk_coverage(uncertainty: Values, errors: Values) -> Curve:
    """Coverage j/n (x) and the error rate among the j most certain samples (y), j = 1..n.

    Ties as the expectation over random tie breaking; `errors` is true (1) where **wrong**.
    """
    u, wrong = _flagged(uncertainty, errors, "errors")
    return Curve(np.arange(1, len(u) + 1) / len(u), _Ranking.of(u, wrong).risk(), np.sort(u))


def aurc(uncertainty: Values, errors: Values) -> float:
    """Area under the risk-coverage curve, (1/n) Σ_j (errors among the j most certain) / j, percent.

    Ties as the expectation over random tie breaking, so that a constant uncertainty gives the error
    rate. Lower is better; 0 needs a classifier without errors.

    >>> aurc([0.1, 0.2], [False, True])
    25.0
    """
    return 100.0 * float(risk_coverage(uncertainty, errors).y.mean())


def error_detection(uncertainty: Values, correct: Values) -> dict[str, float]:
    """How well an uncertainty tells right predictions (`correct` true or 1) from wrong ones.

    `aupr_correct` (right is positive), `aupr_error` (wrong is positive), `auroc` (a wrong one is
    more uncertain than a right one; ties ½) and `aurc`; NaN where there is no right or no wrong one
    to rank.
    """
    u, right = _flagged(uncertainty, correct, "correct")
    ranking = _Ranking.of(u, ~right)
    return {
        "aupr_correct": ranking.aupr_id(),
        "aupr_error": ranking.aupr_ood(),
        "auroc": ranking.auroc(),
        "aurc": 100.0 * float(ranking.risk().mean()),
    }


def _numpy(values: Values, name: str, ndim: int) -> npt.NDArray[np.generic]:
    if isinstance(values, torch.Tensor):
        tensor = values.detach().cpu()  # NumPy has no bfloat16, so floats are widened first
        values = (tensor.double() if tensor.is_floating_point() else tensor).numpy()
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{name} cannot be read as one array: {error}") from error
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} must hold real numbers, got dtype {array.dtype}")
    if array.ndim != ndim:
        shape = "(n,)" if ndim == 1 else "(n, C)"
        raise InputError(f"{name} must have shape {shape}, got {array.shape}")
    if len(array) == 0:
        raise InputError(f"{name} is empty, expected at least one sample")
    return array


def _reject(bad: Bools, values: npt.NDArray[np.generic], what: str) -> None:
    """Raise `what` (a template of `at` and `got`) for the first bad entry, if there is one."""
    if bad.any():
        at = np.argwhere(bad)[0]
        raise InputError(what.format(at=at.tolist(), got=values[tuple(at)]))


def _scores(values: Values, name: str) -> Floats:
    scores = _numpy(values, name, 1).astype(np.float64, copy=False)
    _reject(np.isnan(scores), scores, name + "{at} is NaN, expected a number or ±inf")
    return scores


def _flagged(uncertainty: Values, flags: Values, name: str) -> tuple[Floats, Bools]:
    u, f = _scores(uncertainty, "uncertainty"), _numpy(flags, name, 1)
    if len(u) != len(f):
        raise InputError(f"uncertainty has {len(u)} entries but {name} has {len(f)}")
    _reject((f != 0) & (f != 1), f, name + "{at} is {got}, expected true or false (1 or 0)")
    return u, f.astype(np.bool_)


def _checked(probs: Values, labels: Values) -> tuple[Floats, Ints]:
    p = _numpy(probs, "probs", 2).astype(np.float64, copy=False)
    _reject(~(p >= 0), p, "probs{at} is {got}, expected a probability, not a logit or a logarithm")
    _check_sums(p, "probs{at} sums to {got}")
    return p, _classes(labels, p)


def _log_probabilities(values: Values) -> tuple[Floats, Floats]:
    """The log-probabilities and the probabilities."""
    logs = _numpy(values, "log_probs", 2).astype(np.float64, copy=False)
    what = "log_probs{at} is {got}, expected a log-probability (<= 0), not a probability or a logit"
    _reject(~(logs <= SUM_TOLERANCE), logs, what)
    p = np.exp(logs)
    _check_sums(p, "exp(log_probs{at}) sums to {got}")
    return logs, p


def _check_sums(p: Floats, what: str) -> None:
    if p.shape[1] < 2:
        raise InputError(f"expected at least 2 classes, got an array of shape {p.shape}")
    sums = p.sum(axis=1)
    hint = f", expected 1 within {SUM_TOLERANCE:g}; normalise it once, in float32 or wider"
    _reject(~(np.abs(sums - 1.0) <= SUM_TOLERANCE), sums, what + hint)


def _classes(labels: Values, p: Floats) -> Ints:
    y = _numpy(labels, "labels", 1)
    if y.dtype.kind not in "iu":
        raise InputError(f"labels must be integers, got dtype {y.dtype}")
    if len(y) != len(p):
        raise InputError(f"labels has {len(y)} entries, expected one for each of {len(p)} rows")
    classes = y.astype(np.int64)
    outside = (classes < 0) | (classes >= p.shape[1])
    _reject(outside, y, f"labels{{at}} is {{got}}, expected a class in 0..{p.shape[1] - 1}")
    return classes
