"""What the methods of related work have and have not (related_work_comparison), by their code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gemfi._config import to_plain
from gemfi.methods import METHODS, PRESETS
from gemfi.methods.gem_paper import preset, switches
from gemfi_bench.grid import MAIN, RELATED
from gemfi_bench.results import Results
from gemfi_bench.style import method_label
from gemfi_bench.table import Column, Row, Table
from gemfi_bench.tables.common import Origin, setting

_PAPER: Final = {
    "daedl": ("DAEDL", "daedl", MAIN),
    "dirichlet-mixture": ("Mixture of Dirichlets (stand-in)", "gem-fi", RELATED),
    "i-edl": ("I-EDL", "i-edl", MAIN),
    "gated-dirichlet": ("Gated Dirichlet (stand-in)", "gem-fi", RELATED),
    "gem-fi": ("GEM-FI", "gem-fi", MAIN),
}
"""Row of the grid -> its name, its method and its group; the paper's five rows."""

_LEARNED_DENSITY: Final = ("postnet",)  # its flows are trained with the network
_SEVERAL: Final = ("ensemble", "mc-dropout")  # members, and masks
_FISHER_LOSS: Final = ("i-edl",)  # weights the errors of each class by Fisher information

_COLUMNS: Final = (
    "End-to-end density",
    "Single pass",
    "Multi-modal epistemic",
    "In-model gating",
    "FI for routing",
    "FI in the loss",
    "Outliers in training",
)


def related_work(results: Results) -> Table:
    """The paper's five rows, then every other method here, by the same rules."""
    rows = []
    for row, (name, method, group) in _PAPER.items():
        cells = ticks(method, _settings(results, Origin(name, row, group), method))
        rows.append(Row(name, cells, method, row in PRESETS, "The paper's rows"))
    for method in METHODS:
        if method not in _PAPER:
            name = method_label(method)
            cells = ticks(method, _settings(results, Origin(name, method), method))
            rows.append(Row(name, cells, method, method in PRESETS, "Other methods here"))
    notes = (
        (
            "Ticks are derived from the code: from the configuration of the runs, else from the "
            "default one. The last two columns are ours."
        ),
        (
            "End-to-end density: something that tells how familiar an input is learns with the "
            "network. A Gaussian that is fitted afterwards (DAEDL, and ρ of GEM) does not count; "
            "the energy of GEM and the flows of PostNet do. The paper also ticks the mixture of "
            "Dirichlets and I-EDL, which have none."
        ),
        (
            "FI for routing: the paper ticks I-EDL, which uses the Fisher information in its loss "
            "and has no router."
        ),
        (
            "Stand-ins: no code of the mixture of Dirichlets was published, and no such gated EDL "
            "was found; they are GEM with all other switches off."
        ),
    )
    title = "Comparison with related work"
    columns = tuple(Column(name) for name in _COLUMNS)
    return Table("related_work_comparison", title, columns, tuple(rows), "Method", notes)


def ticks(method: str, head: Mapping[str, Any]) -> tuple[bool, ...]:
    """The cells of a method, from its configuration as JSON values."""
    on = switches(head)
    learned_energy = on["ebm"] or (on["core"] and head.get("gate", "energy") != "energy")
    return (
        bool(learned_energy) or method in _LEARNED_DENSITY,
        METHODS[method].info.passes == 1,
        on["mix"] or method in _SEVERAL,
        on["core"],
        on["mix"] and (on["fi_reg"] or on["fi_mod"]),
        on["fi_reg"] or method in _FISHER_LOSS,
        _shown_outliers(head),
    )


def _shown_outliers(head: Mapping[str, Any]) -> bool:
    """Whether there are outliers and, in GEM, a term that sees them."""
    kind = (head.get("outliers") or {}).get("kind", "none")
    on = switches(head)
    seen = on["ebm"] or on["unc"] if "fi_reg_weight" in head else True
    return bool(kind != "none" and seen)


def _settings(results: Results, source: Origin, method: str) -> Mapping[str, Any]:
    """Of the runs, else of the preset, else the default."""
    for run in source.runs(results):
        results.use(run)
        return setting(run, "head") or {}
    config = preset(source.row) if source.group == RELATED else METHODS[method].default_config()
    plain: Mapping[str, Any] = to_plain(config) or {}
    return plain
