"""Claims of the paper about what scores, heads, gate and energy mean."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from gemfi.scores import score_label
from gemfi_bench.claims import measures
from gemfi_bench.claims.ledger import Test, Tests
from gemfi_bench.claims.numbers import on_sets
from gemfi_bench.claims.settings import both
from gemfi_bench.claims.tests_of import gap_within, rising, sets_of, sign_of, together
from gemfi_bench.results import Results

ROUTED: Final = 0.03
"""Nats; a router that is the same everywhere differs too, in the sixth digit and by no chance."""


def _best_score(score: str, row: str, group: str) -> Tests:
    """A score against each other one, mean AUROC over the sets."""

    def tests(results: Results) -> Sequence[Test]:
        names = sets_of(results)
        mine = on_sets(names, score, "auroc")
        return [
            gap_within(
                results,
                (row, group),
                (mine, on_sets(names, other, "auroc")),
                f"mean AUROC: {score_label(score)} against {score_label(other)}",
            )
            for other in ("max_prob", "entropy", "evidence", "energy")
        ]

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
    """Easy below boundary below OOD, entropy of the router, by steps that are worth the name."""

    def tests(results: Results) -> Sequence[Test]:
        key = "part/router_entropy"
        steps = [
            ("easy", measures.mean_among(key, "easy")),
            ("boundary", measures.mean_among(key, "boundary")),
            ("far OOD", measures.mean_over(key, tuple(sets_of(results, "far")))),
        ]
        return rising(row, steps, "entropy of the router", group, ROUTED)(results)

    return tests


def _follows(
    row: str, group: str, first: str, second: str, what: str, *, positive: bool = True
) -> Tests:
    """That two arrays rise (or fall) together, on test data and on all data."""

    def tests(results: Results) -> Sequence[Test]:
        outside = sets_of(results)
        every = f"test data with {', '.join(map(results.title, outside))}"
        pools = {"test data": ("test",), every: ("test", *outside)}
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


def _gate(row: str, group: str) -> Tests:
    """The gate against distance, and against energy where that is not so by construction."""

    def tests(results: Results) -> Sequence[Test]:
        parts = [
            _follows(row, group, "part/gate", "part/distance", "gate and distance", positive=False)
        ]
        kinds = {run.spec["head"].get("gate", "energy") for run in results.runs(row, group)}
        if kinds != {"energy"}:
            parts.append(
                _follows(row, group, "part/gate", "score/energy", "gate and energy", positive=False)
            )
        return together(*parts)(results)

    return tests


_HISTOGRAMS = "Figure of histograms, Figure of box plots"

MEANINGS = [
    *both(
        "mi",
        "Mutual information separates ID from OOD best.",
        _HISTOGRAMS,
        "paired difference of the mean AUROC from each other score, mutual information as the sum "
        "of what is within the heads and between them, as the released code has it",
        partial(_best_score, "mutual_information"),
    ),
    *both(
        "mi-between",
        "Mutual information between the heads separates ID from OOD best.",
        _HISTOGRAMS,
        "paired difference of the mean AUROC from each other score, mutual information as the "
        "Jensen–Shannon divergence of the heads, as the text describes it",
        partial(_best_score, "disagreement"),
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
        "paired differences of the router's entropy, easy, boundary, far OOD, each above "
        f"{ROUTED} nats, a tenth of the smaller that the paper has",
        _routing,
    ),
    *both(
        "gate",
        "The gate shrinks off the support: larger energy, smaller gate.",
        "Sections 1 and 3.1",
        "Spearman correlation of the mean gate with k-NN distance, and with the energy where the "
        "gate is not a function of it alone, below 0, on test data and on test and OOD data",
        _gate,
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
    *both(
        "support",
        "Predictive uncertainty rises with the distance to the training data.",
        "Figure of uncertainty against support",
        "Spearman correlation of entropy and k-NN distance on test data, above 0",
        lambda row, group: sign_of(
            row,
            measures.correlation("score/entropy", "part/distance"),
            "correlation of entropy and distance",
            group=group,
        ),
    ),
]
