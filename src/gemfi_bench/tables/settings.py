"""The settings of the runs beside the paper's (hparams), and what the methods have and have not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

Show = Callable[[RunRecord, int | None], str | None]
"""A setting of a run as text, given the number of classes; None where the method has none."""


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
    rows = []
    for name, (show, paper) in _ROWS.items():
        cells: list[Cell] = [NOT_RUN if run is None else show(run, classes) for run in runs]
        rows.append(Row(name, (*cells, *_printed(paper))))
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


def _printed(names: tuple[str, ...] | str) -> list[Cell]:
    """The paper's two values; a text where it prints a word and not a number."""
    if isinstance(names, str):
        return [names] * len(_PAPER)
    known = published("hparams")
    cells: list[Cell] = []
    for data in _PAPER:
        values = [short(known[name, data].mean) for name in names if (name, data) in known]
        cells.append(", ".join(values) if values else None)
    return cells


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    return short(value)


def _head(run: RunRecord) -> Mapping[str, Any]:
    """The configuration of the head; of GEM in the paper's terms, with its switches."""
    head: Mapping[str, Any] = run.spec["head"] or {}
    if "fi_reg_weight" not in head:
        return head
    kind = PaperConfig if "sn" in head else GEMConfig
    config = as_paper(from_plain(kind, head, "head"))
    return {**to_plain(config), **switches(to_plain(config)), "clip": CLIP}


def _of(*path: str) -> Show:
    first, *rest = path
    if first == "head":
        return lambda run, _classes: _text(_head(run).get(*rest))
    return lambda run, _classes: _text(setting(run, *path))


def _switched(switch: str, *names: str) -> Show:
    """Settings of a term of GEM; `off` where its switch is."""

    def show(run: RunRecord, _classes: int | None) -> str | None:
        head = _head(run)
        if switch not in head:
            return None
        values = [_text(head.get(name)) or "none" for name in names]
        return " / ".join(dict.fromkeys(values)) if head[switch] else "off"

    return show


def _kl(run: RunRecord, classes: int | None) -> str | None:
    value = setting(run, "head", "kl_weight")
    authors = getattr(METHODS[run.spec["method"]], "authors", {})
    if value is None and "kl_weight" in authors and classes is not None:
        value = authors["kl_weight"] * class_share(classes)
    return _text(value)


def _of_gem(show: Callable[[Mapping[str, Any]], str | None]) -> Show:
    """A setting that GEM alone has, from the configuration of its head."""

    def of_head(run: RunRecord, _classes: int | None) -> str | None:
        head = _head(run)
        return show(head) if "num_components" in head else None

    return of_head


def _fisher(head: Mapping[str, Any]) -> str:
    weights = (head["fi_reg_weight"], head["fi_mod_strength"])
    return " / ".join(dict.fromkeys(short(weight) if weight else "off" for weight in weights))


def _bounds(head: Mapping[str, Any]) -> str | None:
    if not head["core"] or head["gate"] == "energy":
        return None
    return f"{short(head['gate_low'])}, {short(head['gate_high'])}"


def _temperature(head: Mapping[str, Any]) -> str:
    start = head["temperature"]
    if start is None:
        start = 0.2 if head["feature_space"] == "unit" else 1.0
    return f"{short(start)}, learned"


def _outliers(run: RunRecord, _classes: int | None) -> str | None:
    outliers = setting(run, "head", "outliers")
    if outliers is None:
        return None
    kind = str(outliers["kind"])
    scrambled = outliers["scrambled"] if kind != "none" else 0
    return kind + (f" + {short(scrambled)} scrambled" if scrambled else "")


def _spectral(run: RunRecord, _classes: int | None) -> str:
    """Of backbone and head; the head alone where features are frozen."""
    backbone = setting(run, "backbone_options", "spectral", "kind") or "off"
    return "yes" if setting(run, "head", "sn") or backbone != "off" else "no"


def _network(run: RunRecord, _classes: int | None) -> str | None:
    options = run.spec["backbone_options"]
    sizes = [
        f"{name} {options[name]}" for name in ("channels", "width", "depth") if name in options
    ]
    return ", ".join([run.spec["backbone"], *sizes])


_ROWS: Final[Mapping[str, tuple[Show, tuple[str, ...] | str]]] = {
    "Learning rate": (_of("train", "learning_rate"), ("learning_rate",)),
    "Batch size": (_of("train", "batch_size"), ("batch_size",)),
    "Epochs": (_of("train", "epochs"), ("epochs",)),
    "λ_KL": (_kl, ("lambda_kl",)),
    "λ_FI (penalty / modulation)": (_of_gem(_fisher), ("lambda_fi",)),
    "K (heads)": (_of_gem(lambda head: str(head["num_components"])), ("num_heads",)),
    "Dropout of the backbone": (_of("backbone_options", "dropout"), ("dropout",)),
    "Dropout inside the head": (_of("head", "dropout"), ()),
    "β_id": (_switched("unc", "unc_id"), ("beta_id",)),
    "β_ood": (_switched("unc", "unc_outlier"), ("beta_ood",)),
    "Weight decay": (_of("train", "weight_decay"), ("weight_decay",)),
    "Scheduler": (_of("train", "schedule"), "cosine"),
    "Gate bounds": (_of_gem(_bounds), ("gate_low", "gate_high")),
    "Logit clip τ": (_of("head", "clip"), ("logit_clip",)),
    "Gate": (_of_gem(lambda head: str(head["gate"]) if head["core"] else "off"), "prob"),
    "λ_UNC": (_switched("unc", "unc_weight"), ()),
    "λ_EBM (ID / outliers)": (_switched("ebm", "ebm_weight", "ebm_outlier_weight"), ()),
    "Margin of the energy": (_switched("ebm", "ebm_margin"), ()),
    "Weight of the entropy of π": (_switched("mix", "pi_entropy"), ()),
    "Temperature of the heads": (_of_gem(_temperature), ()),
    "Density scaler ρ": (_of("head", "rho"), "σ(log p)"),
    "Outliers in training": (_outliers, "VOS"),
    "Optimiser": (_of("train", "optimizer"), "AdamW"),
    "Gradient clip": (_of("train", "clip_norm"), "1"),
    "Spectral normalisation": (_spectral, "all layers"),
    "Network": (_network, ()),
}
"""Row -> how a run shows it, and the rows of the paper's table, or its word elsewhere."""

SETTING_LABELS: Final = {
    name: row for row, (_, paper) in _ROWS.items() if not isinstance(paper, str) for name in paper
}
"""Row of the paper's table, as this project calls it -> our row."""


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
