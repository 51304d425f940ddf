"""Kinds of tests that claims are made of; each returns a function of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from gemfi_bench.choice import chosen
from gemfi_bench.claims.ledger import Test, Tests
from gemfi_bench.claims.numbers import (
    Measure,
    Measured,
    Number,
    gap,
    level,
    measured,
    measured_arrays,
    on_sets,
)
from gemfi_bench.grid import ABLATION, FULL, MAIN
from gemfi_bench.results import Results
from gemfi_bench.statistics import Detection, Difference, Interval, Outcome, decided, verdict
from gemfi_bench.style import method_label
from gemfi_bench.tables.labels import ABLATION_LABELS, OUTLIER_LABELS
from gemfi_bench.tabular import Better
from gemfi_bench.unavailable import Unavailable

_Place = tuple[str, str]  # a row and its group


def sets_of(results: Results, kind: str = "all") -> list[str]:
    """The OOD test sets at hand that the network has not seen: `near`, `far` or `all`."""
    named = {"near": results.protocol.near, "far": results.protocol.far}
    wanted = named.get(kind, tuple(results.ood_sets))
    here = [name for name in wanted if not results.is_absent(name)]
    found = [name for name in here if name not in results.protocol.seen]
    if not found:
        said = "" if kind == "all" else f" {kind}"
        seen = " that the network has not seen in pretraining" if here else ""
        raise Unavailable(f"no{said} OOD set{seen} is at hand")
    return found


def together(*parts: Tests) -> Tests:
    """The tests of several parts."""
    return lambda results: [test for part in parts for test in part(results)]


# -- two rows -------------------------------------------------------------------------------------


def better_by(
    first: str,
    second: str,
    number: Number,
    what: str,
    *,
    better: Better = "high",
    group: str = MAIN,
    other_group: str | None = None,
    margin: float = 0.0,
) -> Tests:
    """That a number of one row is better than that of another, paired over seeds.

    Args:
        first: the row that is said to be better.
        second: the other row.
        number: which one.
        what: the number in words.
        better: whether high or low is good.
        group: of the first row.
        other_group: of the second row; None for the same.
        margin: by how much it must be better.
    """

    def tests(results: Results) -> list[Test]:
        beside = other_group or group
        found = _paired(results, (first, group), (second, beside), number)
        difference = gap(found.pairs)
        text = f"{what}: {_label(first, group)} against {_label(second, beside)}"
        judged = verdict(difference, margin, better)
        return [Test(text + found.note, difference, judged, found.keys)]

    return tests


def better_ood(
    first: str,
    second: str,
    *,
    kind: str = "epistemic",
    sets: str = "all",
    metric: Detection = "aupr_id",
    group: str = MAIN,
    other_group: str | None = None,
) -> Tests:
    """That one row detects OOD data better than another, on each set; one test a set."""

    def tests(results: Results) -> list[Test]:
        rows = (first, group), (second, other_group or group)
        words = f"({kind}): {' against '.join(_label(*row) for row in rows)}"
        return _detections(results, rows, (kind, kind), words, metric, sets)

    return tests


def better_chosen(first: str, second: str, *, detector: bool = False) -> Tests:
    """As `better_ood` by AUROC, each row with the score that OOD-validation data choose for it.

    Args:
        first: the row that is said to be better.
        second: the other row.
        detector: choose among the post-hoc detectors of the second row in place of its scores.
    """

    def tests(results: Results) -> list[Test]:
        one, other = chosen(results, first), chosen(results, second, detector=detector)
        rows = (first, MAIN), (second, MAIN)
        against = " against ".join(_label(*row) for row in rows)
        words = f"({one.label} and {other.label}): {against}"
        names = one.name, other.name
        return _detections(results, rows, names, words, "auroc", detector=detector)

    return tests


def _detections(
    results: Results,
    rows: tuple[_Place, _Place],
    kinds: tuple[str, str],
    words: str,
    metric: Detection,
    sets: str = "all",
    *,
    detector: bool = False,
) -> list[Test]:
    """A test for each OOD set, of two rows with a score each, or a detector for the second."""
    made, lacking, reason = [], [], Unavailable("no OOD set is at hand")
    for name in sets_of(results, sets):
        numbers = (
            on_sets([name], kinds[0], metric),
            on_sets([name], kinds[1], metric, detector=detector),
        )
        try:
            found = _paired(results, *rows, *numbers)
        except Unavailable as none:  # of this set, which runs that were done before it came lack
            lacking.append(results.title(name))
            reason = none
            continue
        difference = gap(found.pairs)
        text = f"{_METRICS[metric]} on {results.title(name)} {words}{found.note}"
        made.append(Test(text, difference, verdict(difference), found.keys))
    if not made:
        raise reason
    note = f"; not on {', '.join(lacking)}, which not all runs have" if lacking else ""
    return [replace(each, what=each.what + note) for each in made]


class _Pairs:
    """Numbers of two rows at the seeds that both have.

    A number that is not defined is left out with its seed; `note` says so behind the words of a
    test.
    """

    def __init__(self, found: Sequence[tuple[Measured | None, Measured | None]]) -> None:
        self.pairs = [(a, b) for a, b in found if a is not None and b is not None]
        self.keys = tuple(each.key for pair in self.pairs for each in pair)
        self.note = _among(len(self.pairs), len(found))


def _paired(
    results: Results,
    first: _Place,
    second: _Place,
    number: Number,
    other_number: Number | None = None,
) -> _Pairs:
    one, other = results.by_seed(*first), results.by_seed(*second)
    beside = other_number or number
    found = _Pairs(
        [
            (measured(results, one[seed], number), measured(results, other[seed], beside))
            for seed in one
            if seed in other
        ]
    )
    if not found.pairs:
        lacking = [name for (name, _), runs in ((first, one), (second, other)) if not runs]
        raise Unavailable(
            f"no runs of {', '.join(lacking)}" if lacking else "no seed has both numbers"
        )
    return found


# -- one row --------------------------------------------------------------------------------------


def sign_of(
    row: str,
    measure: Measure,
    what: str,
    *,
    positive: bool = True,
    margin: float = 0.0,
    group: str = MAIN,
) -> Tests:
    """That a number of a row, made from its arrays, is above (or below) a margin.

    Args:
        row: whose runs.
        measure: the number of a run.
        what: in words.
        positive: whether it is said to be above the margin, or below it.
        margin: 0 for a sign.
        group: of the row.
    """

    def tests(results: Results) -> list[Test]:
        found = list(by_seed(results, row, measure, group).values())
        note = _among(len(found), len(results.by_seed(row, group)))
        return [_level_test(found, what + note, positive=positive, margin=margin)]

    return tests


def _level_test(numbers: Sequence[Measured], what: str, *, positive: bool, margin: float) -> Test:
    """That the mean of numbers, one a seed, is above (or below) a margin."""
    difference, keys = level(numbers), tuple(each.key for each in numbers)
    if positive:
        return Test(what, difference, verdict(difference, margin, "high"), keys)
    return Test(what, difference, verdict(difference, -margin, "low"), keys)


def gap_within(
    results: Results, row: tuple[str, str], numbers: tuple[Number, Number], what: str
) -> Test:
    """That one number of each run of a row (its name and group) exceeds another of the same run."""
    found = _paired(results, row, row, *numbers)
    difference = gap(found.pairs)
    keys = tuple(dict.fromkeys(found.keys))
    return Test(what + found.note, difference, verdict(difference), keys)


def by_seed(results: Results, row: str, measure: Measure, group: str = MAIN) -> dict[int, Measured]:
    """Seed -> a number from the arrays of the run of a row, where it has them, and the number."""
    runs = results.by_seed(row, group)
    if not runs:
        raise Unavailable(f"no runs of {row}")
    here = {seed: run for seed, run in runs.items() if results.has_arrays(run)}
    if not here:
        raise Unavailable("the arrays of the runs are not here, and this needs them")
    found = {seed: measured_arrays(results, run, measure) for seed, run in here.items()}
    known = {seed: each for seed, each in found.items() if each is not None}
    if not known:
        raise Unavailable(f"the runs of {row} do not hold what this needs")
    return known


def rises(
    low: Mapping[int, Measured],
    high: Mapping[int, Measured],
    what: str,
    seeds: int,
    margin: float = 0.0,
) -> Test:
    """That second numbers exceed first ones by a margin, over those of `seeds` that have both."""
    pairs = [(high[seed], low[seed]) for seed in low if seed in high]
    if not pairs:
        raise Unavailable(f"no seed has both numbers of {what}")
    keys = dict.fromkeys(each.key for side in zip(*pairs, strict=True) for each in side)
    difference = gap(pairs)
    text = what + _among(len(pairs), seeds)
    return Test(text, difference, verdict(difference, margin), tuple(keys))


def rising(
    row: str,
    steps: Sequence[tuple[str, Measure]],
    what: str,
    group: str = MAIN,
    margin: float = 0.0,
) -> Tests:
    """That a number rises from step to step, such as from ID to near to far; one test a step."""

    def tests(results: Results) -> list[Test]:
        found = [(name, by_seed(results, row, measure, group)) for name, measure in steps]
        seeds = len(results.by_seed(row, group))
        return [
            rises(low, high, f"{what}: {high_name} above {low_name}", seeds, margin)
            for (low_name, low), (high_name, high) in pairwise(found)
        ]

    return tests


# -- a sweep --------------------------------------------------------------------------------------


def within(group: str, default: str, number: Number, what: str, margin: float) -> Tests:
    """That a number of every row of a sweep is within a margin of that of the default row.

    Supported where the interval of the difference lies inside ±margin, refuted where it lies
    outside; one test a row.
    """

    def tests(results: Results) -> list[Test]:
        rows = [row for row in results.rows(group) if row != default]
        if not rows or default not in results.rows(group):
            raise Unavailable("this protocol has no such sweep")
        made = []
        for row in rows:
            found = _paired(results, (row, group), (default, group), number)
            difference = gap(found.pairs)
            judged = _equivalent(difference, margin)
            text = f"{what} at {row} against {default}, within ±{margin:g}"
            made.append(Test(text + found.note, difference, judged, found.keys))
        return made

    return tests


def _equivalent(difference: Difference, margin: float) -> Outcome:
    def judge(interval: Interval) -> Outcome:
        if -margin <= interval.low and interval.high <= margin:
            return "supported"
        outside = interval.low > margin or interval.high < -margin
        return "refuted" if outside else "undecided"

    return decided(difference, judge)


# -- words ----------------------------------------------------------------------------------------


def _among(used: int, total: int) -> str:
    """That seeds were left out, behind the words of a test."""
    return f" (in {used} of {total} seeds)" if used < total else ""


_METRICS = {"aupr_id": "AUPR", "aupr_ood": "AUPR (OOD positive)", "auroc": "AUROC"}


def _label(row: str, group: str) -> str:
    """A row as people call it."""
    if row == FULL and group == ABLATION:
        return "GEM-FI of the paper"
    if row in ABLATION_LABELS:
        return f"row {ABLATION_LABELS[row]}"
    return OUTLIER_LABELS[row] if "+" in row else method_label(row)
