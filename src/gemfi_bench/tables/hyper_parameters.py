"""The settings of the runs (hparams), with the paper's beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gemfi.losses import class_share
from gemfi.methods import METHODS
from gemfi_bench.grid import ABLATION, FULL
from gemfi_bench.published import published
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import Results
from gemfi_bench.table import Cell, Column, Row, Table
from gemfi_bench.tables.common import NOT_RUN, Origin, contestants, setting, short
from gemfi_bench.unavailable import Unavailable

_SHOWN: Final = ("softmax", "edl", "re-edl", "daedl", "gem-core", "gem-mix", "gem-fi")
"""Methods with a column; of the others a note has the learning rate."""

_PAPER: Final = {"mnist": "MNIST", "cifar10": "CIFAR-10"}

Show = Callable[[RunRecord, int | None], str | None]
"""A setting of a run as text, given the number of classes; None where the method has none."""


def hyper_parameters(results: Results) -> Table:
    """One row a setting, one column a method, then the paper's two columns."""
    sources = contestants(results)
    shown = [each for each in sources if results.method(each.row) in _SHOWN]
    if FULL in results.rows(ABLATION):
        shown.append(Origin("GEM-FI (paper's settings)", FULL, ABLATION))
    if not any(each.runs(results) for each in shown):
        raise Unavailable("no run is done yet")
    classes = num_classes(results)
    columns = [
        *(Column(each.name) for each in shown),
        *(Column(each, "Paper") for each in _PAPER.values()),
    ]
    rows = [
        Row(name, (*(_cell(results, each, show, classes) for each in shown), *_printed(paper)))
        for name, (show, paper) in _ROWS.items()
    ]
    others = [_rate(results, each) for each in sources if each not in shown and each.runs(results)]
    notes = (
        (
            "Written from the configuration of the runs; “–” where a method has no such setting. "
            "Schedules are fractions of training."
        ),
        (
            "The paper leaves open: λ_EBM, λ_UNC, the energy's margin, the temperature of the "
            "heads and its dropout inside them (0.01 to 0.03)."
        ),
        f"Learning rate of the others: {', '.join(others)}." if others else "",
        *results.protocol.notes,
    )
    title = "Hyper-parameters"
    found = tuple(note for note in notes if note)
    return Table("hparams", title, tuple(columns), tuple(rows), "Parameter", found)


def num_classes(results: Results) -> int | None:
    """C, from two forms of the Brier score, of which one is divided by it; None without runs."""
    best: Mapping[str, float] = {"brier": 0.0}
    for record in results.records.values():
        found = record.numbers.get("validation", {}).get("id", {})
        if (found.get("brier") or 0.0) > best["brier"]:
            best = found
    return round(best["brier"] / best["brier_mean"]) if best.get("brier_mean") else None


def _cell(results: Results, source: Origin, show: Show, classes: int | None) -> Cell:
    for run in source.runs(results):
        results.use(run)
        return show(run, classes)
    return NOT_RUN


def _rate(results: Results, source: Origin) -> str:
    run = source.runs(results)[0]
    results.use(run)
    return f"{source.name} {short(setting(run, 'train', 'learning_rate'))}"


def _printed(names: tuple[str, ...] | str) -> list[Cell]:
    """The paper's two values; a text where it prints a word and not a number."""
    if isinstance(names, str):
        return [names] * len(_PAPER)
    known = published("hparams")
    found: list[Cell] = []
    for data in _PAPER:
        values = [short(known[name, data].mean) for name in names if (name, data) in known]
        found.append(", ".join(values) if values else None)
    return found


# -- settings -------------------------------------------------------------------------------------


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    return short(value)


def _of(*path: str) -> Show:
    return lambda run, _classes: _text(setting(run, *path))


def _switched(switch: str, *names: str) -> Show:
    """Settings of a term of GEM; `off` where its switch is."""

    def show(run: RunRecord, _classes: int | None) -> str | None:
        on = setting(run, "head", switch)
        if on is None:
            return None
        values = [_text(setting(run, "head", name)) or "none" for name in names]
        return " / ".join(dict.fromkeys(values)) if on else "off"

    return show


def _kl(run: RunRecord, classes: int | None) -> str | None:
    value = setting(run, "head", "kl_weight")
    authors = getattr(METHODS[run.spec["method"]], "authors", {})
    if value is None and "kl_weight" in authors and classes is not None:
        value = authors["kl_weight"] * class_share(classes)
    return _text(value)


def _fisher(run: RunRecord, _classes: int | None) -> str | None:
    head = run.spec["head"] or {}
    if "fi_reg_weight" not in head:
        return None
    weights = (head["fi_reg_weight"], head["fi_mod_strength"])
    values = [short(weight) if weight else "off" for weight in weights]
    return " / ".join(dict.fromkeys(values))


def _heads(run: RunRecord, _classes: int | None) -> str | None:
    head = run.spec["head"] or {}
    return str(head["num_components"]) if "num_components" in head else None


def _gate(run: RunRecord, _classes: int | None) -> str | None:
    head = run.spec["head"] or {}
    if "num_components" not in head:
        return None
    return str(head.get("gate", "energy")) if head.get("core", True) else "off"


def _bounds(run: RunRecord, _classes: int | None) -> str | None:
    head = run.spec["head"] or {}
    if not head.get("core") or head.get("gate", "energy") == "energy":
        return None
    return f"{short(head['gate_low'])}, {short(head['gate_high'])}"


def _temperature(run: RunRecord, _classes: int | None) -> str | None:
    head = run.spec["head"] or {}
    if "num_components" not in head:
        return None
    start = head.get("temperature")
    if start is None:
        start = 0.2 if head.get("feature_space") == "unit" else 1.0
    return f"{short(start)}, learned"


def _outliers(run: RunRecord, _classes: int | None) -> str | None:
    found = setting(run, "head", "outliers")
    if found is None:
        return None
    kind = str(found["kind"])
    scrambled = found["scrambled"] if kind != "none" else 0
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


_NONE: Final[tuple[str, ...]] = ()
_ROWS: Final[Mapping[str, tuple[Show, tuple[str, ...] | str]]] = {
    "Learning rate": (_of("train", "learning_rate"), ("learning_rate",)),
    "Batch size": (_of("train", "batch_size"), ("batch_size",)),
    "Epochs": (_of("train", "epochs"), ("epochs",)),
    "λ_KL": (_kl, ("lambda_kl",)),
    "λ_FI (penalty / modulation)": (_fisher, ("lambda_fi",)),
    "K (heads)": (_heads, ("num_heads",)),
    "Dropout of the backbone": (_of("backbone_options", "dropout"), ("dropout",)),
    "Dropout inside the head": (_of("head", "dropout"), _NONE),
    "β_id": (_switched("unc", "unc_id"), ("beta_id",)),
    "β_ood": (_switched("unc", "unc_outlier"), ("beta_ood",)),
    "Weight decay": (_of("train", "weight_decay"), ("weight_decay",)),
    "Scheduler": (_of("train", "schedule"), "cosine"),
    "Gate bounds": (_bounds, ("gate_low", "gate_high")),
    "Logit clip τ": (_of("head", "clip"), ("logit_clip",)),
    "Gate": (_gate, "prob"),
    "λ_UNC": (_switched("unc", "unc_weight"), _NONE),
    "λ_EBM (ID / outliers)": (_switched("ebm", "ebm_weight", "ebm_outlier_weight"), _NONE),
    "Margin of the energy": (_switched("ebm", "ebm_margin"), _NONE),
    "Weight of the entropy of π": (_switched("mix", "pi_entropy"), _NONE),
    "Temperature of the heads": (_temperature, _NONE),
    "Density scaler ρ": (_of("head", "rho"), "σ(log p)"),
    "Outliers in training": (_outliers, "VOS"),
    "Optimiser": (_of("train", "optimizer"), "AdamW"),
    "Gradient clip": (_of("train", "clip_norm"), "1"),
    "Spectral normalisation": (_spectral, "all layers"),
    "Network": (_network, _NONE),
}
"""Row -> how a run shows it, and the rows of the paper's table, or its word elsewhere."""

SETTING_LABELS: Final = {
    name: row for row, (_, paper) in _ROWS.items() if not isinstance(paper, str) for name in paper
}
"""Row of the paper's table, as this project calls it -> our row."""
