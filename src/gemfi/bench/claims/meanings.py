"""Claims of the paper about what scores, heads, gate and energy mean."""

from __future__ import annotations

from collections.abc import Sequence

from gemfi.bench.claims import measures
from gemfi.bench.claims.ledger import Claim, Test, Tests
from gemfi.bench.claims.settings import both
from gemfi.bench.claims.tests_of import (
    level_test,
    rising,
    sets_of,
    sign_of,
    together,
)
from gemfi.bench.records import RunRecord
from gemfi.bench.results import Results, mean_of, of_set
from gemfi.bench.unavailable import Unavailable


def _best_score(results: Results) -> list[Test]:
    """Mutual information against each other score, mean AUROC over the sets."""
    names = sets_of(results)
    tests = []
    for score in ("max_prob", "entropy", "evidence", "energy"):

        def gap(run: RunRecord, score: str = score) -> float | None:
            mine = mean_of([of_set(n, "mutual_information", "auroc") for n in names])(run)
            theirs = mean_of([of_set(n, score, "auroc") for n in names])(run)
            return None if mine is None or theirs is None else mine - theirs

        found = {run.key: gap(run) for run in results.runs("gem-fi")}
        known = {key: value for key, value in found.items() if value is not None}
        if not known:
            raise Unavailable("no runs of gem-fi")
        text = f"mean AUROC: mutual information − {score}"
        tests.append(level_test(list(known.values()), text, list(known), positive=True, margin=0.0))
    return tests


def _rising(row: str, group: str, key: str, what: str) -> Tests:
    """ID below near below far."""

    def tests(results: Results) -> Sequence[Test]:
        near, far = tuple(sets_of(results, "near")), tuple(sets_of(results, "far"))
        steps = [
            ("ID", measures.mean_over(key)),
            ("near OOD", measures.mean_over(key, near)),
            ("far OOD", measures.mean_over(key, far)),
        ]
        return rising(row, steps, what, group)(results)

    return tests


def _routing(row: str, group: str) -> Tests:
    """Easy below boundary below OOD, entropy of the router."""

    def tests(results: Results) -> Sequence[Test]:
        key = "part/router_entropy"
        steps = [
            ("easy", measures.mean_among(key, "easy")),
            ("boundary", measures.mean_among(key, "boundary")),
            ("far OOD", measures.mean_over(key, tuple(sets_of(results, "far")))),
        ]
        return rising(row, steps, "entropy of the router", group)(results)

    return tests


def _follows(
    row: str, group: str, first: str, second: str, what: str, *, positive: bool = True
) -> Tests:
    """That two arrays rise (or fall) together, on test data and on all data."""

    def tests(results: Results) -> Sequence[Test]:
        pools = {"test data": ("test",), "test and OOD data": ("test", *sets_of(results))}
        return [
            test
            for name, pool in pools.items()
            for test in sign_of(
                row,
                measures.correlation(first, second, pool),
                f"correlation of {what}, {name}",
                positive=positive,
                group=group,
            )(results)
        ]

    return tests


MEANINGS = [
    Claim(
        "mi",
        "Mutual information separates ID from OOD best.",
        "Figure of histograms, Figure of box plots",
        "paired difference of the mean AUROC, mutual information against each other score",
        _best_score,
    ),
    *both(
        "disagreement",
        "Heads disagree more from ID to near OOD to far OOD.",
        "Table of head diversity",
        "paired differences of the share of head pairs with different labels",
        lambda row, group: _rising(row, group, "part/differ", "disagreement"),
    ),
    *both(
        "routing",
        "Easy inputs go to one head; boundary and OOD inputs are shared.",
        "Table of router specialisation",
        "paired differences of the router's entropy: easy, boundary, far OOD",
        _routing,
    ),
    *both(
        "gate",
        "The gate shrinks off the support: larger energy, smaller gate.",
        "Sections 1 and 3.1",
        "Spearman correlation of the mean gate with energy and with k-NN distance, below 0, on "
        "test data and on test and OOD data together",
        lambda row, group: together(
            _follows(row, group, "part/gate", "score/energy", "gate and energy", positive=False),
            _follows(row, group, "part/gate", "part/distance", "gate and distance", positive=False),
        ),
    ),
    *both(
        "energy",
        "The learned energy rises where support is low.",
        "Table of energy–support correlation",
        "Spearman correlation of energy and k-NN distance, above 0, on test data and on test and "
        "OOD data together",
        lambda row, group: _follows(
            row, group, "score/energy", "part/distance", "energy and distance"
        ),
    ),
    Claim(
        "support",
        "Predictive uncertainty rises with the distance to the training data.",
        "Figure of uncertainty against support",
        "Spearman correlation of entropy and k-NN distance on test data, above 0",
        sign_of(
            "gem-fi",
            measures.correlation("score/entropy", "part/distance"),
            "correlation of entropy and distance",
        ),
    ),
]
