"""What uncertainty costs (overhead), as it was measured on this network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gemfi.methods import METHODS, PRESETS
from gemfi_bench.results import Results
from gemfi_bench.style import method_label
from gemfi_bench.tables.common import worded_table
from gemfi_bench.tabular import Cell, Column, Row, Table, Value
from gemfi_bench.unavailable import Unavailable

_NAMES: Final = {
    "gem-mix": "GEM-MIX (K = 3)",
    "gem-fi": "GEM-FI (K = 3)",
    "gem-fi-k5": "GEM-FI (K = 5)",
    "paper-fi": "GEM-FI (paper's settings)",
}
_TIMES: Final = {"train": "Training step", "infer": "Inference of a batch"}


def overhead(results: Results) -> Table:
    """Parameters, time of a training step and of an inference, and peak memory."""
    measured = results.overhead
    if not measured or not measured.get("rows"):
        raise Unavailable("the overhead was not measured here: gemfi bench does it at its end")
    columns = [Column("Parameters (M)", better="low", decimals=3)]
    for title in _TIMES.values():
        columns += [
            Column("× softmax", title, "low"),
            Column("quartiles", title),
            Column("ms", title, decimals=1),
        ]
    columns.append(Column("Memory (MB)", better="low", decimals=0))
    rows = [_row(name, entry) for name, entry in measured["rows"].items()]
    facts = [
        f"{measured[name]} {text}"
        for name, text in (("rounds", "rounds"), ("batch", "samples a batch"))
        if name in measured
    ]
    network = measured.get("backbone")
    on = f" on {network}" if network else ""
    values = {"measured": f"Measured{on}: {', '.join(facts)}." if facts else ""}
    return worded_table("overhead", columns, rows, values=values)


def _row(name: str, entry: Mapping[str, Any]) -> Row:
    def value(key: str, unit: float = 1.0) -> Cell:
        number = entry.get(key)
        return None if number is None else Value(number / unit)

    cells = [value("parameters", 1e6)]
    for kind in _TIMES:
        low, high = entry.get(f"{kind}_low"), entry.get(f"{kind}_high")
        quartiles = None if low is None or high is None else f"{low:.2f}–{high:.2f}"
        cells += [value(f"{kind}_ratio"), quartiles, value(f"{kind}_ms")]
    cells.append(value("memory_mb"))
    method = entry.get("method", name)
    known = method if method in METHODS else None
    return Row(_NAMES.get(name, method_label(name)), tuple(cells), known, ours=known in PRESETS)
