"""What the report says of each figure. Every number and every 'lowest' comes from the runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gemfi import scores
from gemfi_bench.demo.runner import Run
from gemfi_bench.demo.table import aurocs, shown
from gemfi_bench.style import KEPT, SHOWN, method_label


@dataclass(frozen=True)
class Caption:
    """Texts of a figure, not yet escaped.

    Attributes:
        title: a few words.
        text: what to see.
        alt: for those who cannot see the picture.
    """

    title: str
    text: str
    alt: str


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: a, b and c."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def two_moons(runs: Sequence[Run]) -> Caption:
    """Of the plane."""
    entropy, evidence = (
        _by_method(runs, _aurocs(score)) for score in (scores.entropy, scores.evidence)
    )
    with_rho = [run for run in runs if run.evaluation.belief.log_rho is not None]
    total = len(runs[0].task.train)
    density = (
        f"the evidence of {_names(with_rho)} includes the density scaler ρ, which here looks at "
        "raw features and not, as by default, at unit-norm ones, and the gate of its energy "
        "(chosen on OOD-validation data)"
        if with_rho
        else "none of these methods has a density scaler"
    )
    return Caption(
        title="Two moons.",
        text=(
            f"Brighter is more uncertain. The white line is the threshold that keeps {KEPT} % of "
            "the test points: what is brighter than the line would be flagged. The entropy is that "
            f"of the predicted probabilities, in which no density takes part{_scaled(runs)}; "
            f"{density}. Evidence is shown as a multiple of what the method has at its median test "
            f"point. AUROC of the unseen cluster by entropy: {entropy}; by evidence: {evidence}. "
            "50 is chance; below it, a method is surer of the cluster than of the test points. "
            "The colours of the evidence end where the test points and the cluster do; "
            f"{min(SHOWN, total)} of {total} training points are drawn."
        ),
        alt=(
            f"Maps of uncertainty over the plane, one row each for {_names(runs)}: predictive "
            f"entropy on the left, total evidence on the right. AUROC of the unseen cluster by "
            f"entropy: {entropy}; by evidence: {evidence}."
        ),
    )


def _scaled(runs: Sequence[Run]) -> str:
    """DAEDL multiplies logits by a density, so that its probabilities feel it."""
    return " but in DAEDL" if any(run.plan.method == "daedl" for run in runs) else ""


def line(runs: Sequence[Run]) -> Caption:
    """Of the one-dimensional toy."""
    evidence = _by_method(runs, _aurocs(scores.evidence))
    accuracy = _by_method(runs, lambda run: shown(run.evaluation.classification["accuracy"]))
    return Caption(
        title="One dimension.",
        text=(
            "Top: the predicted probability of class 1 and the true one (dashed; there is no truth "
            "where there are no data). Thin lines are the heads of a mixture, as strong as their "
            f"weight; ticks are training points ({min(SHOWN, len(runs[0].task.train))} shown), "
            "class 1 above and class 0 below. Middle: the entropy of the prediction, split exactly "
            "into its aleatoric part, the doubt within heads and the disagreement between them. "
            "Bottom: evidence as a multiple of that at the median test point. Between 2 and 3 both "
            "classes are equally likely, so the best possible accuracy is 91.7 (11 in 12); here: "
            f"{accuracy}. AUROC of the unseen inputs by evidence: {evidence}."
        ),
        alt=(
            f"Curves over x for {_names(runs)}: predicted and true probability of class 1, the "
            f"split of uncertainty, and evidence. AUROC by evidence: {evidence}."
        ),
    )


def reliability(runs: Sequence[Run]) -> Caption:
    """Of the reliability diagrams."""
    ece = _by_method(runs, lambda run: shown(run.evaluation.classification["ece"]))
    total = len(runs[0].evaluation.labels)
    return Caption(
        title="Reliability on digits.",
        text=(
            "Bars are the accuracy among test inputs of like confidence, in 15 bins; red is the "
            "gap to their mean confidence: above the diagonal a method is less sure than it should "
            "be, below it surer. Bars are faint where inputs are few; the panels below count them "
            f"(logarithmic). With {total} test inputs, a bin of one or two says little. "
            f"ECE: {ece}."
        ),
        alt=f"Reliability diagrams, one a method. ECE in percent: {ece}.",
    )


def histograms(runs: Sequence[Run]) -> Caption:
    """Of the scores on ID and OOD digits."""
    return Caption(
        title="Scores on digits, seen and unseen.",
        text=(
            "Above the line the test digits 0 to 6, below it what was never seen: near, the digits "
            "8 and 9; far, noise, inverted and shuffled images. To the right is more uncertain; "
            "the less the two sides overlap, the higher the AUROC (far: the mean of the three "
            "sets, as in the table). Each side has its own vertical scale; the axes of "
            "1 − max p and of unfamiliarity are logarithmic, the other scores are logarithms "
            "already; the outermost 0.5 % at either end are counted in the last bins."
        ),
        alt=(
            f"Histograms of the aleatoric and the epistemic score of {_names(runs)} on ID, "
            "near-OOD and far-OOD digits; the table above has the AUROC of each."
        ),
    )


CAPTIONS: dict[str, tuple[str, Callable[[Sequence[Run]], Caption]]] = {
    "two-moons": ("two-moons", two_moons),
    "line": ("line", line),
    "reliability": ("digits", reliability),
    "histograms": ("digits", histograms),
}
"""Figure -> its data set, and what makes its caption."""


def _aurocs(score: scores.Score) -> Callable[[Run], str]:
    """Of a run: the AUROC of each OOD set by a score, named where there are several."""

    def told(run: Run) -> str:
        found = aurocs(run, score)
        if len(found) == 1:
            return next(iter(found.values()))
        return listed([f"{value} ({name})" for name, value in found.items()])

    return told


def _names(runs: Sequence[Run]) -> str:
    return listed([method_label(run.plan.method) for run in runs])


def _by_method(runs: Sequence[Run], value: Callable[[Run], str]) -> str:
    return ", ".join(f"{method_label(run.plan.method)} {value(run)}" for run in runs)
