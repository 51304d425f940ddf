"""The demo's table: what its columns are, and the table in plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from gemfi import metrics
from gemfi.scores import Score
from gemfi_bench.demo.runner import Run

TITLES = {
    "digits": "Digits 0-6; unseen: 8, 9 (near); noise, inverted, shuffled images (far, their mean)",
    "two-moons": "Two moons; unseen: a cluster beside them (GEM-FI: density on raw features)",
    "line": "One-dimensional toy; unseen: the gap and the right tail (GEM-FI as above)",
}
GROUPS: dict[str, dict[str, tuple[str, ...]]] = {  # data set -> title -> OOD sets to average
    "digits": {"near OOD": ("digits-8-9",), "far OOD": ("noise", "inverted", "shuffled")},
    "two-moons": {"cluster": ("cluster",)},
    "line": {"gap": ("gap",), "right tail": ("right-tail",)},
}
_ARROWS = {"high": "↑", "low": "↓", None: ""}


@dataclass(frozen=True)
class Column:
    """A column of numbers.

    Attributes:
        metric: name of the metric, as the run's records have it.
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
        return self.title + _ARROWS[self.better]

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
        if self.better is None:
            return None
        best = (max if self.better == "high" else min)(self.value(run) for run in runs)
        return None if self.metric == "auroc" and best <= 50 else shown(best)


def shown(value: float) -> str:
    """A number as every table of the demo has it."""
    return f"{value:.1f}"


def aurocs(run: Run, score: Score) -> dict[str, str]:
    """The AUROC of each OOD set of a run by any score, as it is shown."""
    inside = score(run.evaluation.belief)
    return {
        name.replace("-", " "): shown(metrics.auroc(inside, score(outside)))
        for name, outside in run.evaluation.ood_beliefs.items()
    }


def columns(dataset: str) -> list[Column]:
    """The columns of a data set's table, in order."""
    found = [
        Column("accuracy", "acc", "high"),
        Column("ece", "ECE", "low"),
        Column("brier", "Brier", "low"),
    ]
    for group, sets in GROUPS[dataset].items():
        found += [
            Column("auroc", "AUROC", "high", group, sets, "aleatoric"),
            Column("auroc", "AUROC", "high", group, sets, "epistemic"),
            Column("aupr_id", "AUPR", "high", group, sets, "aleatoric"),
            Column("aupr_id", "AUPR", "high", group, sets, "epistemic"),
        ]
    return [*found, Column("seconds", "s", None)]


def datasets(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each data set that has a table, in the table's order."""
    chosen = {name: [run for run in runs if run.plan.task == name] for name in TITLES}
    return {name: found for name, found in chosen.items() if found}


def render(runs: Sequence[Run]) -> str:
    """One block a data set, one line a method. Percent; ↑ higher is better, ↓ lower.

    The blocks share their widths, so that a column stays in its place from block to block.
    """
    chosen = datasets(runs)
    widths = {"method": max(map(len, ["method", *(run.plan.method for run in runs)]))}
    for name, members in chosen.items():
        for col in columns(name):
            cells = [_head(col), *(shown(col.value(run)) for run in members)]
            widths[col.metric] = max(widths.get(col.metric, 0), *map(len, cells))
    blocks = [
        f"{TITLES[name]}\n\n{_block(members, columns(name), widths)}"
        for name, members in chosen.items()
    ]
    return "\n\n\n".join(blocks)


def _block(runs: Sequence[Run], cols: Sequence[Column], widths: Mapping[str, int]) -> str:
    head = _line("method", [_head(col) for col in cols], cols, widths)
    lines = [
        _spanning([col.group for col in cols], cols, widths, rule=True),
        _spanning([col.head if col.score else "" for col in cols], cols, widths, rule=False),
        head,
        "─" * len(head),
        *(
            _line(run.plan.method, [shown(col.value(run)) for col in cols], cols, widths)
            for run in runs
        ),
    ]
    return "\n".join(line.rstrip() for line in lines)


def _head(col: Column) -> str:
    """The lowest line of a column's head; a score's metric stands above it."""
    return {"aleatoric": "alea.", "epistemic": "epis."}.get(col.score, col.head)


def _gap(cols: Sequence[Column], index: int) -> str:
    """Space before a column: wider where a group begins or ends."""
    before = cols[index - 1].group if index else ""
    return "  " if cols[index].group == before else "   "


def _line(
    name: str, cells: Sequence[str], cols: Sequence[Column], widths: Mapping[str, int]
) -> str:
    numbers = (
        _gap(cols, index) + cell.rjust(widths[cols[index].metric])
        for index, cell in enumerate(cells)
    )
    return name.ljust(widths["method"]) + "".join(numbers)


def _spanning(
    titles: Sequence[str], cols: Sequence[Column], widths: Mapping[str, int], *, rule: bool
) -> str:
    """A line of titles, each over exactly the neighbours (of one group) that share it.

    Args:
        titles: one a column, empty where nothing stands.
        cols: the columns.
        widths: by metric.
        rule: draw a line from the first to the last of the columns, through the title.
    """
    text = " " * widths["method"]
    keys = [(col.group, title) for col, title in zip(cols, titles, strict=True)]
    for (_, title), members in groupby(range(len(cols)), key=keys.__getitem__):
        first, *rest = members
        span = widths[cols[first].metric]
        span += sum(len(_gap(cols, at)) + widths[cols[at].metric] for at in rest)
        text += _gap(cols, first)
        text += f" {title} ".center(span, "─") if rule and title else title.center(span)
    return text
