"""Claims of the paper about the parts of GEM-FI, by its ablation."""

from __future__ import annotations

from collections.abc import Sequence

from gemfi.bench.claims import measures
from gemfi.bench.claims.ledger import FULL, Claim, Test
from gemfi.bench.claims.tests_of import (
    better_by,
    better_ood,
    measured,
    sets_of,
)
from gemfi.bench.grid import ABLATION
from gemfi.bench.results import Results, mean_of, of_set
from gemfi.bench.statistics import (
    paired_difference,
)
from gemfi.bench.statistics import verdict as judged


def _step(name: str, text: str, first: str, second: str) -> Claim:
    return Claim(
        name,
        text,
        "Table 5",
        "paired difference of AUPR by the epistemic score, each OOD set, the paper's settings",
        better_ood(first, second, group=ABLATION),
    )


def _synergy(results: Results) -> Sequence[Test]:
    """FI lowers the AUPR without EBM, and raises it with EBM (full against the same without)."""
    picks = [of_set(name, "epistemic", "aupr_id") for name in sets_of(results)]
    mean = mean_of(picks)
    alone = better_by(
        "ablation-mix", "ablation-fi", mean, "mean AUPR without EBM and UNC", group=ABLATION
    )
    added = better_by(
        "ablation-ebm", "ablation-fi", mean, "mean AUPR, EBM added to FI", group=ABLATION
    )
    return [*alone(results), *added(results)]


COMPONENTS_OF_GEM = [
    _step("sn", "Spectral normalisation alone helps.", "ablation-sn", "ablation-none"),
    _step("core", "The energy-gated core adds to it.", "ablation-core", "ablation-sn"),
    _step("mix", "The mixture improves OOD detection further.", "ablation-mix", "ablation-core"),
    Claim(
        "fi-ebm",
        "Fisher terms hurt alone and help with the energy-based module.",
        "Section 4.3",
        "paired differences of the mean AUPR: MIX over MIX + FI, and MIX + FI + EBM over MIX + FI",
        _synergy,
    ),
    _step("full", "The full model is the best of the ablation's additions.", FULL, "ablation-mix"),
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
        "paired difference of the effective number of heads, MIX + FI against MIX",
        lambda results: _heads(results, "ablation-fi", "ablation-mix"),
    ),
]


def _heads(results: Results, first: str, second: str) -> list[Test]:
    one, keys = measured(results, first, measures.used_heads, ABLATION)
    other, more = measured(results, second, measures.used_heads, ABLATION)
    count = min(len(one), len(other))
    difference = paired_difference(one[:count], other[:count])
    return [Test("effective heads", difference, judged(difference), (*keys, *more))]
