"""Claims of the paper about what scores, heads, gate and energy mean."""

from __future__ import annotations

from functools import partial
from typing import Final

from gemfi.scores import score_label
from gemfi_bench.claims.claim_tests import GridRow, both, compared, rising, sets_of, sign_of
from gemfi_bench.claims.ledger import Test
from gemfi_bench.claims.numbers import correlation, mean_among, mean_over, on_sets
from gemfi_bench.results import Results
from gemfi_bench.tabular import Better

ROUTED: Final = 0.03
"""Nats; a router that is the same everywhere differs too, in the sixth digit and by no chance."""

_HISTOGRAMS: Final = "Figure of histograms, Figure of box plots"


def _best_score(score: str, gem: GridRow, results: Results) -> list[Test]:
    """A score against each other one, mean AUROC over the sets."""
    names = sets_of(results)
    return [
        compared(
            results,
            (gem, gem),
            (on_sets(names, score, "auroc"), on_sets(names, other, "auroc")),
            f"mean AUROC: {score_label(score)} against {score_label(other)}",
        )
        for other in ("max_prob", "entropy", "evidence", "energy")
    ]


def _disagreement(gem: GridRow, results: Results) -> list[Test]:
    """ID below near below far."""
    key = "part/differ"
    steps = [
        ("ID", mean_over(key)),
        ("near OOD", mean_over(key, sets_of(results, "near"))),
        ("far OOD", mean_over(key, sets_of(results, "far"))),
    ]
    return rising(results, gem, steps, "disagreement")


def _routing(gem: GridRow, results: Results) -> list[Test]:
    """Easy below boundary below OOD, entropy of the router, by steps that are worth the name."""
    key = "part/router_entropy"
    steps = [
        ("easy", mean_among(key, "easy")),
        ("boundary", mean_among(key, "boundary")),
        ("far OOD", mean_over(key, sets_of(results, "far"))),
    ]
    return rising(results, gem, steps, "entropy of the router", ROUTED)


def _follows(
    first: str, second: str, what: str, better: Better, gem: GridRow, results: Results
) -> list[Test]:
    """That two arrays rise (`low`: fall) together, on test data and on all data."""
    outside = sets_of(results)
    every = f"test data with {', '.join(map(results.title, outside))}"
    pools = {"test data": ["test"], every: ["test", *outside]}
    return [
        sign_of(
            results,
            gem,
            correlation(first, second, pool),
            f"correlation of {what}, {name}",
            better=better,
        )
        for name, pool in pools.items()
    ]


def _gate(gem: GridRow, results: Results) -> list[Test]:
    """The gate against distance, and against energy where that is not so by construction."""
    tests = _follows("part/gate", "part/distance", "gate and distance", "low", gem, results)
    kinds = {run.spec["head"].get("gate", "energy") for run in results.runs(*gem)}
    if kinds != {"energy"}:
        tests += _follows("part/gate", "score/energy", "gate and energy", "low", gem, results)
    return tests


def _support(gem: GridRow, results: Results) -> list[Test]:
    number = correlation("score/entropy", "part/distance")
    return [sign_of(results, gem, number, "correlation of entropy and distance")]


MEANINGS: Final = (
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
        _disagreement,
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
        partial(_follows, "score/energy", "part/distance", "energy and distance", "high"),
    ),
    *both(
        "support",
        "Predictive uncertainty rises with the distance to the training data.",
        "Figure of uncertainty against support",
        "Spearman correlation of entropy and k-NN distance on test data, above 0",
        _support,
    ),
)
