"""Claims of the paper about the parts of GEM-FI, by its ablation."""

from __future__ import annotations

from collections.abc import Sequence

from gemfi.bench.claims import measures
from gemfi.bench.claims.ledger import FULL, Claim, Test
from gemfi.bench.claims.numbers import Number, on_sets
from gemfi.bench.claims.tests_of import better_by, better_ood, by_seed, rises, sets_of
from gemfi.bench.grid import ABLATION
from gemfi.bench.results import Results
from gemfi.bench.unavailable import Unavailable


def _step(name: str, text: str, first: str, second: str) -> Claim:
    return Claim(
        name,
        text,
        "Table 5",
        "paired difference of AUPR by the epistemic score, each OOD set, the paper's settings",
        better_ood(first, second, group=ABLATION),
    )


def _mean_aupr(results: Results) -> Number:
    return on_sets(sets_of(results), "epistemic", "aupr_id")


def _synergy(results: Results) -> Sequence[Test]:
    """FI lowers the AUPR of the mixture, FI with EBM raises it.

    The ablation has no row with EBM and without FI, so what EBM does alone is not told apart.
    """
    mean = _mean_aupr(results)
    alone = better_by("ablation-mix", "ablation-fi", mean, "mean AUPR", group=ABLATION)
    added = better_by("ablation-ebm", "ablation-mix", mean, "mean AUPR", group=ABLATION)
    return [*alone(results), *added(results)]


def _best(results: Results) -> Sequence[Test]:
    """The full model against every other row of the ablation."""
    others = [row for row in results.rows(ABLATION) if row != FULL]
    if not others:
        raise Unavailable("this protocol has no ablation")
    mean = _mean_aupr(results)
    return [
        test
        for row in others
        for test in better_by(FULL, row, mean, "mean AUPR", group=ABLATION)(results)
    ]


COMPONENTS_OF_GEM = [
    _step("sn", "Spectral normalisation alone helps.", "ablation-sn", "ablation-none"),
    _step("core", "The energy-gated core adds to it.", "ablation-core", "ablation-sn"),
    _step("mix", "The mixture improves OOD detection further.", "ablation-mix", "ablation-core"),
    Claim(
        "fi-ebm",
        "Fisher terms hurt the mixture alone, and with the energy-based module improve it.",
        "Section 4.3",
        "paired differences of the mean AUPR, the paper's settings: MIX over MIX + FI, and MIX "
        "+ FI + EBM over MIX; no row has EBM without FI",
        _synergy,
    ),
    Claim(
        "full",
        "The full model is the best row of the ablation.",
        "Table 5",
        "paired difference of the mean AUPR by the epistemic score from every other row, the "
        "paper's settings",
        _best,
    ),
    _step(
        "without-sn",
        "Without spectral normalisation the full model is worse.",
        FULL,
        "ablation-full-without-sn",
    ),
    Claim(
        "collapse",
        "Fisher terms keep the heads from collapsing.",
        "Section 3.3",
        "paired difference of the effective number of heads, MIX + FI against MIX, the paper's "
        "settings",
        lambda results: _heads(results, "ablation-fi", "ablation-mix"),
    ),
]


def _heads(results: Results, first: str, second: str) -> list[Test]:
    one, other = (by_seed(results, row, measures.used_heads, ABLATION) for row in (first, second))
    return [rises(other, one, "effective heads")]
