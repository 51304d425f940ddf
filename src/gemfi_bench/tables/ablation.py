"""The ablation: ten rows by seven switches, with the paper's settings and with ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gemfi._config import to_plain
from gemfi.methods import PRESETS
from gemfi.methods.gem_paper import OURS, SWITCHES, PaperConfig, ablation, switches
from gemfi_bench.grid import ABLATION, ABLATION_OURS
from gemfi_bench.results import Results, of_test
from gemfi_bench.table import Cell, Column, Table
from gemfi_bench.tables.common import (
    ID_POSITIVE,
    Origin,
    detection_cells,
    detection_columns,
    make_table,
    number,
    planned,
    score_names,
    setting,
)
from gemfi_bench.tables.labels import ABLATION_LABELS, outlier_words

_HEADS: Final = {"fi_reg": "FI-Reg", "fi_mod": "FI-Mod"}


def paper_settings(results: Results) -> Table:
    """The ten rows with everything else as in the paper."""
    note = (
        "All that is no switch is as in the paper, as far as it can be followed: probability gate, "
        "VOS outliers, squared error for one head."
    )
    title = "Ablation with the paper's settings"
    return _table(results, "table5", title, ABLATION, "sweeps.ablation", ablation(), note)


def our_settings(results: Results) -> Table:
    """The same switches with the settings of `gem-fi` here."""
    note = (
        "The paper has no such table: the same switches, with all else as in gem-fi here (the "
        f"energy is the gate, outliers: {outlier_words(PRESETS['gem-fi'].outliers)}). Without EBM "
        "that energy learns nothing. GEM-FI of the other tables is row 8 without SN: it is no row "
        "of its own here, as SN and UNC are off in it."
    )
    title = "Ablation with the settings of GEM-FI here"
    configs = ablation(OURS)
    group, why = ABLATION_OURS, "sweeps.ablation_ours"
    return _table(results, "table5-ours", title, group, why, configs, note)


def _table(
    results: Results,
    label: str,
    title: str,
    group: str,
    why: str,
    configs: Mapping[str, PaperConfig],
    note: str,
) -> Table:
    sources = [
        Origin(f"{place}. {ABLATION_LABELS.get(row, row)}", row, group)
        for place, row in enumerate(planned(results, group, why), start=1)
    ]
    columns = [
        *(Column(_HEADS.get(switch, switch.upper())) for switch in SWITCHES),
        Column("Test acc.", "ID test", "high"),
        Column("AUPR", "ID test", "high"),
        *detection_columns(results),
    ]
    rows = [
        source.to_row(
            results,
            [
                *_switches(results, source, configs),
                number(results, source, of_test("accuracy")),
                number(results, source, of_test("aupr_correct")),
                *detection_cells(results, source, "aupr_id"),
            ],
        )
        for source in sources
    ]
    notes = (
        note,
        "AUPR on ID test data is that of right predictions by max p. " + ID_POSITIVE,
        score_names(results, sources),
        _rate_note(results),
    )
    return make_table(results, label, title, columns, rows, notes, sources=sources, stub="Row")


def _rate_note(results: Results) -> str:
    if not results.protocol.rates.values:
        return ""
    return "The learning rate of every row is the one that was chosen for gem-fi here."


def _switches(results: Results, source: Origin, configs: Mapping[str, PaperConfig]) -> list[Cell]:
    """Ticks by what was run; before that, by what is planned."""
    for run in source.runs(results):
        return list(switches(setting(run, "head")).values())
    return list(switches(to_plain(configs[source.row])).values())
