"""Rendering: every table, figure and claim of a bench into files, and the report that shows them.

| file | holds |
|---|---|
| `report.html` | everything, in one page that needs nothing else |
| `manifest.json` | every label of the paper -> its files and their runs, or why there are none |
| `claims.json`, `claims.md` | the ledger |
| `tables/LABEL.md`, `.csv`, `.tex`, `.html` | the tables |
| `figures/LABEL.png`, `.svg`, `.pdf` | the figures |

The runs of a table or a figure are those that it was made from. The figures of toys have none:
their models are no runs of the grid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tqdm import tqdm

from gemfi._files import hold_lock, to_json, write_atomically
from gemfi._text import duration
from gemfi.errors import InputError
from gemfi_bench.claims import CLAIMS, Finding, ledger
from gemfi_bench.claims.ledger import RULE
from gemfi_bench.comparison import comparisons
from gemfi_bench.grid import RATES
from gemfi_bench.manifest import (
    MANIFEST,
    NOT_MADE,
    PAPER_FIGURES,
    PAPER_TABLES,
    file_stem,
    is_kept,
)
from gemfi_bench.render import csv, html, latex, markdown
from gemfi_bench.report import Claim as Shown
from gemfi_bench.report import Content, FigureFile, Missing, page
from gemfi_bench.report.content import FEW_SEEDS
from gemfi_bench.results import Results, require_bench
from gemfi_bench.summary import summary
from gemfi_bench.table import Table, Value
from gemfi_bench.tables import TABLES, Maker
from gemfi_bench.unavailable import Unavailable

REPORT: Final = "report.html"
_LOCK: Final = ".report.lock"
_FORMS: Final = {"md": markdown, "csv": csv, "tex": latex, "html": html}


@dataclass(frozen=True)
class Rendered:
    """What was written.

    Attributes:
        report: the page.
        made: labels of tables and figures.
        missing: label -> why it was not made.
        findings: the ledger.
    """

    report: Path
    made: tuple[str, ...]
    missing: Mapping[str, str]
    findings: tuple[Finding, ...]


def render(
    folder: Path | str,
    *,
    out: Path | str | None = None,
    figures: bool = True,
    progress: bool | None = None,
) -> Rendered:
    """Write tables, figures, claims and report of a bench; nothing is trained.

    One process at a time: they would write the same files.

    Args:
        folder: of the bench.
        out: where to write; None for the same folder.
        figures: False for tables and claims alone.
        progress: a bar: yes, no, or (None) if standard error is a terminal.
    """
    require_bench(Path(folder))
    target = Path(folder) if out is None else Path(out)
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is a file; give a folder for the report")
    if is_kept(target):
        raise InputError(
            f"{target} is kept without its arrays, and rendering here would lose what was made "
            "from them; give another folder as out"
        )
    target.mkdir(parents=True, exist_ok=True)
    with hold_lock(target / _LOCK):
        return _rendered(Results(folder), target, progress, figures=figures)


def _rendered(results: Results, target: Path, progress: bool | None, *, figures: bool) -> Rendered:
    work = _Work(results, target, progress)
    tables = work.tables()
    drawn = work.figures() if figures else []
    findings = ledger(results, CLAIMS)
    published = comparisons(results)
    for table in published:
        work.write_table(table, _keys(table))
    caveats = results.caveats(results.ood_sets)
    _write_claims(target, findings, caveats)
    work.remove_old()
    work.write_manifest()
    content = Content(
        title=f"gemfi benchmark: {results.protocol.name}",
        subtitle=results.protocol.title,
        facts=_facts(results),
        summary=[*summary(results, findings), *caveats, *results.protocol.notes],
        claims=[_shown(each) for each in findings],
        tables=tables,
        figures=drawn,
        published=published,
        records=list(results.records.values()),
    )
    write_atomically(target / REPORT, page(content).encode())
    missing = {each.label: each.reason for each in [*tables, *drawn] if isinstance(each, Missing)}
    return Rendered(target / REPORT, tuple(work.files), missing, tuple(findings))


class _Work:
    """Makes tables and figures and remembers their files."""

    def __init__(self, results: Results, target: Path, progress: bool | None) -> None:
        self.results, self.target = results, target
        self.hidden = None if progress is None else not progress
        self.files: dict[str, dict[str, Any]] = {}
        self.reasons: dict[str, str] = {}

    def tables(self) -> list[Table | Missing]:
        made: list[Table | Missing] = []
        for label, build in self._bar(TABLES, "tables"):
            watched = self.results.watched()
            try:
                table = build(watched)
            except Unavailable as reason:
                self.reasons[label] = str(reason)
                made.append(Missing(label, _title(build), str(reason)))
                continue
            self.write_table(table, watched.used)
            made.append(table)
        return made

    def write_table(self, table: Table, runs: Iterable[str]) -> None:
        """Write every form of a table, and remember the keys of the runs that it rests on."""
        paths = []
        for ending, form in _FORMS.items():
            path = self.target / "tables" / f"{file_stem(table.label)}.{ending}"
            write_atomically(path, form(table).encode())
            paths.append(str(path.relative_to(self.target)))
        self.files[table.label] = {"files": paths, "runs": list(runs)}

    def figures(self) -> list[FigureFile | Missing]:
        from gemfi_bench.figures import FIGURES, PARENT, save  # noqa: PLC0415 - needs matplotlib

        made: list[FigureFile | Missing] = []
        for label, entry in self._bar(FIGURES, "figures"):
            watched = self.results.watched()
            try:
                figure = entry.draw(watched)
            except Unavailable as reason:
                self.reasons[label] = str(reason)
                made.append(Missing(label, entry.title, str(reason)))
                continue
            saved = save(figure, self.target / "figures", label)
            paths = [str(path.relative_to(self.target)) for path in saved.values()]
            self.files[label] = {"files": paths, "runs": list(watched.used)}
            png, svg = saved["png"].read_bytes(), saved["svg"].read_bytes()
            made.append(FigureFile(label, entry.title, entry.full_caption(watched), png, svg))
        for panel, parent in PARENT.items():
            if parent in self.files:
                self.files[panel] = self.files[parent] | {"panel_of": parent}
            elif parent in self.reasons:
                self.reasons[panel] = self.reasons[parent]
        return made

    def remove_old(self) -> None:
        """Files of an earlier rendering of what could not be made this time."""
        for label in self.reasons:
            for part in ("tables", "figures"):
                for path in (self.target / part).glob(f"{file_stem(label)}.*"):
                    path.unlink()

    def write_manifest(self) -> None:
        """Every label of the paper, then our own."""
        labels = dict.fromkeys([*PAPER_TABLES, *PAPER_FIGURES, *self.files, *self.reasons])
        plain = {}
        for label in labels:
            if label in self.files:
                plain[label] = self.files[label]
            else:
                reason = self.reasons.get(label) or NOT_MADE.get(label, "figures were left out")
                plain[label] = {"not_made": reason}
        write_atomically(self.target / MANIFEST, to_json(plain, indent=1).encode() + b"\n")

    def _bar(self, entries: Mapping[str, Any], what: str) -> Any:
        return tqdm(entries.items(), desc=what, disable=self.hidden, leave=False)


def _title(build: Maker) -> str:
    """What a table that could not be made would have shown."""
    return (build.__doc__ or "").strip().split("\n")[0].rstrip(".")


def _keys(table: Table) -> list[str]:
    """The runs of the numbers of a table."""
    cells = [cell for row in table.rows for cell in row.cells if isinstance(cell, Value)]
    return list(dict.fromkeys(key for cell in cells for key in cell.keys))


def _facts(results: Results) -> dict[str, str]:
    records = results.records.values()
    alone = [each.seconds["train"] for each in records if not each.members]  # members have theirs
    seconds = sum([*alone, *(each.seconds["evaluate"] for each in records)])
    commits = {each.sessions[-1]["commit"] for each in records if each.sessions}
    versions = sorted(str(each)[:10] for each in commits if each)
    dates = sorted(each.sessions[-1]["date"][:10] for each in records if each.sessions)
    return {
        "Protocol": results.protocol.name,
        "Task": Path(results.protocol.task).name,
        "Seeds": _seeds(results),
        "Runs": f"{len(records):,}, {duration(seconds)} of computing",
        "Dates": " to ".join(dict.fromkeys([*dates[:1], *dates[-1:]])),
        "Code": ", ".join(versions) or "not from a checkout",
    }


def _seeds(results: Results) -> str:
    """The seeds of the rows; where rows have different ones, of how many each.

    Args:
        results: of a bench.
    """
    rows: dict[tuple[str, str], list[int]] = {}
    for each in results.grid:
        if each.group != RATES:
            rows.setdefault((each.group, each.row), []).append(each.seed)
    counts = Counter(", ".join(map(str, seeds)) for seeds in rows.values())
    if len(counts) < 2:
        return "".join(counts)
    return "; ".join(f"{seeds} ({_rows(count)})" for seeds, count in counts.most_common())


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


# -- claims ---------------------------------------------------------------------------------------


def _shown(finding: Finding) -> Shown:
    """A finding as the report shows it; of several tests, each on a line."""
    claim = finding.claim
    label = claim.text + (" (the paper's settings)" if "paper's settings" in claim.name else "")
    lines = [f"{each.what}: {each.shown()[0]}" for each in finding.tests]
    return Shown(
        claim=label,
        statistic=claim.statistic,
        verdict=finding.outcome,
        estimate="\n".join(lines) or finding.reason,
        interval="\n".join(f"{each.shown()[1]}, {each.verdict}" for each in finding.tests),
        few_seeds=finding.few_seeds,
        keys=tuple(dict.fromkeys(key for each in finding.tests for key in each.keys)),
        where=claim.where,
    )


def _write_claims(target: Path, findings: Sequence[Finding], caveats: Sequence[str]) -> None:
    """The ledger for machines, and for people."""
    plain = [
        {
            "claim": each.claim.name,
            "text": each.claim.text,
            "where": each.claim.where,
            "statistic": each.claim.statistic,
            "verdict": each.outcome,
            "few_seeds": each.few_seeds,
            "reason": each.reason,
            "tests": [
                {
                    "what": test.what,
                    "estimate": test.difference.estimate,
                    "low": None if (i := test.difference.interval) is None else i.low,
                    "high": None if i is None else i.high,
                    "seeds": test.difference.n,
                    "verdict": test.verdict,
                    "runs": list(test.keys),
                }
                for test in each.tests
            ],
        }
        for each in findings
    ]
    write_atomically(target / "claims.json", to_json(plain, indent=1).encode() + b"\n")
    write_atomically(target / "claims.md", _claims_table(findings, caveats).encode())


def _claims_table(findings: Sequence[Finding], caveats: Sequence[str]) -> str:
    lines = [
        "# Claims",
        "",
        RULE,
        "",
        *(line for each in caveats for line in (each, "")),
        "| claim | where | statistic | verdict | tests: estimate [95 % interval] |",
        "|---|---|---|---|---|",
    ]
    for each in findings:
        shown = _shown(each)
        estimates = shown.estimate.split("\n")
        intervals = shown.interval.split("\n")
        tests = "<br>".join(
            " ".join(part for part in pair if part)
            for pair in zip(estimates, intervals, strict=False)
        )
        verdict = each.outcome + (f" ({FEW_SEEDS})" if each.few_seeds else "")
        cells = [shown.claim, shown.where, shown.statistic, verdict, tests or each.reason]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])
