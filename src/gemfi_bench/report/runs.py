"""The records of the runs, as HTML: what a reader asks first in plain sight, all of it packed.

The raw JSON of a record is kept as gzip in base64, a tenth of its size, and unpacked by the page's
script when it is asked for.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

from gemfi._text import aligned, duration, number, percent_or_nats
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import of_set, of_shift, of_test

_METRICS = {  # of a labelled set
    "accuracy": "Accuracy",
    "nll": "NLL",
    "brier": "Brier",
    "ece": "ECE",
    "aupr_correct": "AUPR correct",
    "auroc_error": "AUROC error",
}
_OUTSIDE = [
    (f"{head} {kind}", kind, metric)
    for metric, head in (("auroc", "AUROC"), ("aupr_id", "AUPR"))
    for kind in ("aleatoric", "epistemic")
]
_OTHER = "other runs"
_NOTHING = ("", "null", "[]", "{}")


def run_id(key: str) -> str:
    """The id of a run's record."""
    return f"run-{key}"


def records(runs: Sequence[RunRecord]) -> str:
    """Every record, by the group of the grid for which it was done first."""
    known = {run.key for run in runs}
    order = {group: at for at, group in enumerate(dict.fromkeys(map(_group, runs)))}
    grouped = groupby(sorted(runs, key=lambda run: order[_group(run)]), _group)
    return "\n".join(_of_group(group, list(members), known) for group, members in grouped)


def _group(run: RunRecord) -> str:
    group, slash, _ = run.title.partition("/")
    return group if slash else _OTHER


def _of_group(group: str, runs: Sequence[RunRecord], known: set[str]) -> str:
    inner = "\n".join(_record(run, known) for run in runs)
    count = f'<span class="count">{len(runs)}</span>'
    return (
        f'<details class="group">\n<summary>{escape(group)} {count}</summary>\n{inner}\n</details>'
    )


def _record(run: RunRecord, known: set[str]) -> str:
    method = str(run.spec.get("method", ""))
    brief = "".join(f"<span>{escape(each)}</span>" for each in _brief(run))
    return (
        f'<details class="run" id="{escape(run_id(run.key))}" data-method="{escape(method)}">\n'
        f'<summary><span class="dot"></span><span class="name">{escape(run.title)}</span>'
        f'<span class="brief">{brief}</span></summary>\n<div class="facets">\n'
        + "\n".join(_facets(run, known))
        + f"\n</div>\n{_raw(run)}\n</details>"
    )


def _brief(run: RunRecord) -> list[str]:
    """What the closed record says."""
    accuracy = _labelled(run)[1].get("accuracy")
    found = [f"accuracy {number(accuracy, 2)} %"] if accuracy is not None else []
    return [*found, duration(sum(run.seconds.values())), run.key]


# -- an open record -------------------------------------------------------------------------------


def _facets(run: RunRecord, known: set[str]) -> Iterator[str]:
    yield _facet("Numbers", _numbers(run), wide=True)
    yield _facet("Configuration", _listed(_flat(run.spec)))
    about = _facet("Run", _listed(_about(run)) + _members(run, known))
    yield f"<div>{about}{_facet('Environment', _listed(_environment(run.sessions)))}</div>"
    yield _facet("Data", _data(run), wide=True)


def _facet(title: str, content: str, *, wide: bool = False) -> str:
    broad = " broad" if wide else ""
    return f'<section class="facet{broad}"><h4>{escape(title)}</h4>{content}</section>'


def _about(run: RunRecord) -> dict[str, str]:
    """Seed, durations, size, and what stands for the two words of uncertainty."""
    training = {name: each for name, each in run.training.items() if name != "seconds"}
    found = {
        "key": run.key,
        "seed": _plain(run.spec.get("train", {}).get("seed")),
        **{f"seconds, {name}": f"{each:.1f}" for name, each in run.seconds.items()},
        **_flat(training),
        **{f"{kind} score": score for kind, score in run.scores.items()},
        "detectors": ", ".join(run.detectors),
        **{f"absent: {name}": why for name, why in run.absent.items()},
    }
    return {name: each for name, each in found.items() if each not in _NOTHING}


def _members(run: RunRecord, known: set[str]) -> str:
    if not run.members:
        return ""
    named = (
        f'<a href="#{escape(run_id(each))}">{escape(each)}</a>' if each in known else escape(each)
        for each in run.members
    )
    return f'<p class="members">Assembled from {", ".join(named)}.</p>'


def _environment(sessions: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Each fact with its values in all sessions, in their order."""
    names = dict.fromkeys(name for session in sessions for name in session)
    return {
        name: ", ".join(dict.fromkeys(_plain(each[name]) for each in sessions if name in each))
        for name in names
    }


def _data(run: RunRecord) -> str:
    rows = [["set", "role", "size", "checksum"]]
    rows += [
        [name, *(_plain(each.get(fact)) for fact in ("role", "n", "checksum"))]
        for name, each in run.data.items()
    ]
    return _lines(aligned([[row[0], row[1], row[3], row[2]] for row in rows], left=3))


def _listed(facts: Mapping[str, str]) -> str:
    return _lines(aligned([[name, each] for name, each in facts.items()], left=2))


def _lines(lines: Sequence[str]) -> str:
    text = escape("\n".join(lines))
    return f'<pre tabindex="0">{text}</pre>'


def _flat(value: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Nested settings as `train.seed` -> text."""
    found: dict[str, str] = {}
    for name, each in value.items():
        if isinstance(each, Mapping) and each:
            found |= _flat(each, f"{before}{name}.")
        else:
            found[f"{before}{name}"] = _plain(each)
    return found


def _plain(value: object) -> str:
    """A JSON value in a line, a string without quotes."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# -- numbers --------------------------------------------------------------------------------------


def _labelled(run: RunRecord) -> tuple[str, Mapping[str, float | None]]:
    """The test data with their metrics, or the validation data where the run has no others."""
    for name in ("test", "validation"):
        metrics = run.numbers.get(name, {}).get("id")
        if metrics:
            return name, metrics
    return "", {}


def _numbers(run: RunRecord) -> str:
    name, metrics = _labelled(run)
    parts = []
    if metrics:
        shown = [
            (head, percent_or_nats(metric, metrics[metric]))
            for metric, head in _METRICS.items()
            if metric in metrics
        ]
        parts.append(_small(name, [head for head, _ in shown], {"": [text for _, text in shown]}))
    outside = {
        each: [number(of_set(each, kind, metric)(run), 2) for _, kind, metric in _OUTSIDE]
        for each in run.numbers.get("ood", {})
    }
    if outside:
        parts.append(_small("OOD set", [head for head, *_ in _OUTSIDE], outside))
    shifted = of_shift(None, "id", "accuracy")(run)
    if shifted is not None:
        clean = number(of_test("accuracy")(run), 2)
        parts.append(
            f"<p>Accuracy on corrupted data, mean of {len(run.numbers['shift'])} sets: "
            f"{number(shifted, 2)} (clean: {clean}).</p>"
        )
    return "\n".join(parts) or "<p>None.</p>"


def _small(stub: str, heads: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{escape(head)}</th>' for head in (stub, *heads))
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(f"<td>{escape(each)}</td>" for each in cells)
        + "</tr>"
        for name, cells in rows.items()
    )
    return (
        f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'
        "</div>"
    )


# -- raw ------------------------------------------------------------------------------------------


def _raw(run: RunRecord) -> str:
    text = run.line()
    size = max(1, round(len(text.encode()) / 1000))
    return (
        f'<details class="raw"><summary>Raw record, {size} kB of JSON</summary>'
        f'<pre data-packed="{packed(text)}" tabindex="0"></pre></details>'
    )


def packed(text: str) -> str:
    """Text as gzip in base64; the same text is always packed alike."""
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode("ascii")
