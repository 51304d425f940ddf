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
from gemfi_bench.formats import csv, html, markdown
from gemfi_bench.grid import RATES
from gemfi_bench.latex import latex
from gemfi_bench.manifest import (
    MANIFEST,
    PAPER_FIGURES,
    PAPER_TABLES,
    file_stem,
    is_kept,
)
from gemfi_bench.report import FEW_SEEDS, Content, FigureFile, Missing, page
from gemfi_bench.results import Results, require_bench
from gemfi_bench.summary import summary
from gemfi_bench.tables import TABLES, Maker
from gemfi_bench.tables.common import WORDS
from gemfi_bench.tabular import Table, Value
from gemfi_bench.unavailable import Unavailable

REPORT: Final = "report.html"
_FORMS: Final = {"md": markdown, "csv": csv, "tex": latex, "html": html}


@dataclass(frozen=True)
class Rendered:
    """What was written."""

    report: Path
    made: tuple[str, ...]  # labels of tables and figures
    missing: Mapping[str, str]  # label -> why it was not made
    findings: tuple[Finding, ...]  # the ledger


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
    with hold_lock(target / ".report.lock"):
        return _rendered(Results(folder), target, progress, figures=figures)


def _rendered(results: Results, target: Path, progress: bool | None, *, figures: bool) -> Rendered:
    work = _Work(results, target, None if progress is None else not progress)
    tables = [work.table(label, make) for label, make in work.bar(TABLES, "tables")]
    drawn = work.figures() if figures else []
    findings = ledger(results, CLAIMS)
    published = comparisons(results)
    for table in published:
        cells = [cell for row in table.rows for cell in row.cells if isinstance(cell, Value)]
        work.write_table(table, dict.fromkeys(key for cell in cells for key in cell.keys))
    caveats = results.caveats(results.ood_sets)
    _write_claims(target, findings, caveats)
    work.finish()
    content = Content(
        title=f"gemfi benchmark: {results.protocol.name}",
        subtitle=results.protocol.title,
        facts=_facts(results),
        summary=[*summary(results, findings), *caveats, *results.protocol.notes],
        claims=findings,
        tables=tables,
        figures=drawn,
        published=published,
        records=list(results.records.values()),
    )
    write_atomically(target / REPORT, page(content).encode())
    missing = {
        entry.label: entry.reason for entry in [*tables, *drawn] if isinstance(entry, Missing)
    }
    return Rendered(target / REPORT, tuple(work.files), missing, tuple(findings))


class _Work:
    """Makes tables and figures and remembers their files, or why there are none."""

    def __init__(self, results: Results, target: Path, hidden: bool | None) -> None:
        self.results, self.target, self.hidden = results, target, hidden
        self.files: dict[str, dict[str, Any]] = {}
        self.reasons: dict[str, str] = {}

    def bar(self, entries: Mapping[str, Any], what: str) -> Any:
        return tqdm(entries.items(), desc=what, disable=self.hidden, leave=False)

    def missing(self, label: str, title: str, reason: Unavailable) -> Missing:
        self.reasons[label] = str(reason)
        return Missing(label, title, str(reason))

    def table(self, label: str, make: Maker) -> Table | Missing:
        watched = self.results.watched()
        try:
            table = make(watched)
        except Unavailable as reason:
            return self.missing(label, WORDS[label]["title"], reason)
        self.write_table(table, watched.used)
        return table

    def write_table(self, table: Table, runs: Iterable[str]) -> None:
        """Write every form of a table, and remember the keys of the runs that it rests on."""
        paths = {f"tables/{file_stem(table.label)}.{kind}": form for kind, form in _FORMS.items()}
        for path, form in paths.items():
            write_atomically(self.target / path, form(table).encode())
        self.files[table.label] = {"files": list(paths), "runs": list(runs)}

    def figures(self) -> list[FigureFile | Missing]:
        from gemfi_bench.figures import FIGURES, PARENT, save  # noqa: PLC0415 - needs matplotlib

        made: list[FigureFile | Missing] = []
        for label, entry in self.bar(FIGURES, "figures"):
            watched = self.results.watched()
            try:
                figure = entry.draw(watched)
            except Unavailable as reason:
                made.append(self.missing(label, entry.title, reason))
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

    def finish(self) -> None:
        """Remove old files of what could not be made now, and write the manifest."""
        for label in self.reasons:
            for part in ("tables", "figures"):
                for path in (self.target / part).glob(f"{file_stem(label)}.*"):
                    path.unlink()
        labels = dict.fromkeys([*PAPER_TABLES, *PAPER_FIGURES, *self.files, *self.reasons])
        manifest = {
            label: self.files.get(label)
            or {"not_made": self.reasons.get(label, "figures were left out")}
            for label in labels
        }
        write_atomically(self.target / MANIFEST, to_json(manifest, indent=1).encode() + b"\n")


def _facts(results: Results) -> dict[str, str]:
    runs = results.records.values()
    alone = [run.seconds["train"] for run in runs if not run.members]  # members have theirs
    seconds = sum([*alone, *(run.seconds["evaluate"] for run in runs)])
    last = [run.sessions[-1] for run in runs if run.sessions]
    versions = sorted({str(session["commit"])[:10] for session in last if session["commit"]})
    dates = sorted(session["date"][:10] for session in last)
    return {
        "Protocol": results.protocol.name,
        "Task": Path(results.protocol.task).name,
        "Seeds": _seeds(results),
        "Runs": f"{len(runs):,}, {duration(seconds)} of computing",
        "Dates": " to ".join(dict.fromkeys([*dates[:1], *dates[-1:]])),
        "Code": ", ".join(versions) or "not from a checkout",
    }


def _seeds(results: Results) -> str:
    """The seeds of the rows; where rows have different ones, of how many each."""
    rows: dict[tuple[str, str], list[int]] = {}
    for cell in results.grid:
        if cell.group != RATES:
            rows.setdefault((cell.group, cell.row), []).append(cell.seed)
    counts = Counter(", ".join(map(str, seeds)) for seeds in rows.values())
    if len(counts) < 2:
        return "".join(counts)
    return "; ".join(
        f"{seeds} ({count} row{'' if count == 1 else 's'})" for seeds, count in counts.most_common()
    )


# -- claims ---------------------------------------------------------------------------------------


def _write_claims(target: Path, findings: Sequence[Finding], caveats: Sequence[str]) -> None:
    """The ledger for machines, and for people."""
    plain = [
        {
            "claim": finding.claim.name,
            "text": finding.claim.text,
            "where": finding.claim.where,
            "statistic": finding.claim.statistic,
            "verdict": finding.outcome,
            "few_seeds": finding.few_seeds,
            "reason": finding.reason,
            "tests": [
                {
                    "what": test.what,
                    "estimate": test.difference.estimate,
                    "low": None if (ends := test.difference.interval) is None else ends.low,
                    "high": None if ends is None else ends.high,
                    "seeds": test.difference.n,
                    "verdict": test.verdict,
                    "runs": list(test.keys),
                }
                for test in finding.tests
            ],
        }
        for finding in findings
    ]
    write_atomically(target / "claims.json", to_json(plain, indent=1).encode() + b"\n")
    lines = ["# Claims", "", RULE, "", *(line for caveat in caveats for line in (caveat, ""))]
    lines += ["| claim | where | statistic | verdict | tests: estimate [95 % interval] |"]
    lines += ["|---|---|---|---|---|"]
    for finding in findings:
        tests = "<br>".join(" ".join(filter(None, pair)) for pair in finding.lines)
        verdict = finding.outcome + (f" ({FEW_SEEDS})" if finding.few_seeds else "")
        claim = finding.claim
        cells = [claim.said, claim.where, claim.statistic, verdict, tests]
        lines.append(f"| {' | '.join(cells)} |")
    write_atomically(target / "claims.md", "\n".join([*lines, ""]).encode())
