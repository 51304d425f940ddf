"""Claims of the paper about the parts of GEM-FI, by its ablation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gemfi_bench.claims import measures
from gemfi_bench.claims.ledger import Claim, Test, Tests
from gemfi_bench.claims.numbers import Number, on_sets
from gemfi_bench.claims.settings import both_ablations
from gemfi_bench.claims.tests_of import (
    better_by,
    better_ood,
    by_seed,
    rises,
    sets_of,
    together,
)
from gemfi_bench.grid import FULL
from gemfi_bench.results import Results
from gemfi_bench.unavailable import Unavailable


def _step(name: str, text: str, first: str, second: str) -> list[Claim]:
    return both_ablations(
        name,
        text,
        "Table 5",
        "paired difference of AUPR by the epistemic score, each OOD set",
        lambda group: better_ood(first, second, group=group),
    )


def _mean_aupr(results: Results) -> Number:
    return on_sets(sets_of(results), "epistemic", "aupr_id")


def _synergy(group: str) -> Tests:
    """FI lowers the AUPR of the mixture, FI with EBM raises it.

    The ablation has no row with EBM and without FI, so what EBM does alone is not told apart.
    """

    def tests(results: Results) -> Sequence[Test]:
        mean = _mean_aupr(results)
        steps = (("ablation-mix", "ablation-fi"), ("ablation-ebm", "ablation-mix"))
        parts = [better_by(*step, mean, "mean AUPR", group=group) for step in steps]
        return together(*parts)(results)

    return tests


def _best(group: str) -> Tests:
    """The full model against every other row of the ablation."""

    def tests(results: Results) -> Sequence[Test]:
        others = [row for row in results.rows(group) if row != FULL]
        if not others:
            raise Unavailable("this protocol has no such ablation")
        mean = _mean_aupr(results)
        parts = [better_by(FULL, row, mean, "mean AUPR", group=group) for row in others]
        return together(*parts)(results)

    return tests


def _heads(first: str, second: str, group: str, results: Results) -> list[Test]:
    one, other = (by_seed(results, row, measures.used_heads, group) for row in (first, second))
    return [rises(other, one, "effective heads", len(results.by_seed(first, group)))]


COMPONENTS_OF_GEM = [
    *_step("sn", "Spectral normalisation alone helps.", "ablation-sn", "ablation-none"),
    *_step("core", "The energy-gated core adds to it.", "ablation-core", "ablation-sn"),
    *_step("mix", "The mixture improves OOD detection further.", "ablation-mix", "ablation-core"),
    *both_ablations(
        "fi-ebm",
        "Fisher terms hurt the mixture alone, and with the energy-based module improve it.",
        "Section 4.3",
        "paired differences of the mean AUPR: MIX over MIX + FI, and MIX + FI + EBM over MIX; no "
        "row has EBM without FI",
        _synergy,
    ),
    *both_ablations(
        "full",
        "The full model is the best row of the ablation.",
        "Table 5",
        "paired difference of the mean AUPR by the epistemic score from every other row",
        _best,
    ),
    *_step(
        "without-sn",
        "Without spectral normalisation the full model is worse.",
        FULL,
        "ablation-full-without-sn",
    ),
    *both_ablations(
        "collapse",
        "Fisher terms keep the heads from collapsing.",
        "Section 3.3",
        "paired difference of the effective number of heads, MIX + FI against MIX",
        lambda group: partial(_heads, "ablation-fi", "ablation-mix", group),
    ),
]
