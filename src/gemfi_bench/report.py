"""The report of a benchmark: one page, one file, no network.

`Content` is what the page shows, as data; `templates/report.html` is the page. It is readable
without its script, which adds sorting, the filters, the theme and the way from a number to its
runs. Each thing that can be searched for is an element with `data-card`, which holds its label.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Final, Literal, TypeAlias

from gemfi._config import check_choice
from gemfi.errors import InputError
from gemfi.methods import METHODS
from gemfi.runs.text import aligned, duration, number, percent_or_nats
from gemfi_bench.claims.ledger import OURS, RULE
from gemfi_bench.formats import html
from gemfi_bench.page import asset, document, fill, size_of
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import of_set, of_shift, of_test
from gemfi_bench.style import method_label
from gemfi_bench.tabular import Table

Verdict = Literal["supported", "refuted", "undecided", "not tested"]

FEW_SEEDS: Final = "fewer than 3 seeds"
"""Stands beside the verdict on a claim with a test that has too few seeds."""

VERDICTS: Final[tuple[Verdict, ...]] = ("supported", "refuted", "undecided", "not tested")

LARGEST_SVG: Final = 150_000
"""Bytes of vectors that a page takes; a larger drawing is shown from its PNG alone. All drawings
together then add a tenth to the page of a whole benchmark."""

_BROAD: Final = 1.7  # a picture that is so many times wider than high takes the whole width
_CROWDED: Final = {9: "crowded", 15: "crowded-2", 22: "crowded-3"}
"""Columns from which a table is printed smaller, on its side, and tiny."""

_LONG: Final = 40  # rows from which a table scrolls in a box of its own


# -- content --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """A claim of the paper's text, and what the records say of it.

    Attributes:
        claim: in one sentence.
        statistic: what was computed to judge it.
        verdict: of the records.
        estimate: the statistic's value, as shown, or why it was not tested; of several statistics
            a line each.
        interval: of the estimate, as shown; a line for each of the estimate's, empty for none.
        few_seeds: whether a test has too few seeds to decide anything.
        keys: of the runs that it rests on.
        where: in the paper, "Section 4.2, Table 2".
    """

    claim: str
    statistic: str
    verdict: Verdict
    estimate: str = ""
    interval: str = ""
    few_seeds: bool = False
    keys: tuple[str, ...] = ()
    where: str = ""

    def __post_init__(self) -> None:
        check_choice("verdict", self.verdict, VERDICTS)

    @property
    def tests(self) -> list[tuple[str, str]]:
        """Each line of the estimate with that of the interval."""
        lines = self.estimate.splitlines(), self.interval.splitlines()
        return list(zip_longest(*lines, fillvalue=""))


@dataclass(frozen=True)
class Missing:
    """A table or a figure that could not be made.

    Attributes:
        label: of the paper.
        title: what it would show.
        reason: why it is not here, for readers.
    """

    label: str
    title: str
    reason: str


@dataclass(frozen=True)
class FigureFile:
    """A figure that was drawn.

    Attributes:
        label: of the paper.
        title: what it shows, in a few words.
        caption: what to see in it.
        png: the picture.
        svg: the same as vectors, which are sharp at any size; None for none.
    """

    label: str
    title: str
    caption: str
    png: bytes
    svg: bytes | None = None

    def __post_init__(self) -> None:
        try:
            size_of(self.png)
        except InputError as error:
            raise InputError(f"figure {self.label}: {error}") from error

    @property
    def is_broad(self) -> bool:
        """Whether it takes the whole width of the page."""
        width, height = size_of(self.png)
        return width > _BROAD * height

    @property
    def vectors(self) -> bytes | None:
        """The drawing that the page keeps; enlarged, the figure is shown from it."""
        return None if self.svg is None or len(self.svg) > LARGEST_SVG else self.svg

    @property
    def file_name(self) -> str:
        """Of the drawing, if it is kept from the page."""
        stem = "".join(sign if sign.isalnum() or sign in "-_." else "-" for sign in self.label)
        return f"{stem}.svg"


AnyTable: TypeAlias = Table | Missing
AnyFigure: TypeAlias = FigureFile | Missing


@dataclass(frozen=True)
class Content:
    """All that a report shows.

    Attributes:
        title: of the page.
        subtitle: what was compared on which data.
        facts: name -> value: protocol, date, code version, runs done and planned.
        summary: what was found, a sentence each.
        claims: the ledger.
        tables: in the paper's order.
        figures: in the paper's order.
        published: our numbers beside the published ones.
        records: of the runs; the keys of numbers and claims lead to them.
    """

    title: str
    subtitle: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    summary: Sequence[str] = ()
    claims: Sequence[Claim] = ()
    tables: Sequence[AnyTable] = ()
    figures: Sequence[AnyFigure] = ()
    published: Sequence[Table] = ()
    records: Sequence[RunRecord] = ()


# -- the page -------------------------------------------------------------------------------------


def page(content: Content) -> str:
    """One HTML document that needs no network and no other file."""
    content = replace(content, published=_published(content))
    _check_labels("table", [*content.tables, *content.published])
    _check_labels("figure", content.figures)
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
        figure_id=figure_id,
        groups=_grouped(content.records),
        run_facts=RunFacts,
    )
    scripts = [asset(name) for name in ("report.js", "tables.js", "runs.js")]
    script = "\n".join(['"use strict";', "{", *scripts, "}", ""])  # its names are its own
    return document(content.title, body, style=asset("report.css"), script=script)


def figure_id(label: str) -> str:
    """The id of a figure, which may have the label of a table too."""
    return f"figure-{label}"


def _published(content: Content) -> list[Table]:
    """With labels of their own, where they have that of the table that they stand beside."""
    taken = {table.label for table in content.tables}
    return [
        replace(table, label=f"published-{table.label}") if table.label in taken else table
        for table in content.published
    ]


def _check_labels(kind: str, shown: Sequence[AnyTable | FigureFile]) -> None:
    counts = Counter(entry.label for entry in shown)
    for label, count in counts.items():
        if count > 1:
            raise InputError(f"two {kind}s of a report have the label {label!r}; give one another")


def _parts(content: Content) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Name and title of each part, with (id, title) of what the contents name in it."""
    tables = [(table.label, table.title) for table in content.tables]
    figures = [(figure_id(figure.label), figure.title) for figure in content.figures]
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


def _tallies(claims: Sequence[Claim]) -> dict[str, dict[Verdict, int]]:
    """The paper's claims and ours, counted apart."""
    verdicts = {
        "Of the paper": [claim.verdict for claim in claims if claim.where != OURS],
        "Of this project": [claim.verdict for claim in claims if claim.where == OURS],
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


def _grouped(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Every record, by the group of the grid for which it was done first."""
    groups: dict[str, list[RunRecord]] = {}
    for run in runs:
        group, slash, _ = run.title.partition("/")
        groups.setdefault(group if slash else "other runs", []).append(run)
    return groups


class RunFacts:
    """What the page shows of a record: what a reader asks first in plain sight, all of it packed.

    The raw JSON is kept as gzip in base64, a tenth of its size, and unpacked by the page's script
    when it is asked for.
    """

    def __init__(self, run: RunRecord) -> None:
        self.run = run
        self.method = str(run.spec.get("method", ""))
        self.labelled, self.metrics = "", dict[str, float | None]()
        for name in ("validation", "test"):  # the validation data where there are no others
            metrics = run.numbers.get(name, {}).get("id")
            if metrics:
                self.labelled, self.metrics = name, metrics

    @property
    def brief(self) -> list[str]:
        """What the closed record says."""
        accuracy = self.metrics.get("accuracy")
        words = [f"accuracy {number(accuracy, 2)} %"] if accuracy is not None else []
        return [*words, duration(sum(self.run.seconds.values())), self.run.key]

    @property
    def tables(self) -> list[tuple[list[str], dict[str, list[str]]]]:
        """Heads, the stub first, and rows: of labelled data, and of each OOD set."""
        run, tables = self.run, []
        if self.metrics:
            known = [metric for metric in _METRICS if metric in self.metrics]
            heads = [self.labelled, *(_METRICS[metric] for metric in known)]
            cells = [percent_or_nats(metric, self.metrics[metric]) for metric in known]
            tables.append((heads, {"": cells}))
        outside = {
            name: [number(of_set(name, *place)(run), 2) for place in _OUTSIDE.values()]
            for name in run.numbers.get("ood", {})
        }
        if outside:
            tables.append((["OOD set", *_OUTSIDE], outside))
        return tables

    @property
    def shift(self) -> str:
        """A sentence on corrupted data; empty without any."""
        shifted = of_shift(None, "id", "accuracy")(self.run)
        if shifted is None:
            return ""
        clean = number(of_test("accuracy")(self.run), 2)
        return (
            f"Accuracy on corrupted data, mean of {len(self.run.numbers['shift'])} sets: "
            f"{number(shifted, 2)} (clean: {clean})."
        )

    @property
    def configuration(self) -> str:
        """Every setting, a line each."""
        return _listed(_flat(self.run.spec))

    @property
    def about(self) -> str:
        """Seed, durations, size, and what stands for the two words of uncertainty."""
        run = self.run
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

    @property
    def environment(self) -> str:
        """Each fact with its values in all sessions, in their order."""
        facts: dict[str, dict[str, None]] = {}
        for session in self.run.sessions:
            for name, value in session.items():
                facts.setdefault(name, {})[_plain(value)] = None
        return _listed({name: ", ".join(values) for name, values in facts.items()})

    @property
    def data(self) -> str:
        """Role, checksum and size of every set."""
        rows = [["set", "role", "checksum", "size"]]
        rows += [
            [name, *(_plain(entry.get(fact)) for fact in ("role", "checksum", "n"))]
            for name, entry in self.run.data.items()
        ]
        return "\n".join(aligned(rows, left=3))

    @property
    def packed(self) -> str:
        """The raw record; the same record is always packed alike."""
        raw = gzip.compress(self.run.line().encode(), compresslevel=6, mtime=0)
        return base64.b64encode(raw).decode("ascii")

    @property
    def kilobytes(self) -> int:
        """Of the raw record."""
        return max(1, round(len(self.run.line().encode()) / 1000))


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
