"""A small report whose every number is chosen."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

from gemfi_bench.claims import Claim, Finding
from gemfi_bench.claims import Test as OneTest
from gemfi_bench.claims.ledger import Verdict
from gemfi_bench.record_file import RunRecord
from gemfi_bench.report import Content, FigureFile, Missing
from gemfi_bench.statistics import Difference, Interval
from gemfi_bench.tabular import Column, Row, Table, Value

METHODS = ("softmax", "edl", "daedl", "gem-fi")


def key_of(method: str, seed: int) -> str:
    return f"{METHODS.index(method)}{seed}00ffee"


def record(method: str, seed: int, **changes: Any) -> RunRecord:
    """A run whose accuracy is 90, more by its seed."""
    scores = {
        name: {"auroc": 80.0 + at, "aupr_id": 70.0 + at}
        for at, name in enumerate(("max_prob", "evidence"))
    }
    numbers = {
        "test": {"id": {"accuracy": 90.0 + seed, "nll": 0.3125, "brier": 12.5, "ece": 2.25}},
        "ood": {"near": {"by_score": scores, "by_detector": {}}},
        "shift": {"fog-1": {"id": {"accuracy": 60.0}}, "fog-5": {"id": {"accuracy": 40.0}}},
    }
    found: dict[str, Any] = {
        "key": key_of(method, seed),
        "title": f"methods/{method} seed {seed}",
        "spec": {"method": method, "train": {"seed": seed, "epochs": 20}, "head": {}},
        "members": (),
        "data": {
            "train": {"split": "digits", "role": "train", "n": 759, "checksum": "b7e76c67"},
            "near": {"split": "near", "role": "ood-test", "n": 354, "checksum": "97889424"},
        },
        "sessions": (
            {"date": "2026-01-02", "torch": "2.13.0", "commit": "40e9d093"},
            {"date": "2026-01-03", "torch": "2.13.0", "commit": "40e9d093"},
        ),
        "training": {"steps": 480, "parameters": 52327, "seconds": 62.0, "notes": []},
        "seconds": {"train": 62.0, "evaluate": 3.0},
        "scores": {"aleatoric": "max_prob", "epistemic": "evidence"},
        "numbers": numbers,
        "absent": {},
        "detectors": {},
    }
    return RunRecord(**{**found, **changes})


def png(width: int, height: int) -> bytes:
    """A grey picture."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    lines = (b"\0" + b"\x99" * width) * height
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def _value(method: str, mean: float, std: float | None = None) -> Value:
    return Value(mean, std, 2, (key_of(method, 0), key_of(method, 1)))


NUMBERS = Table(
    "table2",
    "OOD detection",
    (Column("AUPR", "near", "high"), Column("NLL", "near", "low", 3), Column("Remark")),
    (
        Row("EDL", (_value("edl", 9.5), _value("edl", 0.2), "b"), "edl"),
        Row("Softmax", (_value("softmax", 100.0), _value("softmax", 0.1), "a"), "softmax"),
        Row("DAEDL", ("data absent", _value("daedl", 0.3), "c"), "daedl"),
        Row("GEM-FI", (_value("gem-fi", 10.25, 1.5), None, "b"), "gem-fi", ours=True),
        Row("EDL", (Value(5.0), Value(7.0), "d"), "edl", section="Theirs"),
        Row("DAEDL", (Value(6.0), Value(1.0), "e"), "daedl", section="Theirs"),
    ),
    notes=("ID is positive.",),
)
SWEEP = Table(
    "lambda_fi",
    "Sensitivity to λ",
    (Column("Accuracy", better="high"),),
    tuple(Row(f"λ = {at}", (_value("gem-fi", 90.0 + at),), "gem-fi") for at in range(3)),
    stub="Value",
)
WIDE = Table(
    "wide",
    "Many columns",
    tuple(Column(f"column {at}", "group") for at in range(24)),
    (Row("GEM-FI", tuple(_value("gem-fi", 1.0 * at, 0.25) for at in range(24)), "gem-fi"),),
)
PUBLISHED = Table(
    "published-table2",
    "Beside the paper's",
    (Column("Ours"), Column("Theirs", marked=False)),
    (
        Row("EDL", (_value("edl", 9.5), Value(97.0, flag="impossible: too high")), "edl"),
        Row("ODIN", ("no counterpart", Value(95.0)), "odin"),
    ),
)


def finding(
    text: str,
    statistic: str,
    outcome: Verdict,
    tests: Sequence[tuple[str, float, tuple[float, float]]] = (),
    keys: tuple[str, ...] = (),
    where: str = "",
    seeds: int = 5,
) -> Finding:
    """A finding of tests by what they compare, their estimates and their intervals."""
    made = [
        OneTest(what, Difference(value, Interval(*ends, value), seeds), "supported", keys)
        for what, value, ends in tests
    ]
    reason = "" if made else "it was not measured"
    claim = Claim(text, text, where, statistic, lambda _: made)
    return Finding(claim, outcome, tuple(made), reason)


CLAIMS = (
    finding(
        "GEM-FI detects better than EDL.",
        "Paired difference of AUROC",
        "supported",
        (("near", 0.8, (0.1, 1.5)), ("far", 1.2, (0.4, 2.0))),
        keys=(key_of("edl", 0), key_of("gem-fi", 0)),
        where="Table 2",
        seeds=2,
    ),
    finding(
        "Temperature scaling is unnecessary.", "NLL", "refuted", (("nats", 0.02, (0.01, 0.03)),)
    ),
    finding("Overhead is modest.", "Ratio of the seconds", "not tested"),
)
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="8" height="4"><path d="M0 0h8"/></svg>'


def sample(**changes: Any) -> Content:
    """Two seeds of four methods."""
    found: dict[str, Any] = {
        "title": "Benchmark: sample",
        "subtitle": "Four methods, two seeds",
        "facts": {"Protocol": "sample", "Runs": "8 of 8"},
        "summary": ["GEM-FI is first.", "EDL is second."],
        "claims": CLAIMS,
        "tables": (NUMBERS, SWEEP, WIDE, Missing("overhead", "Overhead", "it was not measured")),
        "figures": (
            FigureFile("roc", "ROC curves", "Higher is better.", png(80, 20), SVG),
            FigureFile("tsne", "Features", "Two clusters.", png(30, 30)),
            Missing("grid", "A grid of features", "the arrays are not here"),
        ),
        "published": (PUBLISHED,),
        "records": [record(method, seed) for method in METHODS for seed in (0, 1)],
    }
    return Content(**{**found, **changes})
