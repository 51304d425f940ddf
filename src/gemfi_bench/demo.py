"""`gemfi demo`: the main job, working, in two minutes and without a download."""

from __future__ import annotations

import io
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import torch
from tqdm import tqdm

from gemfi import scores
from gemfi._drawing import DPI, require_matplotlib, styled
from gemfi._files import to_json, write_atomically
from gemfi._version import __version__
from gemfi.errors import InputError
from gemfi.scores import SCORES, score_label
from gemfi_bench.page import document, fill
from gemfi_bench.style import SHOWN, method_color, method_label
from gemfi_bench.toys import (
    DIGITS,
    LINE,
    LINE_TEXT,
    MOONS,
    MOONS_TEXT,
    PLANS,
    Plan,
    Run,
    aurocs,
    run_demo,
)

WIDTH: Final = 8.0
"""Of the figures, in inches."""

TITLES: Final = {
    DIGITS: "Digits 0-6; unseen: 8, 9 (near); noise, inverted, shuffled images (far, their mean)",
    MOONS: "Two moons; unseen: a cluster beside them (GEM-FI: density on raw features)",
    LINE: "One-dimensional toy; unseen: the gap and the right tail (GEM-FI as above)",
}
GROUPS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {  # title -> OOD sets to average
    DIGITS: {"near OOD": ("digits-8-9",), "far OOD": ("noise", "inverted", "shuffled")},
    MOONS: {"cluster": ("cluster",)},
    LINE: {"gap": ("gap",), "right tail": ("right-tail",)},
}
KINDS: Final = ("aleatoric", "epistemic")


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


@dataclass(frozen=True)
class Column:
    """A column of numbers.

    Attributes:
        metric: as the run's records name it.
        title: short, for the head of the table.
        better: whether high or low values are good; None for neither.
        group: title of the group of OOD sets, empty for the classifier's own numbers.
        sets: the OOD sets whose mean is taken.
        score: `aleatoric` or `epistemic`, the method's own scores of these names; or empty.
    """

    metric: str
    title: str
    better: Literal["high", "low"] | None
    group: str = ""
    sets: tuple[str, ...] = ()
    score: str = ""

    @property
    def head(self) -> str:
        """Title with an arrow to where good values are."""
        return self.title + {"high": "↑", "low": "↓", None: ""}[self.better]

    def value(self, run: Run) -> float:
        """The number of a run, in percent (seconds in seconds)."""
        if self.metric == "seconds":
            return run.seconds
        if not self.sets:
            return run.evaluation.classification[self.metric]
        values = [run.evaluation.ood[name][self.score][self.metric] for name in self.sets]
        return float(sum(values) / len(values))

    def best(self, runs: Sequence[Run]) -> str | None:
        """The best number among the runs as it is shown, so that what looks equal counts as equal.

        None if no number is good: for an AUROC that is not above chance, there is no best.
        """
        if self.better is None or len(runs) < 2:
            return None
        best = (max if self.better == "high" else min)(self.value(run) for run in runs)
        return None if self.metric == "auroc" and best <= 50 else shown(best)


def shown(value: float) -> str:
    """A number as the demo shows it."""
    return f"{value:.1f}"


def columns(dataset: str) -> list[Column]:
    """The columns of a data set's table, in order."""
    ood = [
        Column(metric, title, "high", group, sets, kind)
        for group, sets in GROUPS[dataset].items()
        for metric, title in (("auroc", "AUROC"), ("aupr_id", "AUPR"))
        for kind in KINDS
    ]
    return [
        Column("accuracy", "acc", "high"),
        Column("ece", "ECE", "low"),
        Column("brier", "Brier", "low"),
        *ood,
        Column("seconds", "s", None),
    ]


def datasets(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each data set that has a table, in the table's order."""
    chosen = {name: [run for run in runs if run.plan.task == name] for name in TITLES}
    return {name: members for name, members in chosen.items() if members}


# -- the table as text ----------------------------------------------------------------------------


def render(runs: Sequence[Run]) -> str:
    """One block a data set, one line a method. Percent; ↑ higher is better, ↓ lower.

    The blocks share their widths, so that a column stays in its place from block to block.
    """
    chosen = datasets(runs)
    widths = {"method": max(map(len, ["method", *(run.plan.method for run in runs)]))}
    for name, members in chosen.items():
        for column in columns(name):
            cells = [_head(column), *(shown(column.value(run)) for run in members)]
            widths[column.metric] = max(widths.get(column.metric, 0), *map(len, cells))
    blocks = [
        f"{TITLES[name]}\n\n{_block(members, columns(name), widths)}"
        for name, members in chosen.items()
    ]
    return "\n\n\n".join(blocks)


def _head(column: Column) -> str:
    """The lowest line of a column's head; a score's metric stands above it."""
    return f"{column.score[:4]}." if column.score else column.head


def _block(runs: Sequence[Run], block: Sequence[Column], widths: Mapping[str, int]) -> str:
    groups = ["", *(column.group for column in block)]
    gaps = [  # before a column: wider where a group begins or ends
        "  " if column.group == before else "   "
        for column, before in zip(block, groups, strict=False)
    ]

    def line(name: str, cells: Sequence[str]) -> str:
        parts = [
            gap + cell.rjust(widths[column.metric])
            for gap, cell, column in zip(gaps, cells, block, strict=True)
        ]
        return name.ljust(widths["method"]) + "".join(parts)

    def spanning(titles: Sequence[str], fill: str) -> str:
        """Each title over exactly the neighbours (of one group) that share it."""
        text = " " * widths["method"]
        columns_of = groupby(range(len(block)), lambda at: (block[at].group, titles[at]))
        for (_, title), members in columns_of:
            places = list(members)
            gap = gaps[places[0]]
            span = sum(len(gaps[at]) + widths[block[at].metric] for at in places) - len(gap)
            text += gap + (f" {title} ".center(span, fill) if title else " " * span)
        return text.rstrip()

    head = line("method", [_head(column) for column in block])
    lines = [
        spanning([column.group for column in block], "─"),
        spanning([column.head if column.score else "" for column in block], " "),
        head,
        "─" * len(head),
        *(line(run.plan.method, [shown(column.value(run)) for column in block]) for run in runs),
    ]
    return "\n".join(lines)


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
    for name, (dataset, _) in CAPTIONS.items():
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
        ece = shown(found.classification["ece"])
        methods.append(calibration.Calibrated(*shown_as, probs, labels, ece))
    return calibration.draw_reliability(methods, WIDTH, len(methods))


def _draw_histograms(runs: Sequence[Run]) -> Any:
    """A row a method: its aleatoric and its epistemic score, on ID and on OOD data."""
    from gemfi_bench.figures import distributions  # noqa: PLC0415 - needs matplotlib

    def panel(run: Run, kind: str) -> distributions.Mirrored:
        name, evaluation = run.model.head.named_scores[kind], run.evaluation
        values = {"ID test": SCORES[name](evaluation.belief).numpy()}
        for group, sets in GROUPS[DIGITS].items():
            parts = [SCORES[name](evaluation.ood_beliefs[ood]) for ood in sets]
            values[group] = torch.cat(parts).numpy()
        areas = [
            f"{column.group.removesuffix(' OOD')} {shown(column.value(run))}"
            for column in columns(DIGITS)
            if (column.metric, column.score) == ("auroc", kind)
        ]
        note = f"{kind}: {score_label(name)}; AUROC {', '.join(areas)}"
        return distributions.Mirrored(name, values, note)

    rows = {method_label(run.plan.method): [panel(run, kind) for kind in KINDS] for run in runs}
    return distributions.draw_histograms(rows, width=WIDTH)


# -- what the report says of them -----------------------------------------------------------------


class Caption(NamedTuple):
    """Of a figure: a few words, what to see, and the numbers of the runs in sentences."""

    title: str
    text: str
    numbers: str


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: a, b and c."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _by_method(runs: Sequence[Run], value: Callable[[Run], str]) -> str:
    return ", ".join(f"{method_label(run.plan.method)} {value(run)}" for run in runs)


def _areas(runs: Sequence[Run], score: scores.Score) -> str:
    """The AUROC of each method and OOD set by a score; sets are named where there are several."""

    def of_run(run: Run) -> str:
        by_set = aurocs(run, score)
        if len(by_set) == 1:
            return next(iter(by_set.values()))
        return listed([f"{value} ({name})" for name, value in by_set.items()])

    return _by_method(runs, of_run)


def _two_moons(runs: Sequence[Run]) -> Caption:
    total = len(runs[0].task.train)
    return Caption(
        "Two moons.",
        f"A column a method; {MOONS_TEXT} The density looks at raw features here and not, as by "
        "default, at unit-norm ones (chosen on OOD-validation data); in DAEDL the probabilities "
        "feel it too. The colours of the evidence end where the test points and the cluster do; "
        f"{min(SHOWN, total)} of {total} training points are drawn.",
        f"AUROC of the unseen cluster by entropy: {_areas(runs, scores.entropy)}; by evidence: "
        f"{_areas(runs, scores.evidence)}. 50 is chance; below it, a method is surer of the "
        "cluster than of the test points.",
    )


def _line(runs: Sequence[Run]) -> Caption:
    accuracy = _by_method(runs, lambda run: shown(run.evaluation.classification["accuracy"]))
    ticks = min(SHOWN, len(runs[0].task.train))
    return Caption(
        "One dimension.",
        f"{LINE_TEXT} Ticks are training points ({ticks} shown), class 1 above and class 0 below.",
        f"The best possible accuracy is 91.7 (11 in 12); here: {accuracy}. AUROC of the unseen "
        f"inputs by evidence: {_areas(runs, scores.evidence)}.",
    )


def _reliability(runs: Sequence[Run]) -> Caption:
    ece = _by_method(runs, lambda run: shown(run.evaluation.classification["ece"]))
    return Caption(
        "Reliability on digits.",
        "Black lines are the accuracy among test inputs of like confidence, in 15 bins; red "
        "reaches from it up to their mean confidence (over-confident), a pale tint from the mean "
        "confidence up to it (under-confident). Bins are faint where inputs are few; the panels "
        f"below count them (logarithmic). With {len(runs[0].evaluation.labels)} test inputs, a "
        "bin of one or two says little.",
        f"ECE in percent: {ece}.",
    )


def _histograms(runs: Sequence[Run]) -> Caption:
    return Caption(
        "Scores on digits, seen and unseen.",
        "Above the line the test digits 0 to 6, below it what was never seen: near, the digits "
        "8 and 9; far, noise, inverted and shuffled images. To the right is more uncertain; "
        "the less the two sides overlap, the higher the AUROC (far: the mean of the three "
        "sets, as in the table). Each side has its own vertical scale; the axes of "
        "1 − max p and of unfamiliarity are logarithmic, the other scores are logarithms "
        "already; the outermost 0.5 % of each group at either end are counted in the last bins.",
        f"A row for each of {listed([method_label(run.plan.method) for run in runs])}; the table "
        "above has the AUROC of each.",
    )


CAPTIONS: Final[Mapping[str, tuple[str, Callable[[Sequence[Run]], Caption]]]] = {
    "two-moons": (MOONS, _two_moons),
    "line": (LINE, _line),
    "reliability": (DIGITS, _reliability),
    "histograms": (DIGITS, _histograms),
}
"""Figure -> its data set, and what makes its caption."""


# -- the report -----------------------------------------------------------------------------------

_TASK_NAMES: Final = {
    DIGITS: "handwritten digits", MOONS: "two moons", LINE: "a one-dimensional toy"
}  # fmt: skip
_FACT_NAMES: Final = {"seed": "Seed", "quick": "Quick", "seconds": "Seconds in all"}


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
    said = {
        _FACT_NAMES.get(name, name): {True: "yes", False: "no"}[value]
        if isinstance(value, bool)
        else value
        for name, value in facts.items()
    }
    said |= {"gemfi": __version__, "torch": torch.__version__, "Python": platform.python_version()}
    title = "gemfi demo: what a classifier does not know"
    body = fill(
        "demo.html",
        title=title,
        count=len(runs),
        methods=listed(list(dict.fromkeys(method_label(run.plan.method) for run in runs))),
        tasks=listed([_TASK_NAMES[name] for name in chosen]),
        facts=said,
        digits=DIGITS,
        tables={name: _table(name, members) for name, members in chosen.items()},
        named_scores=_named_scores(chosen.get(DIGITS, [])),
        figures={name: (png, _caption(name, chosen)) for name, png in figures.items()},
    )
    return document(title, body)


def _caption(figure: str, chosen: Mapping[str, Sequence[Run]]) -> Caption:
    dataset, describe = CAPTIONS[figure]
    return describe(chosen[dataset])


def _table(dataset: str, runs: Sequence[Run]) -> dict[str, Any]:
    """The values of a table in the template."""
    block = columns(dataset)
    before = ["", *(column.group for column in block)]
    # the first column of a group stands apart
    begins = [column.group != group for column, group in zip(block, before, strict=False)]
    best, rows = [column.best(runs) for column in block], []
    for run in runs:
        texts = [shown(column.value(run)) for column in block]
        is_best = [text == top for text, top in zip(texts, best, strict=True)]
        cells = list(zip(texts, begins, is_best, strict=True))
        rows.append((run.plan.method, method_label(run.plan.method), cells))
    heads = [
        (column.head, column.score, first) for column, first in zip(block, begins, strict=True)
    ]
    return {"title": TITLES[dataset], "groups": GROUPS[dataset], "heads": heads, "rows": rows}


def _named_scores(runs: Sequence[Run]) -> str:
    """Which score stands behind the two words, for each method."""
    sentences = []
    for kind in KINDS if runs else ():
        by_score: dict[str, list[str]] = {}
        for run in runs:
            score = run.model.head.named_scores[kind]
            by_score.setdefault(score, []).append(method_label(run.plan.method))
        uses = [
            f"{score_label(score)} ({'every method' if len(by_score) == 1 else listed(who)})"
            for score, who in by_score.items()
        ]
        sentences.append(f"{kind.capitalize()} score: {'; '.join(uses)}.")
    return " ".join(sentences)
