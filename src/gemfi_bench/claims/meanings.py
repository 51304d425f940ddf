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
    *both("mi", partial(_best_score, "mutual_information")),
    *both("mi-between", partial(_best_score, "disagreement")),
    *both("disagreement", _disagreement),
    *both("routing", _routing, routed=ROUTED),
    *both("gate", _gate),
    *both(
        "energy",
        partial(_follows, "score/energy", "part/distance", "energy and distance", "high"),
    ),
    *both("support", _support),
)
