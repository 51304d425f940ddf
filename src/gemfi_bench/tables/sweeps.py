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
    ID_POSITIVE,
    Field,
    Source,
    detection_fields,
    make_table,
    number_field,
    planned,
    require_outside,
    score_names,
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
    note = (
        "All that is no switch is as in the paper, as far as it can be followed: probability gate, "
        "VOS outliers, squared error for one head."
    )
    rows = planned(results, ABLATION, "sweeps.ablation")
    title = "Ablation with the paper's settings"
    return _switched(results, "table5", title, ABLATION, rows, ablation(), note)


def our_settings(results: Results) -> Table:
    """The same switches with the settings of `gem-fi` here."""
    note = (
        "The paper has no such table: the same switches, with all else as in gem-fi here (the "
        f"energy is the gate, outliers: {outlier_words(_GEM.outliers)}). Without EBM "
        "that energy learns nothing. GEM-FI of the other tables is row 8 without SN: it is no row "
        "of its own here, as SN and UNC are off in it."
    )
    rows = planned(results, ABLATION_OURS, "sweeps.ablation_ours")
    title = "Ablation with the settings of GEM-FI here"
    return _switched(results, "table5-ours", title, ABLATION_OURS, rows, ablation(OURS), note)


def _switched(
    results: Results,
    label: str,
    title: str,
    group: str,
    rows: Sequence[str],
    configs: Mapping[str, PaperConfig],
    note: str,
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
    notes = (
        note,
        "AUPR on ID test data is that of right predictions by max p. " + ID_POSITIVE,
        score_names(sources),
        rate if results.protocol.rates.values else "",
    )
    return make_table(results, label, title, sources, fields, notes, stub="Row")


# -- λ and K --------------------------------------------------------------------------------------


def fisher(results: Results) -> Table:
    """Sensitivity to λ_FI."""
    rows = planned(results, FISHER, "sweeps.fisher")
    note = "λ_FI is the weight of the Fisher penalty and the strength of the modulation at once."
    label, title = "lambda_fi_appendix", "Sensitivity of GEM-FI to λ_FI"
    return _sensitivity(results, label, title, FISHER, rows, _GEM.fi_reg_weight, note, "λ_FI")


def kl(results: Results) -> Table:
    """Sensitivity to λ_KL."""
    rows = planned(results, KL, "sweeps.kl")
    note = "λ_KL is the weight of KL(Dir(α) ‖ Dir(1))."
    label, title = "lambda_kl_appendix", "Sensitivity of GEM-FI to λ_KL"
    return _sensitivity(results, label, title, KL, rows, _GEM.kl_weight, note, "λ_KL")


def components(results: Results) -> Table:
    """Effect of the number of heads."""
    rows = planned(results, COMPONENTS, "sweeps.components")
    note = "With K = 1 there is no router, and Fisher modulation changes nothing."
    label, title = "gemfi_k_cifar", "GEM-FI by the number of heads K"
    return _sensitivity(results, label, title, COMPONENTS, rows, _GEM.num_components, note, "K")


def _sensitivity(
    results: Results,
    label: str,
    title: str,
    group: str,
    rows: Sequence[str],
    default: float,
    note: str,
    stub: str,
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
    notes = (
        note,
        "Everything else is as in gem-fi here; the paper varies it around its own settings.",
        ID_POSITIVE,
        score_names(sources),
    )
    return make_table(results, label, title, sources, fields, notes, stub=stub)


# -- outliers -------------------------------------------------------------------------------------


def fair_outliers(results: Results) -> Table:
    """Virtual outliers for the baselines too, and GEM-FI without any."""
    note = (
        f"VOS for a baseline: a term of weight {short(EvidentialConfig().outlier_weight)} that "
        "asks for no evidence on virtual outliers. The default of GEM-FI is "
        f"{outlier_words(_GEM.outliers)}, not the paper's VOS."
    )
    names = [name for name in OUTLIER_LABELS if name != "gem-fi+noise"]
    title = "Fair comparison: virtual outliers for all"
    return _outliers(results, "fair_vos_appendix", title, names, note)


def noise_for_vos(results: Results) -> Table:
    """GEM-FI with feature-space noise in the place of VOS."""
    note = "Settings of gem-fi here, with outliers of the kind that the row says."
    names = ("gem-fi+vos", "gem-fi+noise", "gem-fi+none", "gem-fi")
    title = "GEM-FI with noise in the place of VOS"
    return _outliers(results, "vos_replace_appendix", title, names, note)


def _outliers(results: Results, label: str, title: str, names: Sequence[str], note: str) -> Table:
    require_outside(results)
    known = planned(results, OUTLIERS, "sweeps.outliers")
    sources = [Source(results, OUTLIER_LABELS[row], row, OUTLIERS) for row in names if row in known]
    notes = (note, _amounts(sources), ID_POSITIVE, score_names(sources))
    return make_table(results, label, title, sources, detection_fields(results, "aupr_id"), notes)


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
