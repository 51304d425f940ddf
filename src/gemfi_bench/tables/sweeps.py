"""GEM-FI by its settings: the switches of the ablation, λ_FI, λ_KL, K, and the outliers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from gemfi._config import to_plain
from gemfi.methods import PRESETS
from gemfi.methods.evidential import EvidentialConfig
from gemfi.methods.gem_paper import OURS, SWITCHES, PaperConfig, ablation, switches
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


def paper_settings(results: Results) -> Table:
    """The ten rows with everything else as in the paper."""
    rows = planned(results, ABLATION, "sweeps.ablation")
    return _switched(results, "table5", ABLATION, rows, ablation())


def our_settings(results: Results) -> Table:
    """The same switches with the settings of `gem-fi` here."""
    rows = planned(results, ABLATION_OURS, "sweeps.ablation_ours")
    return _switched(results, "table5-ours", ABLATION_OURS, rows, ablation(OURS))


def _switched(
    results: Results,
    label: str,
    group: str,
    rows: Sequence[str],
    configs: Mapping[str, PaperConfig],
) -> Table:
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


def fisher(results: Results) -> Table:
    """Sensitivity to λ_FI."""
    rows = planned(results, FISHER, "sweeps.fisher")
    return _sensitivity(results, "lambda_fi_appendix", FISHER, rows, _GEM.fi_reg_weight)


def kl(results: Results) -> Table:
    """Sensitivity to λ_KL."""
    rows = planned(results, KL, "sweeps.kl")
    return _sensitivity(results, "lambda_kl_appendix", KL, rows, _GEM.kl_weight)


def components(results: Results) -> Table:
    """Effect of the number of heads."""
    rows = planned(results, COMPONENTS, "sweeps.components")
    return _sensitivity(results, "gemfi_k_cifar", COMPONENTS, rows, _GEM.num_components)


def _sensitivity(
    results: Results, label: str, group: str, rows: Sequence[str], default: float
) -> Table:
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


def fair_outliers(results: Results) -> Table:
    """Virtual outliers for the baselines too, and GEM-FI without any."""
    names = [name for name in OUTLIER_LABELS if name != "gem-fi+noise"]
    return _outliers(results, "fair_vos_appendix", names)


def noise_for_vos(results: Results) -> Table:
    """GEM-FI with feature-space noise in the place of VOS."""
    names = ("gem-fi+vos", "gem-fi+noise", "gem-fi+none", "gem-fi")
    return _outliers(results, "vos_replace_appendix", names)


def _outliers(results: Results, label: str, names: Sequence[str]) -> Table:
    require_outside(results)
    known = planned(results, OUTLIERS, "sweeps.outliers")
    sources = [Source(results, OUTLIER_LABELS[row], row, OUTLIERS) for row in names if row in known]
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
