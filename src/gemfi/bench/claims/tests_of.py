"""Kinds of tests that claims are made of; each returns a function of the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gemfi.bench.choice import chosen
from gemfi.bench.claims.ledger import FULL, Test, Tests
from gemfi.bench.grid import MAIN
from gemfi.bench.records import RunRecord, Sets
from gemfi.bench.results import Pick, Results, array_name, of_detector, of_set
from gemfi.bench.statistics import (
    SEEDS_NEEDED,
    Detection,
    Difference,
    Interval,
    Verdict,
    bootstrap_difference,
    mean_interval,
    paired_difference,
    verdict,
)
from gemfi.bench.table import Better
from gemfi.bench.unavailable import Unavailable
from gemfi.style import method_label

Measure = Callable[[Sets], float | None]
"""A number from the arrays of a run."""

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
    pick: Pick,
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
        pick: the number.
        what: the number in words.
        better: whether high or low is good.
        group: of the first row.
        other_group: of the second row; None for the same.
        margin: by how much it must be better.
    """

    def tests(results: Results) -> list[Test]:
        found = _paired(results, (first, group), (second, other_group or group), pick)
        difference = paired_difference(found.first, found.second)
        text = f"{what}: {_label(first)} against {_label(second)}"
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
    """That one row detects OOD data better than another, on each set; one test a set.

    With a single seed the interval is the paired bootstrap over samples, where the arrays are here.
    """

    def tests(results: Results) -> list[Test]:
        rows = (first, group), (second, other_group or group)
        words = f"({kind}): {_label(first)} against {_label(second)}"
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
        words = f"({one.label} and {other.label}): {_label(first)} against {_label(second)}"
        rows = (first, MAIN), (second, MAIN)
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
    made = []
    other = of_detector if detector else of_set
    for name in sets_of(results, sets):
        picks = of_set(name, kinds[0], metric), other(name, kinds[1], metric)
        found = _paired(results, *rows, *picks)
        interval = None
        if len(found.first) == 1:
            one, two = found.runs[0]
            arrays = array_name(one, kinds[0]), array_name(two, kinds[1], detector=detector)
            interval = _over_samples(results, (one, two), name, arrays, metric)
        difference = paired_difference(found.first, found.second, bootstrap=interval)
        text = f"{_METRICS[metric]} on {name} {words}{found.note}"
        made.append(Test(text, difference, verdict(difference), found.keys))
    return made


class _Pairs:
    """Numbers of two rows at the seeds that both have, with their runs.

    A number that is not defined is left out with its seed; `note` says so behind the words of a
    test.
    """

    def __init__(self, runs: list[tuple[RunRecord, RunRecord]], pick: Pick, other: Pick) -> None:
        known = [(a, b, pick(a), other(b)) for a, b in runs]
        kept = [each for each in known if each[2] is not None and each[3] is not None]
        self.runs = [(a, b) for a, b, _, _ in kept]
        self.first = [x for _, _, x, _ in kept if x is not None]
        self.second = [y for _, _, _, y in kept if y is not None]
        self.keys = tuple(run.key for pair in self.runs for run in pair)
        left_out = len(runs) - len(kept)
        self.note = f" (in {len(kept)} of {len(runs)} seeds)" if left_out else ""


def _paired(
    results: Results, first: _Place, second: _Place, pick: Pick, other_pick: Pick | None = None
) -> _Pairs:
    one, other = results.by_seed(*first), results.by_seed(*second)
    shared = [seed for seed in one if seed in other]
    found = _Pairs([(one[seed], other[seed]) for seed in shared], pick, other_pick or pick)
    if not found.first:
        lacking = [name for (name, _), runs in ((first, one), (second, other)) if not runs]
        raise Unavailable(
            f"no runs of {', '.join(lacking)}" if lacking else "no seed has both numbers"
        )
    return found


def _over_samples(
    results: Results,
    runs: tuple[RunRecord, RunRecord],
    name: str,
    arrays: tuple[str, str],
    metric: Detection,
) -> Interval | None:
    """The paired bootstrap of one seed, None without arrays."""
    if not all(results.has_arrays(run) for run in runs):
        return None
    scores = [
        (sets["test"][key], sets[name][key])
        for run, key in zip(runs, arrays, strict=True)
        for sets in [results.arrays(run)]
    ]
    return bootstrap_difference(*scores[0], *scores[1], metric)


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
        found = list(measured(results, row, measure, group).values())
        values, keys = [each.value for each in found], [each.key for each in found]
        return [level_test(values, what, keys, positive=positive, margin=margin)]

    return tests


def level_test(
    values: Sequence[float], what: str, keys: Sequence[str], *, positive: bool, margin: float
) -> Test:
    """That the mean of numbers, one a seed, is above (or below) a margin."""
    interval = mean_interval(values) if len(values) > 1 else None
    mean = float(np.mean(values))
    difference = Difference(mean, interval, len(values), len(values) < SEEDS_NEEDED)
    if positive:
        return Test(what, difference, verdict(difference, margin, "high"), tuple(keys))
    return Test(what, difference, verdict(difference, -margin, "low"), tuple(keys))


class Measured(NamedTuple):
    """A number from the arrays of a run, and the key of the run."""

    value: float
    key: str


def score_gap(results: Results, row: tuple[str, str], picks: tuple[Pick, Pick], what: str) -> Test:
    """That one number of each run of a row (its name and group) exceeds another of the same run."""
    runs = results.runs(*row)
    pairs = [(run.key, picks[0](run), picks[1](run)) for run in runs]
    known = [(key, a - b) for key, a, b in pairs if a is not None and b is not None]
    if not known:
        raise Unavailable(f"no runs of {row[0]} with both numbers")
    keys = [key for key, _ in known]
    return level_test([gap for _, gap in known], what, keys, positive=True, margin=0.0)


def measured(
    results: Results, row: str, measure: Measure, group: str = MAIN
) -> dict[int, Measured]:
    """Seed -> a number from the arrays of the run of a row, where the run has it."""
    runs = results.by_seed(row, group)
    if not runs:
        raise Unavailable(f"no runs of {row}")
    if not all(results.has_arrays(run) for run in runs.values()):
        raise Unavailable("the arrays of the runs are not here, and this needs them")
    found = {seed: (measure(results.arrays(run)), run.key) for seed, run in runs.items()}
    known = {
        seed: Measured(value, key) for seed, (value, key) in found.items() if value is not None
    }
    if not known:
        raise Unavailable(f"the runs of {row} do not hold what this needs")
    return known


def rises(low: Mapping[int, Measured], high: Mapping[int, Measured], what: str) -> Test:
    """That the second numbers are above the first, paired over the seeds that have both."""
    seeds = [seed for seed in low if seed in high]
    if not seeds:
        raise Unavailable(f"no seed has both numbers of {what}")
    difference = paired_difference(
        [high[seed].value for seed in seeds], [low[seed].value for seed in seeds]
    )
    keys = dict.fromkeys(each[seed].key for each in (high, low) for seed in seeds)
    return Test(what, difference, verdict(difference), tuple(keys))


def rising(row: str, steps: Sequence[tuple[str, Measure]], what: str, group: str = MAIN) -> Tests:
    """That a number rises from step to step, such as from ID to near to far; one test a step."""

    def tests(results: Results) -> list[Test]:
        found = [(name, measured(results, row, measure, group)) for name, measure in steps]
        return [
            rises(low, high, f"{what}: {high_name} above {low_name}")
            for (low_name, low), (high_name, high) in pairwise(found)
        ]

    return tests


# -- a sweep --------------------------------------------------------------------------------------


def within(group: str, default: str, pick: Pick, what: str, margin: float) -> Tests:
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
            found = _paired(results, (row, group), (default, group), pick)
            difference = paired_difference(found.first, found.second)
            judged = _equivalent(difference, margin)
            text = f"{what} at {row} against {default}, within ±{margin:g}"
            made.append(Test(text + found.note, difference, judged, found.keys))
        return made

    return tests


def _equivalent(difference: Difference, margin: float) -> Verdict:
    interval = difference.interval
    if interval is None:
        return Verdict("undecided", difference.indicative)
    if -margin <= interval.low and interval.high <= margin:
        return Verdict("supported", difference.indicative)
    outside = interval.low > margin or interval.high < -margin
    return Verdict("refuted" if outside else "undecided", difference.indicative)


# -- words ----------------------------------------------------------------------------------------

_METRICS = {"aupr_id": "AUPR", "aupr_ood": "AUPR (OOD positive)", "auroc": "AUROC"}


def _label(row: str) -> str:
    """A row as people call it."""
    if row == FULL:
        return "GEM-FI of the paper"
    name, plus, rest = row.partition("+")
    return method_label(name) + (f" + {rest.upper()}" if plus else "")


def column(sets: Sets, name: str, key: str) -> npt.NDArray[Any] | None:
    """An array of a set, None where it is not kept."""
    return sets.get(name, {}).get(key)
