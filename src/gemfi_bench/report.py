"""The report of a benchmark: one page, one file, no network.

`Content` is what the page shows, as data; `templates/report.html` is the page. It is readable
without its script, which adds sorting, the filters, the theme and the way from a number to its
runs. Each thing that can be searched for is an element with `data-card`, which holds its label.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gemfi._text import aligned, duration, number, percent_or_nats
from gemfi.methods import METHODS
from gemfi_bench.claims.ledger import OURS, RULE, VERDICTS, Finding, Verdict
from gemfi_bench.formats import html
from gemfi_bench.manifest import file_stem
from gemfi_bench.page import asset, document, fill, size_of
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import of_set, of_shift, of_test
from gemfi_bench.style import method_label
from gemfi_bench.tabular import Table

FEW_SEEDS: Final = "fewer than 3 seeds"
"""Stands beside the verdict on a claim with a test that has too few seeds."""

LARGEST_SVG: Final = 150_000
"""Bytes of vectors that a page takes; a larger drawing is shown from its PNG alone. All drawings
together then add a tenth to the page of a whole benchmark."""

_BROAD: Final = 1.7  # a picture that is so many times wider than high takes the whole width
_CROWDED: Final = {9: "crowded", 15: "crowded-2", 22: "crowded-3"}
"""Columns from which a table is printed smaller, on its side, and tiny."""

_LONG: Final = 40  # rows from which a table scrolls in a box of its own


@dataclass(frozen=True)
class Missing:
    """A table or a figure that could not be made, and the reason for readers."""

    label: str
    title: str
    reason: str


@dataclass(frozen=True)
class FigureFile:
    """A figure that was drawn, as a picture and as vectors, which are sharp at any size."""

    label: str
    title: str
    caption: str
    png: bytes
    svg: bytes | None = None

    @property
    def is_broad(self) -> bool:
        """Whether it takes the whole width of the page."""
        width, height = size_of(self.png)
        return width > _BROAD * height

    @property
    def vectors(self) -> bytes | None:
        """The drawing that the page keeps; enlarged, the figure is shown from it."""
        return None if self.svg is None or len(self.svg) > LARGEST_SVG else self.svg


@dataclass(frozen=True)
class Content:
    """All that a report shows, tables and figures in the paper's order."""

    title: str
    subtitle: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)  # protocol, date, runs done and so on
    summary: Sequence[str] = ()  # what was found, a sentence each
    claims: Sequence[Finding] = ()
    tables: Sequence[Table | Missing] = ()
    figures: Sequence[FigureFile | Missing] = ()
    published: Sequence[Table] = ()  # our numbers beside the published ones
    records: Sequence[RunRecord] = ()  # the keys of numbers and claims lead to them


def page(content: Content) -> str:
    """One HTML document that needs no network and no other file."""
    groups: dict[str, list[RunRecord]] = {}
    for run in content.records:
        group, slash, _ = run.title.partition("/")  # of the grid, for which it was done first
        groups.setdefault(group if slash else "other runs", []).append(run)
    body = fill(
        "report.html",
        content=content,
        parts=_parts(content),
        methods={name: method_label(name) for name in _methods(content)},
        tallies=_tallies(content.claims),
        rule=RULE,
        few_seeds=FEW_SEEDS,
        verdicts=VERDICTS,
        html=html,
        classes_of=_classes_of,
        figure_id=_figure_id,
        file_stem=file_stem,
        groups=groups,
        run_facts=_run_facts,
    )
    scripts = [asset(name) for name in ("report.js", "tables.js", "runs.js")]
    script = "\n".join(['"use strict";', "{", *scripts, "}", ""])  # its names are its own
    return document(content.title, body, style=asset("report.css"), script=script)


def _figure_id(label: str) -> str:
    """A figure may have the label of a table too."""
    return f"figure-{label}"


def _parts(content: Content) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Name and title of each part, with (id, title) of what the contents name in it."""
    tables = [(table.label, table.title) for table in content.tables]
    figures = [(_figure_id(figure.label), figure.title) for figure in content.figures]
    published = [(table.label, table.title) for table in content.published]
    parts: list[tuple[str, str, list[tuple[str, str]]]] = [
        ("summary", "Summary", []),
        ("claims", "Claims", []),
        ("tables", "Tables", tables),
        ("figures", "Figures", figures),
        ("published", "Beside the published numbers", published),
        ("records", "Records of the runs", []),
    ]
    return [part for part in parts if getattr(content, part[0])]


def _methods(content: Content) -> list[str]:
    """Known ones in the order of the package, then others of our own tables and records.

    Published rows have many more names, which nobody chooses between.
    """
    tables = [table for table in content.tables if isinstance(table, Table)]
    ours = [row.method for table in tables for row in table.rows if row.method]
    ours += [str(run.spec["method"]) for run in content.records if "method" in run.spec]
    theirs = {row.method for table in content.published for row in table.rows}
    others = [name for name in dict.fromkeys(ours) if name not in METHODS]
    return [*(name for name in METHODS if name in {*ours, *theirs}), *others]


def _tallies(findings: Sequence[Finding]) -> dict[str, dict[Verdict, int]]:
    """The paper's claims and ours, counted apart."""
    verdicts = {
        "Of the paper": [found.outcome for found in findings if found.claim.where != OURS],
        "Of this project": [found.outcome for found in findings if found.claim.where == OURS],
    }
    return {
        whose: {verdict: given.count(verdict) for verdict in VERDICTS}
        for whose, given in verdicts.items()
        if given
    }


def _classes_of(table: Table) -> str:
    """The classes of a table's card."""
    crowded = [name for least, name in _CROWDED.items() if len(table.columns) >= least]
    return " ".join(["card", *crowded, *(["long"] if len(table.rows) >= _LONG else [])])


# -- records of the runs --------------------------------------------------------------------------

_METRICS: Final = {  # of a labelled set
    "accuracy": "Accuracy",
    "nll": "NLL",
    "brier": "Brier",
    "ece": "ECE",
    "aupr_correct": "AUPR correct",
    "auroc_error": "AUROC error",
}
_OUTSIDE: Final = {
    f"{head} {kind}": (kind, metric)
    for metric, head in (("auroc", "AUROC"), ("aupr_id", "AUPR"))
    for kind in ("aleatoric", "epistemic")
}
_NOTHING: Final = ("", "null", "[]", "{}")


def _run_facts(run: RunRecord) -> dict[str, Any]:
    """What the page shows of a record: what a reader asks first in plain sight, all of it packed.

    The raw JSON is kept as gzip in base64, a tenth of its size, and unpacked by the page's script
    when it is asked for. The same record is always packed alike.
    """
    labelled = "test" if run.numbers.get("test", {}).get("id") else "validation"
    metrics = run.numbers.get(labelled, {}).get("id") or {}
    accuracy = metrics.get("accuracy")
    brief = [f"accuracy {number(accuracy, 2)} %"] if accuracy is not None else []
    data = [["set", "role", "checksum", "size"]]
    for name, entry in run.data.items():
        data.append([name, *(_plain(entry.get(fact)) for fact in ("role", "checksum", "n"))])
    sessions: dict[str, dict[str, None]] = {}  # each fact with its values in all of them, in order
    for session in run.sessions:
        for name, value in session.items():
            sessions.setdefault(name, {})[_plain(value)] = None
    raw = run.line().encode()
    return {
        "run": run,
        "method": str(run.spec.get("method", "")),
        "brief": [*brief, duration(sum(run.seconds.values())), run.key],
        "tables": _number_tables(run, labelled, metrics),
        "shift": _shift(run),
        "configuration": _listed(_flat(run.spec)),
        "about": _about(run),
        "environment": _listed({name: ", ".join(values) for name, values in sessions.items()}),
        "data": "\n".join(aligned(data, left=3)),
        "packed": base64.b64encode(gzip.compress(raw, compresslevel=6, mtime=0)).decode("ascii"),
        "kilobytes": max(1, round(len(raw) / 1000)),
    }


def _number_tables(
    run: RunRecord, labelled: str, metrics: Mapping[str, Any]
) -> list[tuple[list[str], dict[str, list[str]]]]:
    """Heads, the stub first, and rows: of labelled data, and of each OOD set."""
    tables = []
    if metrics:
        known = [metric for metric in _METRICS if metric in metrics]
        heads = [labelled, *(_METRICS[metric] for metric in known)]
        tables.append((heads, {"": [percent_or_nats(name, metrics[name]) for name in known]}))
    outside = {
        name: [number(of_set(name, *place)(run), 2) for place in _OUTSIDE.values()]
        for name in run.numbers.get("ood", {})
    }
    if outside:
        tables.append((["OOD set", *_OUTSIDE], outside))
    return tables


def _shift(run: RunRecord) -> str:
    """A sentence on corrupted data; empty without any."""
    shifted = of_shift(None, "id", "accuracy")(run)
    if shifted is None:
        return ""
    clean = number(of_test("accuracy")(run), 2)
    return (
        f"Accuracy on corrupted data, mean of {len(run.numbers['shift'])} sets: "
        f"{number(shifted, 2)} (clean: {clean})."
    )


def _about(run: RunRecord) -> str:
    """Seed, durations, size, and what stands for the two words of uncertainty."""
    training = {name: value for name, value in run.training.items() if name != "seconds"}
    facts = {
        "key": run.key,
        "seed": _plain(run.spec.get("train", {}).get("seed")),
        **{f"seconds, {name}": f"{seconds:.1f}" for name, seconds in run.seconds.items()},
        **_flat(training),
        **{f"{kind} score": score for kind, score in run.scores.items()},
        "detectors": ", ".join(run.detectors),
        **{f"absent: {name}": why for name, why in run.absent.items()},
    }
    return _listed({name: text for name, text in facts.items() if text not in _NOTHING})


def _listed(facts: Mapping[str, str]) -> str:
    return "\n".join(aligned([[name, text] for name, text in facts.items()], left=2))


def _flat(settings: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Nested settings as `train.seed` -> text."""
    flat: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{before}{name}.")
        else:
            flat[f"{before}{name}"] = _plain(value)
    return flat


def _plain(value: object) -> str:
    """A JSON value in a line, a string without quotes."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
