"""GEM-FI by its settings: the switches of the ablation, λ_FI, λ_KL, K, and the outliers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from gemfi._config import to_plain
from gemfi.methods import PRESETS
from gemfi.methods.evidential import EvidentialConfig
from gemfi.methods.gem_paper import OURS, SWITCHES, ablation, switches
from gemfi_bench.grid import ABLATION, ABLATION_OURS, COMPONENTS, FISHER, KL, OUTLIERS
from gemfi_bench.results import Results, of_test
from gemfi_bench.tables.common import (
    Field,
    Source,
    detection_fields,
    make_table,
    number_field,
    planned,
    require_outside,
    setting,
    short,
)
from gemfi_bench.tables.labels import ABLATION_LABELS, OUTLIER_LABELS, outlier_words
from gemfi_bench.tabular import Cell, Column, Table

_GEM: Final = PRESETS["gem-fi"]
_ACCURACY: Final = number_field(Column("Test acc.", "ID test", "high"), of_test("accuracy"))

# -- switches -------------------------------------------------------------------------------------

_HEADS: Final = {"fi_reg": "FI-Reg", "fi_mod": "FI-Mod"}


_ABLATIONS: Final = {
    "table5": (ABLATION, "sweeps.ablation", ablation()),
    "table5-ours": (ABLATION_OURS, "sweeps.ablation_ours", ablation(OURS)),
}
"""Table -> group, the setting that plans it, and the configurations of its rows."""


def switched(results: Results, label: str) -> Table:
    """The ten rows with everything else as in the paper, or with the settings of `gem-fi` here."""
    group, why, configs = _ABLATIONS[label]
    rows = planned(results, group, why)
    sources = [
        Source(results, f"{index}. {ABLATION_LABELS.get(row, row)}", row, group)
        for index, row in enumerate(rows, start=1)
    ]

    def tick(switch: str, source: Source) -> Cell:
        """By what was run; before that, by what is planned."""
        runs = source.runs
        head = setting(runs[0], "head") if runs else to_plain(configs[source.row])
        return switches(head)[switch]

    fields = [
        *(
            Field(Column(_HEADS.get(switch, switch.upper())), partial(tick, switch))
            for switch in SWITCHES
        ),
        _ACCURACY,
        number_field(Column("AUPR", "ID test", "high"), of_test("aupr_correct")),
        *detection_fields(results, "aupr_id"),
    ]
    rate = "The learning rate of every row is the one that was chosen for gem-fi here."
    return make_table(
        results,
        label,
        sources,
        fields,
        outliers=outlier_words(_GEM.outliers),
        rate=rate if results.protocol.rates.values else "",
    )


# -- λ and K --------------------------------------------------------------------------------------


_VALUES: Final = {
    "lambda_fi_appendix": (FISHER, "sweeps.fisher", _GEM.fi_reg_weight),
    "lambda_kl_appendix": (KL, "sweeps.kl", _GEM.kl_weight),
    "gemfi_k_cifar": (COMPONENTS, "sweeps.components", _GEM.num_components),
}
"""Table -> group, the setting that plans it, and the default among its values."""


def sensitivity(results: Results, label: str) -> Table:
    """One row a value of λ_FI, λ_KL or K."""
    group, why, default = _VALUES[label]
    rows = planned(results, group, why)
    sources = [
        Source(results, f"{row} (default)" if float(row) == default else row, row, group)
        for row in rows
    ]
    fields = [
        _ACCURACY,
        number_field(Column("NLL", "ID test", "low", 3), of_test("nll")),
        *detection_fields(results, "aupr_id"),
    ]
    return make_table(results, label, sources, fields)


# -- outliers -------------------------------------------------------------------------------------


_ROWS: Final = {
    "fair_vos_appendix": [name for name in OUTLIER_LABELS if name != "gem-fi+noise"],
    "vos_replace_appendix": ["gem-fi+vos", "gem-fi+noise", "gem-fi+none", "gem-fi"],
}


def outliers(results: Results, label: str) -> Table:
    """Virtual outliers for the baselines too and GEM-FI without any; or noise in their place."""
    require_outside(results)
    known = planned(results, OUTLIERS, "sweeps.outliers")
    sources = [
        Source(results, OUTLIER_LABELS[row], row, OUTLIERS) for row in _ROWS[label] if row in known
    ]
    return make_table(
        results,
        label,
        sources,
        detection_fields(results, "aupr_id"),
        amounts=_amounts(sources),
        outliers=outlier_words(_GEM.outliers),
        weight=short(EvidentialConfig().outlier_weight),
    )


def _amounts(sources: Sequence[Source]) -> str:
    """How many outliers the runs of each row had, and from when on."""
    amounts = []
    for source in sources:
        for run in source.runs[:1]:
            outliers = setting(run, "head", "outliers") or {"kind": "none"}
            if outliers["kind"] != "none":
                scrambled = outliers["scrambled"]
                more = f" and {short(scrambled)} scrambled" if scrambled else ""
                text = f"{short(outliers['ratio'])}{more}, from {short(outliers['start'])}"
                amounts.append(f"{source.name} {text}")
    text = "Outliers for each ID sample, and the part of training at which they begin"
    return f"{text}: {'; '.join(amounts)}." if amounts else ""
