"""`gemfi demo`: the main job, working, in two minutes and without a download."""

from __future__ import annotations

import io
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from tqdm import tqdm

from gemfi import scores
from gemfi._drawing import DPI, require_matplotlib, styled
from gemfi._files import to_json, write_atomically
from gemfi._text import aligned
from gemfi._version import __version__
from gemfi.errors import InputError
from gemfi.methods import PRESETS
from gemfi.scores import SCORES, score_label
from gemfi_bench.formats import html, layout
from gemfi_bench.page import document, fill
from gemfi_bench.style import SHOWN, method_color, method_label
from gemfi_bench.tabular import Better, Column, Row, Table, Value, printed
from gemfi_bench.toys import DIGITS, LINE, MOONS, PLANS, Plan, Run, aurocs, run_demo
from gemfi_bench.words import one_line, read_words

WIDTH: Final = 8.0
"""Of the figures, in inches."""

TITLES: Final = {
    DIGITS: "Digits 0-6; unseen: 8, 9 (near); noise, inverted, shuffled images (far, their mean)",
    MOONS: "Two moons; unseen: a cluster beside them (GEM-FI: density on raw features)",
    LINE: "One-dimensional toy; unseen: the gap and the right tail (GEM-FI as above)",
}
GROUPS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {  # title -> OOD sets to average
    DIGITS: {"near": ("digits-8-9",), "far": ("noise", "inverted", "shuffled")},
    MOONS: {"cluster": ("cluster",)},
    LINE: {"gap": ("gap",), "tail": ("right-tail",)},
}
FIGURES: Final = {"two-moons": MOONS, "line": LINE, "reliability": DIGITS, "histograms": DIGITS}
"""Figure -> its data set."""

KINDS: Final = {"aleatoric": "alea.", "epistemic": "epis."}
_WORDS: Final = read_words("figures")


# -- the command ----------------------------------------------------------------------------------


def demo(
    out: str = "demo-out", seed: int = 0, json: str | None = None, *, quick: bool = False
) -> None:
    """Train on digits and toy data, print a table, write figures and a report.

    Softmax, EDL, GEM-CORE, GEM-MIX and GEM-FI learn the digits 0 to 6 and meet 8, 9 and synthetic
    images; EDL, DAEDL and GEM-FI learn two toys. Nothing is downloaded.

    Args:
        out: folder for the figures and report.html; it is created.
        seed: of weights and training.
        json: also write the numbers to this file.
        quick: fewer epochs and so a coarser picture, in seconds.
    """
    begin = time.perf_counter()
    folder = Path(out)
    require_matplotlib()  # as below: fail before training and not after it
    _check_writable(folder, json)
    with tqdm(total=len(PLANS), desc="training", unit="model", disable=None, leave=False) as bar:

        def announce(plan: Plan) -> None:
            bar.update()
            bar.set_postfix_str(f"{plan.method} on {plan.task} done")
            if bar.disable:  # not a terminal
                print(f"trained {plan.method} on {plan.task}", file=sys.stderr, flush=True)

        # two processes where there are two cores; nine small runs gain little from more
        workers = min(2, os.cpu_count() or 1)
        runs = run_demo(seed, quick=quick, workers=workers, finished=announce)
    print(render(runs))
    figures = draw_figures(runs)
    for name, png in figures.items():
        write_atomically(folder / f"{name}.png", png)
    facts = {"seed": seed, "quick": quick, "seconds": round(time.perf_counter() - begin, 1)}
    write_atomically(folder / "report.html", render_report(runs, figures, facts).encode())
    if json is not None:
        rows = [row for run in runs for row in run.rows()]
        write_atomically(Path(json), to_json({**facts, "rows": rows}, indent=1).encode())
    print(
        "\nacc, ECE, Brier (sum over classes ×100), AUROC and AUPR (ID positive) in percent;\n"
        "alea. and epis. are each method's own scores: see gemfi methods.\n"
        f"Wrote {folder / 'report.html'} and its figures in {time.perf_counter() - begin:.0f} s."
        + ("" if json is None else f"\nWrote {json}.")
    )


def _check_writable(folder: Path, json: str | None) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder} is a file; give a folder")
    if json is not None and not Path(json).resolve().parent.is_dir():
        raise InputError(f"--json {json}: its folder does not exist")
    if json is not None and Path(json).is_dir():
        raise InputError(f"--json {json} is a folder; give a file")


# -- the numbers ----------------------------------------------------------------------------------


def datasets(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each data set that has a table, in the table's order."""
    chosen = {name: [run for run in runs if run.plan.task == name] for name in TITLES}
    return {name: members for name, members in chosen.items() if members}


def table(dataset: str, runs: Sequence[Run], notes: tuple[str, ...] = ()) -> Table:
    """A row a method; numbers in percent, seconds in seconds."""
    measures: Sequence[tuple[str, str, Better]] = (
        ("accuracy", "acc", "high"),
        ("ece", "ECE", "low"),
        ("brier", "Brier", "low"),
    )
    columns = [
        (
            Column(name, better=better, decimals=1),
            [run.evaluation.classification[key] for run in runs],
        )
        for key, name, better in measures
    ]
    for group, sets in GROUPS[dataset].items():
        for metric, title in (("auroc", "AUROC"), ("aupr_id", "AUPR")):
            for kind, head in KINDS.items():
                values = [_mean(run, sets, kind, metric) for run in runs]
                # for an AUROC that is not above chance there is no best
                marked = metric != "auroc" or max(values) > 50
                columns.append((Column(head, f"{group} {title}", "high", 1, marked), values))
    columns.append((Column("s", decimals=1), [run.seconds for run in runs]))
    rows = [
        Row(method_label(name), tuple(map(Value, cells)), name, name in PRESETS)
        for name, *cells in zip(
            [run.plan.method for run in runs], *(v for _, v in columns), strict=True
        )
    ]
    heads = tuple(column for column, _ in columns)
    return Table(dataset, TITLES[dataset], heads, tuple(rows), "method", notes)


def _mean(run: Run, sets: Sequence[str], kind: str, metric: str) -> float:
    return float(sum(run.evaluation.ood[name][kind][metric] for name in sets) / len(sets))


def _named_scores(runs: Sequence[Run]) -> tuple[str, ...]:
    """Which score stands behind the two words, for each method."""
    sentences = []
    for kind in KINDS:
        by_score: dict[str, list[str]] = {}
        for run in runs:
            label = score_label(run.model.head.named_scores[kind])
            by_score.setdefault(label, []).append(method_label(run.plan.method))
        uses = [
            f"{label} ({'every method' if len(by_score) == 1 else listed(who)})"
            for label, who in by_score.items()
        ]
        sentences.append(f"{kind.capitalize()} score: {'; '.join(uses)}.")
    return tuple(sentences)


def render(runs: Sequence[Run]) -> str:
    """One block a data set, one line a method; over each number what it is of, in three lines."""
    blocks = []
    for name, members in datasets(runs).items():
        shown = layout(table(name, members))
        groups = [span.title.split() or ["", ""] for span in shown.spans for _ in span.columns]
        kinds = [name.replace(" ", "") for name in shown.heads]
        heads = [
            ["", *(group for group, _ in groups)],
            ["", *(metric and f"{metric}↑" for _, metric in groups)],
            [
                shown.stub,
                *(
                    kind.rstrip("↑") if group else kind
                    for (group, _), kind in zip(groups, kinds, strict=True)
                ),
            ],
        ]
        ((_, rows),) = shown.blocks
        body = [[row.name, *(cell.text for cell in row.cells)] for row in rows]
        lines = aligned([*heads, *body], least=5)
        rule = "─" * max(map(len, lines))
        blocks.append("\n".join([shown.title, "", *lines[:3], rule, *lines[3:]]))
    return "\n\n\n".join(blocks)


# -- the figures ----------------------------------------------------------------------------------


def draw_figures(runs: Sequence[Run]) -> dict[str, bytes]:
    """Name -> PNG of each figure whose data set was run; the same runs give the same bytes."""
    require_matplotlib()
    from gemfi_bench.figures.toys import draw_line, draw_two_moons  # noqa: PLC0415 - matplotlib

    drawings: dict[str, Callable[[Sequence[Run]], Any]] = {
        "two-moons": lambda members: draw_two_moons(members, WIDTH),
        "line": lambda members: draw_line(members, WIDTH),
        "reliability": _draw_reliability,
        "histograms": _draw_histograms,
    }
    chosen, pngs = datasets(runs), {}
    for name, dataset in FIGURES.items():
        if dataset in chosen:
            buffer = io.BytesIO()
            with styled():
                figure = drawings[name](chosen[dataset])
                figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
            pngs[name] = buffer.getvalue()
    return pngs


def _draw_reliability(runs: Sequence[Run]) -> Any:
    from gemfi_bench.figures import calibration  # noqa: PLC0415 - needs matplotlib

    methods = []
    for run in runs:
        name, found = run.plan.method, run.evaluation
        probs, labels = found.belief.probs().numpy(), found.labels.numpy()
        shown_as = method_label(name), method_color(name)
        ece = printed(found.classification["ece"], 1)
        methods.append(calibration.Calibrated(*shown_as, probs, labels, ece))
    return calibration.draw_reliability(methods, WIDTH, len(methods))


def _draw_histograms(runs: Sequence[Run]) -> Any:
    """A row a method: its aleatoric and its epistemic score, on ID and on OOD data."""
    from gemfi_bench.figures import distributions  # noqa: PLC0415 - needs matplotlib

    def panel(run: Run, kind: str) -> distributions.Mirrored:
        name, evaluation = run.model.head.named_scores[kind], run.evaluation
        values, areas = {"ID test": SCORES[name](evaluation.belief).numpy()}, []
        for group, sets in GROUPS[DIGITS].items():
            parts = [SCORES[name](evaluation.ood_beliefs[ood]) for ood in sets]
            values[f"{group} OOD"] = torch.cat(parts).numpy()
            areas.append(f"{group} {printed(_mean(run, sets, kind, 'auroc'), 1)}")
        note = f"{kind}: {score_label(name)}; AUROC {', '.join(areas)}"
        return distributions.Mirrored(name, values, note)

    rows = {method_label(run.plan.method): [panel(run, kind) for kind in KINDS] for run in runs}
    return distributions.draw_histograms(rows, width=WIDTH)


# -- the report -----------------------------------------------------------------------------------


class Caption(NamedTuple):
    """Of a figure: a few words, what to see, and the numbers of the runs in sentences."""

    title: str
    text: str
    numbers: str


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: a, b and c."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _by_method(value: Callable[[Run], str]) -> Callable[[Sequence[Run]], str]:
    return lambda runs: ", ".join(f"{method_label(run.plan.method)} {value(run)}" for run in runs)


def _areas(score: scores.Score) -> Callable[[Sequence[Run]], str]:
    """The AUROC of each method and OOD set by a score; sets are named where there are several."""

    def of_run(run: Run) -> str:
        by_set = aurocs(run, score)
        if len(by_set) == 1:
            return next(iter(by_set.values()))
        return listed([f"{value} ({name})" for name, value in by_set.items()])

    return _by_method(of_run)


_VALUES: Final[Mapping[str, Callable[[Sequence[Run]], object]]] = {
    "total": lambda runs: len(runs[0].task.train),
    "shown": lambda runs: min(SHOWN, len(runs[0].task.train)),
    "inputs": lambda runs: len(runs[0].evaluation.labels),
    "methods": lambda runs: listed([method_label(run.plan.method) for run in runs]),
    "accuracy": _by_method(lambda run: printed(run.evaluation.classification["accuracy"], 1)),
    "ece": _by_method(lambda run: printed(run.evaluation.classification["ece"], 1)),
    "entropy": _areas(scores.entropy),
    "evidence": _areas(scores.evidence),
}
"""What stands in the braces of the captions."""


def caption(figure: str, runs: Sequence[Run]) -> Caption:
    """The caption of a figure, of the runs of its data set."""
    words = _WORDS["demo"][figure]
    whole = "".join(words.values())
    values = {name: make(runs) for name, make in _VALUES.items() if f"{{{name}}}" in whole}
    texts = {name: one_line(text, **_WORDS["shared"], **values) for name, text in words.items()}
    return Caption(**{name: " ".join(text.split()) for name, text in texts.items()})


def render_report(
    runs: Sequence[Run], figures: Mapping[str, bytes], facts: Mapping[str, Any]
) -> str:
    """One page that needs no network, no script and no other file.

    Args:
        runs: what was trained.
        figures: name -> PNG, as from `draw_figures`.
        facts: about the run.
    """
    chosen = datasets(runs)
    names = {"seed": "Seed", "quick": "Quick", "seconds": "Seconds in all"}
    words = {True: "yes", False: "no"}
    said = {
        names.get(name, name): words[value] if isinstance(value, bool) else value
        for name, value in facts.items()
    }
    said |= {"gemfi": __version__, "torch": torch.__version__, "Python": platform.python_version()}
    title = "gemfi demo: what a classifier does not know"
    tasks = {DIGITS: "handwritten digits", MOONS: "two moons", LINE: "a one-dimensional toy"}
    body = fill(
        "demo.html",
        title=title,
        count=len(runs),
        methods=listed(list(dict.fromkeys(method_label(run.plan.method) for run in runs))),
        tasks=listed([tasks[name] for name in chosen]),
        facts=said,
        tables=[
            html(table(name, members, _named_scores(members) if name == DIGITS else ()))
            for name, members in chosen.items()
        ],
        figures={
            name: (png, caption(name, chosen[FIGURES[name]])) for name, png in figures.items()
        },
    )
    return document(title, body)
