"""OOD detection of GEM-FI by score: which of its uncertainties tells OOD inputs best."""

from __future__ import annotations

from typing import Final

from gemfi_bench.grid import ABLATION, FULL, MAIN
from gemfi_bench.results import Results, of_test
from gemfi_bench.table import Column, Row, Table, Value
from gemfi_bench.tables.common import (
    ID_POSITIVE,
    Origin,
    make_table,
    number,
    of_ood,
    pair_title,
    require_outside,
)
from gemfi_bench.unavailable import Unavailable

SCORES: Final = {
    "max_prob": "MaxP (1 − max p)",
    "evidence": "α0 (evidence, with ρ)",
    "energy": "Energy (learned)",
    "entropy": "Entropy",
    "disagreement": "MI as JSD of the heads",
    "mutual_information": "MI, total",
    "unfamiliarity": "Unfamiliarity",
    "bare_evidence": "α0 with ρ = 1",
    "density": "Density (−log p(z))",
    "logit_energy": "Energy of the logits",
}
"""Score -> its row: those of the paper, then ours."""

_METRICS: Final = {"aupr_id": "AUPR", "aupr_ood": "AUPR, OOD+", "auroc": "AUROC"}


def dataset_shift(results: Results) -> Table:
    """AUPR and AUROC of each score of GEM-FI on each OOD set."""
    require_outside(results)
    places = (("gem-fi", MAIN, "GEM-FI"), (FULL, ABLATION, "GEM-FI, paper's settings"))
    sources = [
        Origin(section, row, group, section)
        for row, group, section in places
        if row in results.rows(group)
    ]
    if not sources:
        raise Unavailable("the protocol has no GEM-FI")
    columns = [
        Column(head, pair_title(results, name), "high")
        for name in results.ood_sets
        for head in _METRICS.values()
    ]
    rows = [_row(results, source, score) for source in sources for score in SCORES]
    notes = (
        "The paper's table has the scores as columns. " + ID_POSITIVE + " OOD+ is with OOD "
        "positive.",
        (
            "MI: the paper's formula mixes gated and ungated entropies and can be negative; here "
            "it is the Jensen-Shannon divergence of the heads, and that plus the heads' own MI "
            "(total)."
        ),
        *_accuracy(results, sources),
    )
    title = "OOD detection of GEM-FI by score"
    return make_table(
        results, "ood_aupr_auroc", title, columns, rows, notes, sources=sources, stub="Score"
    )


def _row(results: Results, source: Origin, score: str) -> Row:
    cells = [
        of_ood(results, source, name, score, metric)
        for name in results.ood_sets
        for metric in _METRICS
    ]
    return Origin(SCORES[score], source.row, source.group, source.section).to_row(results, cells)


def _accuracy(results: Results, sources: list[Origin]) -> list[str]:
    found = []
    for source in sources:
        value = number(results, source, of_test("accuracy"))
        if isinstance(value, Value):
            found.append(f"Test accuracy of {source.name}: {value.mean:.2f}.")
    return found
