"""Sensitivity of GEM-FI: λ_FI, λ_KL, the number of heads, outliers and ρ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gemfi.methods import PRESETS
from gemfi.methods.evidential import EvidentialConfig
from gemfi_bench.grid import ABLATION, COMPONENTS, FISHER, FULL, KL, MAIN, OUTLIERS
from gemfi_bench.results import Results, of_test
from gemfi_bench.table import Cell, Column, Table
from gemfi_bench.tables.common import (
    ID_POSITIVE,
    KINDS,
    Origin,
    detection_cells,
    detection_columns,
    make_table,
    number,
    of_ood,
    planned,
    require_outside,
    score_names,
    setting,
    short,
)
from gemfi_bench.tables.labels import OUTLIER_LABELS, outlier_words
from gemfi_bench.unavailable import Unavailable

_GEM: Final = "gem-fi"


# -- λ and K --------------------------------------------------------------------------------------


def fisher(results: Results) -> Table:
    """Sensitivity to λ_FI."""
    rows = planned(results, FISHER, "sweeps.fisher")
    sources = _values(rows, FISHER, PRESETS[_GEM].fi_reg_weight)
    note = "λ_FI is the weight of the Fisher penalty and the strength of the modulation at once."
    title = "Sensitivity of GEM-FI to λ_FI"
    return _sensitivity(results, "lambda_fi_appendix", title, sources, "λ_FI", note)


def kl(results: Results) -> Table:
    """Sensitivity to λ_KL."""
    rows = planned(results, KL, "sweeps.kl")
    sources = _values(rows, KL, PRESETS[_GEM].kl_weight)
    note = "λ_KL is the weight of KL(Dir(α) ‖ Dir(1))."
    title = "Sensitivity of GEM-FI to λ_KL"
    return _sensitivity(results, "lambda_kl_appendix", title, sources, "λ_KL", note)


def components(results: Results) -> Table:
    """Effect of the number of heads."""
    rows = planned(results, COMPONENTS, "sweeps.components")
    sources = _values(rows, COMPONENTS, PRESETS[_GEM].num_components)
    title = "GEM-FI by the number of heads K"
    note = "With K = 1 there is no router, and Fisher modulation changes nothing."
    return _sensitivity(results, "gemfi_k_cifar", title, sources, "K", note)


def _values(rows: Sequence[str], group: str, default: float) -> list[Origin]:
    return [
        Origin(f"{row} (default)" if float(row) == default else row, row, group) for row in rows
    ]


def _sensitivity(
    results: Results, label: str, title: str, sources: Sequence[Origin], stub: str, note: str
) -> Table:
    columns = [
        Column("Test acc.", "ID test", "high"),
        Column("NLL", "ID test", "low", 3),
        *detection_columns(results),
    ]
    rows = [
        source.to_row(
            results,
            [
                number(results, source, of_test("accuracy")),
                number(results, source, of_test("nll")),
                *detection_cells(results, source, "aupr_id"),
            ],
        )
        for source in sources
    ]
    notes = (
        note,
        "Everything else is as in gem-fi here; the paper varies it around its own settings.",
        ID_POSITIVE,
        score_names(results, sources),
    )
    return make_table(results, label, title, columns, rows, notes, sources=sources, stub=stub)


# -- outliers -------------------------------------------------------------------------------------


def fair_outliers(results: Results) -> Table:
    """Virtual outliers for the baselines too, and GEM-FI without any."""
    note = (
        f"VOS for a baseline: a term of weight {short(EvidentialConfig().outlier_weight)} that "
        "asks for no evidence on virtual outliers. The default of GEM-FI is "
        f"{outlier_words(PRESETS[_GEM].outliers)}, not the paper's VOS."
    )
    names = [name for name in OUTLIER_LABELS if name != "gem-fi+noise"]
    return _outliers(
        results, "fair_vos_appendix", "Fair comparison: virtual outliers for all", names, note
    )


def noise_for_vos(results: Results) -> Table:
    """GEM-FI with feature-space noise in the place of VOS."""
    note = "Settings of gem-fi here, with outliers of the kind that the row says."
    names = ("gem-fi+vos", "gem-fi+noise", "gem-fi+none", "gem-fi")
    return _outliers(
        results, "vos_replace_appendix", "GEM-FI with noise in the place of VOS", names, note
    )


def _outliers(results: Results, label: str, title: str, names: Sequence[str], note: str) -> Table:
    require_outside(results)
    known = planned(results, OUTLIERS, "sweeps.outliers")
    sources = [Origin(OUTLIER_LABELS[row], row, OUTLIERS) for row in names if row in known]
    rows = [
        source.to_row(results, detection_cells(results, source, "aupr_id")) for source in sources
    ]
    notes = (note, _amounts(results, sources), ID_POSITIVE, score_names(results, sources))
    columns = detection_columns(results)
    return make_table(results, label, title, columns, rows, notes, sources=sources)


def _amounts(results: Results, sources: Sequence[Origin]) -> str:
    """How many outliers the runs of each row had, and from when on."""
    found = []
    for source in sources:
        for run in source.runs(results)[:1]:
            given = setting(run, "head", "outliers") or {"kind": "none"}
            if given["kind"] != "none":
                more = f" and {short(given['scrambled'])} scrambled" if given["scrambled"] else ""
                text = f"{short(given['ratio'])}{more}, from {short(given['start'])}"
                found.append(f"{source.name} {text}")
    text = "Outliers for each ID sample, and the part of training at which they begin"
    return f"{text}: {'; '.join(found)}." if found else ""


# -- ρ --------------------------------------------------------------------------------------------

_RHO: Final = {"evidence": "GEM-FI with ρ(z)", "bare_evidence": "GEM-FI with ρ(z) = 1"}
"""Score -> its row."""


def rho_one(results: Results) -> Table:
    """Evidence with and without the density scaler, of the same runs."""
    require_outside(results)
    places = ((_GEM, MAIN, "Settings here"), (FULL, ABLATION, "Paper's settings"))
    lines = {
        Origin(name, row, group, section): score
        for row, group, section in places
        if row in results.rows(group)
        for score, name in _RHO.items()
    }
    if not lines:
        raise Unavailable("the protocol has no GEM-FI")
    rows = [
        source.to_row(results, _rho_cells(results, source, score))
        for source, score in lines.items()
    ]
    notes = (
        (
            "ρ is fitted after training and scales α0 alone, so that both rows are of the same "
            "runs and Alea. (1 − max p) cannot differ; in the paper it does, by 1.8."
        ),
        "Epis. is the evidence score in all rows: −log α0, with log ρ and without.",
        ID_POSITIVE,
    )
    title = "GEM-FI with and without the density scaler"
    columns = [
        replace(each, marked=each.name == KINDS["epistemic"]) for each in detection_columns(results)
    ]
    return make_table(
        results, "rho_one_appendix", title, columns, rows, notes, sources=list(lines), stub="Model"
    )


def _rho_cells(results: Results, source: Origin, score: str) -> list[Cell]:
    return [
        of_ood(results, source, name, each, "aupr_id")
        for name in results.ood_sets
        for each in ("max_prob", score)
    ]
