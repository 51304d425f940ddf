"""Kinds of tests that claims are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from gemfi_bench.choice import chosen
from gemfi_bench.claims.ledger import OURS, Claim, Test, Tests
from gemfi_bench.claims.numbers import Measured, Number, gap, level, measured, on_sets
from gemfi_bench.grid import ABLATION, ABLATION_OURS, FULL, MAIN
from gemfi_bench.results import Results
from gemfi_bench.statistics import Detection, Difference, Interval, Outcome, decided, verdict
from gemfi_bench.style import method_label
from gemfi_bench.tables.labels import ABLATION_LABELS, OUTLIER_LABELS
from gemfi_bench.tabular import Better
from gemfi_bench.unavailable import Unavailable
from gemfi_bench.words import one_line, read_words

_WORDS = read_words("claims")
_METRICS = {"aupr_id": "AUPR", "aupr_ood": "AUPR (OOD positive)", "auroc": "AUROC"}


class GridRow(NamedTuple):
    """A row of a group of the grid."""

    name: str
    group: str = MAIN

    @property
    def label(self) -> str:
        """The row as people call it."""
        if (self.name, self.group) == (FULL, ABLATION):
            return "GEM-FI of the paper"
        if self.name in ABLATION_LABELS:
            return f"row {ABLATION_LABELS[self.name]}"
        return OUTLIER_LABELS[self.name] if "+" in self.name else method_label(self.name)


def claim(name: str, tests: Tests, **values: object) -> Claim:
    """A claim with what `words.toml` says of it, its braces filled with `values`."""
    words = _WORDS[name]
    statistic = one_line(words["statistic"], **_WORDS["shared"], **values)
    return Claim(name, words["text"], words.get("where", OURS), statistic, tests)


def both(
    name: str,
    tests: Callable[[GridRow, Results], list[Test]],
    *,
    ablation: bool = False,
    **values: object,
) -> list[Claim]:
    """A claim under our settings and under the paper's; `tests` is given the row of GEM-FI.

    With `ablation` our row is that of an ablation too, so that its group has rows with parts of
    GEM-FI.
    """
    ours = GridRow(FULL, ABLATION_OURS) if ablation else GridRow("gem-fi")
    here = claim(name, partial(tests, ours), **values)
    theirs = f"{here.statistic}; at the learning rate of our settings"
    around = f"{here.statistic}; the ablation of our settings" if ablation else here.statistic
    papers = partial(tests, GridRow(FULL, ABLATION))
    return [
        replace(here, statistic=around),
        replace(here, name=f"{name} (the paper's settings)", statistic=theirs, tests=papers),
    ]


def sets_of(results: Results, kind: str = "all") -> list[str]:
    """The OOD test sets at hand that the network has not seen: `near`, `far` or `all`."""
    named = {"near": results.protocol.near, "far": results.protocol.far}
    here = [name for name in named.get(kind, results.ood_sets) if not results.is_absent(name)]
    unseen = [name for name in here if name not in results.protocol.seen]
    if not unseen:
        said = "" if kind == "all" else f" {kind}"
        seen = " that the network has not seen in pretraining" if here else ""
        raise Unavailable(f"no{said} OOD set{seen} is at hand")
    return unseen


# -- two rows -------------------------------------------------------------------------------------


def better_by(
    results: Results,
    first: GridRow,
    second: GridRow,
    number: Number,
    what: str,
    *,
    better: Better = "high",
    margin: float = 0.0,
) -> Test:
    """That a number of the first row is better than that of the second, by more than a margin."""
    text = f"{what}: {first.label} against {second.label}"
    judge = partial(verdict, margin=margin, better=better)
    return compared(results, (first, second), (number, number), text, judge)


def better_ood(
    results: Results, first: GridRow, second: GridRow, metric: Detection = "aupr_id"
) -> list[Test]:
    """That the first row detects OOD data better by its epistemic score, on each set."""
    kinds = ("epistemic", "epistemic")
    return _detections(results, (first, second), kinds, "epistemic", metric)


def better_chosen(
    results: Results, first: GridRow, second: GridRow, *, detector: bool = False
) -> list[Test]:
    """As `better_ood` by AUROC, each row with the score that OOD-validation data choose for it.

    With `detector` the second row has the best of its post-hoc detectors, and not of its scores.
    """
    one, other = chosen(results, *first), chosen(results, *second, detector=detector)
    rows, names, labels = (first, second), (one.name, other.name), f"{one.label} and {other.label}"
    return _detections(results, rows, names, labels, "auroc", detector=detector)


def _detections(
    results: Results,
    rows: tuple[GridRow, GridRow],
    kinds: tuple[str, str],
    words: str,
    metric: Detection,
    *,
    detector: bool = False,
) -> list[Test]:
    """A test for each OOD set, of two rows with a score each, or a detector for the second."""
    tests, lacking, reason = [], [], Unavailable("no OOD set is at hand")
    against = f"({words}): {rows[0].label} against {rows[1].label}"
    for name in sets_of(results):
        title = results.title(name)
        numbers = (
            on_sets([name], kinds[0], metric),
            on_sets([name], kinds[1], metric, detector=detector),
        )
        try:
            test = compared(results, rows, numbers, f"{_METRICS[metric]} on {title} {against}")
            tests.append(test)
        except Unavailable as none:  # of this set, which runs that were done before it came lack
            lacking.append(title)
            reason = none
    if not tests:
        raise reason
    note = f"; not on {', '.join(lacking)}, which not all runs have" if lacking else ""
    return [replace(test, what=test.what + note) for test in tests]


def compared(
    results: Results,
    rows: tuple[GridRow, GridRow],
    numbers: tuple[Number, Number],
    what: str,
    judge: Callable[[Difference], Outcome] = verdict,
) -> Test:
    """That a number of a row exceeds one of another (or of the same), at the seeds of both."""
    one, other = (_by_seed(results, *pair) for pair in zip(rows, numbers, strict=True))
    runs = [results.by_seed(*row) for row in rows]
    pairs = [(one[seed], other[seed]) for seed in one if seed in other]
    if not pairs:
        lacking = [row.name for row, seeds in zip(rows, runs, strict=True) if not seeds]
        raise Unavailable(
            f"no runs of {', '.join(lacking)}" if lacking else "no seed has both numbers"
        )
    difference = gap(pairs)
    keys = dict.fromkeys(number.key for pair in pairs for number in pair)
    note = _among(len(pairs), len(runs[0].keys() & runs[1].keys()))
    return Test(what + note, difference, judge(difference), tuple(keys))


# -- one row, and a sweep -------------------------------------------------------------------------


def sign_of(
    results: Results,
    row: GridRow,
    number: Number,
    what: str,
    *,
    better: Better = "high",
    margin: float = 0.0,
) -> Test:
    """That the mean of a number of a row is above the margin, or below it (`low`)."""
    numbers = list(_by_seed(results, row, number).values())
    difference, keys = level(numbers), tuple(number.key for number in numbers)
    judged = verdict(difference, margin if better == "high" else -margin, better)
    note = _among(len(numbers), len(results.by_seed(*row)))
    return Test(what + note, difference, judged, keys)


def rising(
    results: Results,
    row: GridRow,
    steps: Sequence[tuple[str, Number]],
    what: str,
    margin: float = 0.0,
) -> list[Test]:
    """That a number rises from step to step, such as from ID to near to far; one test a step."""
    judge = partial(verdict, margin=margin)
    return [
        compared(results, (row, row), (high, low), f"{what}: {above} above {below}", judge)
        for (below, low), (above, high) in pairwise(steps)
    ]


def within(
    results: Results, default: GridRow, number: Number, what: str, margin: float
) -> list[Test]:
    """That a number of every other row of a sweep is within a margin of that of the default row.

    Supported where the interval of the difference lies inside ±margin, refuted where it lies
    outside; one test a row.
    """
    names = results.rows(default.group)
    if default.name not in names or len(names) < 2:
        raise Unavailable("this protocol has no such sweep")

    def judge(interval: Interval) -> Outcome:
        if -margin <= interval.low and interval.high <= margin:
            return "supported"
        outside = interval.low > margin or interval.high < -margin
        return "refuted" if outside else "undecided"

    return [
        compared(
            results,
            (GridRow(name, default.group), default),
            (number, number),
            f"{what} at {name} against {default.name}, within ±{margin:g}",
            partial(decided, judge=judge),
        )
        for name in names
        if name != default.name
    ]


def _by_seed(results: Results, row: GridRow, number: Number) -> dict[int, Measured]:
    """Seed -> the number, where the run has it; what only arrays hold must be in one of them."""
    runs = results.by_seed(*row)
    values = {seed: measured(results, run, number) for seed, run in runs.items()}
    known = {seed: value for seed, value in values.items() if value is not None}
    if number.pick is None and not known:
        if not runs:
            raise Unavailable(f"no runs of {row.name}")
        if not any(map(results.has_arrays, runs.values())):
            raise Unavailable("the arrays of the runs are not here, and this needs them")
        raise Unavailable(f"the runs of {row.name} do not hold what this needs")
    return known


def _among(used: int, total: int) -> str:
    """That seeds were left out, behind the words of a test."""
    return f" (in {used} of {total} seeds)" if used < total else ""
