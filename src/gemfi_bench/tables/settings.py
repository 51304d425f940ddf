"""The settings of the runs beside the paper's (hparams), and what the methods have and have not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gemfi._config import from_plain, to_plain
from gemfi.losses import class_share
from gemfi.methods import METHODS, PRESETS, GEMConfig, PaperConfig
from gemfi.methods.gem import CLIP
from gemfi.methods.gem_paper import as_paper, preset, switches
from gemfi_bench.grid import ABLATION, FULL, MAIN, RELATED
from gemfi_bench.published import published
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import Results
from gemfi_bench.style import method_label
from gemfi_bench.tables.common import (
    NOT_RUN,
    PAPER_SETTINGS,
    WORDS,
    Source,
    contestants,
    setting,
    short,
    worded_table,
)
from gemfi_bench.tabular import Cell, Column, Row, Table
from gemfi_bench.unavailable import Unavailable

# -- hyper-parameters -----------------------------------------------------------------------------

_SHOWN: Final = ("softmax", "edl", "re-edl", "daedl", "gem-core", "gem-mix", "gem-fi")
"""Methods with a column; of the others a note has the learning rate."""

_PAPER: Final = {"mnist": "MNIST", "cifar10": "CIFAR-10"}

_ROWS: Final[list[tuple[str, str, str]]] = WORDS["hparams"]["rows"]

SETTING_LABELS: Final = {
    name: row for row, _, paper in _ROWS if not paper.startswith("=") for name in paper.split()
}
"""Row of the paper's table, as this project calls it -> our row."""


def hyper_parameters(results: Results) -> Table:
    """One row a setting, one column a method, then the paper's two columns."""
    sources = contestants(results)
    shown = [source for source in sources if source.method in _SHOWN]
    others = [source for source in sources if source not in shown]
    if FULL in results.rows(ABLATION):
        shown.append(Source(results, PAPER_SETTINGS, FULL, ABLATION))
    if not any(source.runs for source in shown):
        raise Unavailable("no run is done yet")
    classes = num_classes(results)
    runs = [source.used_run() for source in shown]
    facts = [None if run is None else _facts(run, classes) for run in runs]
    rows = [
        Row(
            name,
            (
                *(NOT_RUN if known is None else _shown(known, place) for known in facts),
                *_printed(paper),
            ),
        )
        for name, place, paper in _ROWS
    ]
    rates = [
        f"{source.name} {short(setting(run, 'train', 'learning_rate'))}"
        for source in others
        if (run := source.used_run())
    ]
    values = {"rates": f"Learning rate of the others: {', '.join(rates)}." if rates else ""}
    columns = [
        *(Column(source.name) for source in shown),
        *(Column(data, "Paper") for data in _PAPER.values()),
    ]
    return worded_table("hparams", columns, rows, *results.protocol.notes, values=values)


def num_classes(results: Results) -> int | None:
    """C, from two forms of the Brier score, of which one is divided by it; None without runs."""
    best: Mapping[str, float] = {"brier": 0.0}
    for record in results.records.values():
        numbers = record.numbers.get("validation", {}).get("id", {})
        if (numbers.get("brier") or 0.0) > best["brier"]:
            best = numbers
    return round(best["brier"] / best["brier_mean"]) if best.get("brier_mean") else None


def _printed(paper: str) -> list[Cell]:
    """The paper's two values; a text where it prints a word and not a number."""
    if paper.startswith("="):
        return [paper.removeprefix("= ")] * len(_PAPER)
    known, names = published("hparams"), paper.split()
    cells: list[Cell] = []
    for data in _PAPER:
        values = [short(known[name, data].mean) for name in names if (name, data) in known]
        cells.append(", ".join(values) if values else None)
    return cells


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    return short(value) if isinstance(value, int | float) else None


def _shown(facts: Mapping[str, Any], place: str) -> str | None:
    """A setting as text; of a switch of GEM that is off the word; None where there is none."""
    switch, colon, names = place.partition(": ")
    if not colon:
        return _text(facts.get(place))
    if f"head.{switch}" not in facts:
        return None
    values = [_text(facts.get(f"head.{name}")) or "none" for name in names.split()]
    return " / ".join(dict.fromkeys(values)) if facts[f"head.{switch}"] else "off"


def _facts(run: RunRecord, classes: int | None) -> dict[str, Any]:
    """The settings of a run by their places, and what is made of several of them."""
    head, options = _head(run), run.spec["backbone_options"]
    parts = {"train": run.spec["train"], "backbone_options": options, "head": head}
    facts = {f"{part}.{name}": part_of[name] for part, part_of in parts.items() for name in part_of}
    kl = setting(run, "head", "kl_weight")
    authors = getattr(METHODS[run.spec["method"]], "authors", {})
    if kl is None and "kl_weight" in authors and classes is not None:
        kl = authors["kl_weight"] * class_share(classes)
    spectral = setting(run, "backbone_options", "spectral", "kind") or "off"
    sizes = [
        f"{name} {options[name]}" for name in ("channels", "width", "depth") if name in options
    ]
    facts |= {
        "kl": kl,
        "spectral": bool(setting(run, "head", "sn")) or spectral != "off",
        "network": ", ".join([run.spec["backbone"], *sizes]),
    }
    if (outliers := setting(run, "head", "outliers")) is not None:
        kind = str(outliers["kind"])
        scrambled = outliers["scrambled"] if kind != "none" else 0
        facts["outliers"] = kind + (f" + {short(scrambled)} scrambled" if scrambled else "")
    return facts | (_gem_facts(head) if "num_components" in head else {})


def _gem_facts(head: Mapping[str, Any]) -> dict[str, str]:
    weights = (head["fi_reg_weight"], head["fi_mod_strength"])
    start = head["temperature"]
    if start is None:
        start = 0.2 if head["feature_space"] == "unit" else 1.0
    facts = {
        "fisher": " / ".join(dict.fromkeys(short(one) if one else "off" for one in weights)),
        "heads": str(head["num_components"]),
        "gate": str(head["gate"]) if head["core"] else "off",
        "temperature": f"{short(start)}, learned",
    }
    if head["core"] and head["gate"] != "energy":
        facts["bounds"] = f"{short(head['gate_low'])}, {short(head['gate_high'])}"
    return facts


def _head(run: RunRecord) -> Mapping[str, Any]:
    """The configuration of the head; of GEM in the paper's terms, with its switches."""
    head: Mapping[str, Any] = run.spec["head"] or {}
    if "fi_reg_weight" not in head:
        return head
    kind = PaperConfig if "sn" in head else GEMConfig
    config = as_paper(from_plain(kind, head, "head"))
    return {**to_plain(config), **switches(to_plain(config)), "clip": CLIP}


# -- related work ---------------------------------------------------------------------------------

_PAPER_ROWS: Final = {
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

_PROPERTIES: Final = (
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
    others = {method: (method_label(method), method, MAIN) for method in METHODS}
    sections = {
        "The paper's rows": _PAPER_ROWS,
        "Other methods here": {row: others[row] for row in others if row not in _PAPER_ROWS},
    }
    rows = []
    for section, entries in sections.items():
        for row, (name, method, group) in entries.items():
            run = Source(results, name, row, group).used_run()
            if run is None:
                config = preset(row) if group == RELATED else METHODS[method].default_config()
                head = to_plain(config)
            else:
                head = setting(run, "head")
            rows.append(Row(name, ticks(method, head or {}), method, row in PRESETS, section))
    return worded_table("related_work_comparison", map(Column, _PROPERTIES), rows)


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
