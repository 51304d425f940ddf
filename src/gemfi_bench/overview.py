"""The two tables of the README that come from `results`: the main methods, and the ledgers.

    python -m gemfi_bench.overview

Numbers are means over seeds, of test data, without their deviations, which the tables of each
folder have. The best of a line is bold, by the digits that are printed, if it rests on as many runs
as any of the line.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

from gemfi._files import read_json
from gemfi_bench.claims.ledger import OURS, VERDICTS
from gemfi_bench.formats import markdown_table
from gemfi_bench.results import Pick, Results, mean_of, of_detector, of_set, of_test
from gemfi_bench.style import detector_label, method_label
from gemfi_bench.tabular import Better, Column, Row, Table, marks, printed

RESULTS: Final = Path(__file__).parents[2] / "results"
DATA: Final = {
    "digits": ("digits", 1),
    "mnist": ("MNIST", 2),
    "cifar10": ("CIFAR-10", 1),
    "cifar10-frozen": ("CIFAR-10, frozen features", 1),
}
"""Folder -> how it is called, and how many digits of a percentage tell its methods apart."""

METHODS: Final = ("softmax", "ensemble", "edl", "daedl", "re-edl", "gem-core", "gem-fi")
DETECTOR: Final = "knn"

_Line = tuple[str, Pick, Pick | None, Better, int]
"""What it is, of a method, of the detector if it has it, which way is good, and digits."""


def overview(below: Path = RESULTS) -> str:
    """The table as Markdown."""
    heads = [*map(method_label, METHODS), f"{detector_label(DETECTOR)} on softmax"]
    rows = [["data", "", *heads]]
    for name, (title, digits) in DATA.items():
        results = Results(below / name)
        seeds = len(results.runs("gem-fi"))
        first = f"{title} ({seeds} seed{'s' if seeds > 1 else ''})"
        for line in _lines(results, digits):
            rows.append([first, line[0], *_cells(results, line)])
            first = ""
    return "\n".join(markdown_table(rows, left=2))


def ledgers(below: Path = RESULTS) -> str:
    """How many claims have which verdict, the paper's / ours, by data, as Markdown."""
    rows = [["claims, the paper's / ours", *VERDICTS]]
    for name, (title, _) in DATA.items():
        claims = read_json(below / name / "claims.json", "keep the results again")
        counts = Counter((claim["where"] == OURS, claim["verdict"]) for claim in claims)
        cells = [f"{counts[False, verdict]} / {counts[True, verdict]}" for verdict in VERDICTS]
        rows.append([f"[{title}](results/{name}/claims.md)", *cells])
    return "\n".join(markdown_table(rows))


def _lines(results: Results, digits: int) -> list[_Line]:
    """Accuracy, NLL, ECE, and an AUROC for each group of OOD sets that can judge."""
    lines: list[_Line] = [
        ("accuracy", of_test("accuracy"), None, "high", digits),
        ("NLL", of_test("nll"), None, "low", 3),
        ("ECE", of_test("ece"), None, "low", digits),
    ]
    judges = [name for name in results.unseen_sets if not results.is_absent(name)]
    for group in (results.protocol.near, results.protocol.far):
        names = [name for name in group if name in judges]
        if names:
            pick = mean_of([of_set(name, "epistemic", "auroc") for name in names])
            beside = mean_of([of_detector(name, DETECTOR, "auroc") for name in names])
            sets = ", ".join(map(results.title, names))
            lines.append((f"AUROC: {sets}", pick, beside, "high", digits))
    return lines


def _cells(results: Results, line: _Line) -> list[str]:
    _, pick, beside, better, digits = line
    values = [results.value(row, pick) for row in METHODS]
    values.append(None if beside is None else results.value("softmax", beside))
    rows = tuple(Row(str(at), (value,)) for at, value in enumerate(values))
    marked = marks(Table("overview", "", (Column("", better=better, decimals=digits),), rows))
    shown = ["–" if value is None else printed(value.mean, digits) for value in values]
    return [
        f"**{text}**" if marked.get((at, 0)) == "best" else text for at, text in enumerate(shown)
    ]


if __name__ == "__main__":
    print(overview(), ledgers(), sep="\n\n")
