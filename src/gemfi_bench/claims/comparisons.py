"""Claims of the paper about other methods, its own parts, settings, outliers and cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from gemfi_bench.claims.claim_tests import (
    GridRow,
    better_by,
    better_ood,
    both,
    claim,
    compared,
    sets_of,
    sign_of,
    within,
)
from gemfi_bench.claims.ledger import Claim, Test
from gemfi_bench.claims.numbers import (
    Number,
    gain_of_temperature,
    on_sets,
    on_test,
    under_shift,
    used_heads,
)
from gemfi_bench.grid import COMPONENTS, FISHER, FULL, KL, OUTLIERS
from gemfi_bench.results import Results
from gemfi_bench.statistics import Difference, Interval, Outcome
from gemfi_bench.tabular import Better
from gemfi_bench.unavailable import Unavailable

_TEMPERATURE_GAIN: Final = 0.5
"""Points of ECE that would make temperature scaling worth its while."""

_SPANS: Final = {"mean AUPR": 1.8, "accuracy": 1.25}
"""Points: the spans of the paper's own sweeps, over λ_FI and over λ_KL, which it calls similar."""

_TRAINING, _INFERENCE = 1.49, 1.20
"""GEM-FI against DAEDL in the paper's table of costs, which it calls modest."""


def _mean_aupr(results: Results) -> Number:
    return on_sets(sets_of(results), "epistemic", "aupr_id")


# -- other methods --------------------------------------------------------------------------------


def _better_on_test(
    other: str, metrics: Mapping[str, str], better: Better, gem: GridRow, results: Results
) -> list[Test]:
    """Numbers of the classifier, each by its name and in words."""
    return [
        better_by(results, gem, GridRow(other), on_test(metric), what, better=better)
        for metric, what in metrics.items()
    ]


def _beats(other: str) -> list[Claim]:
    calibrated = partial(_better_on_test, other, {"brier": "Brier", "ece": "ECE"}, "low")
    return [
        *both(f"ood-{other}", lambda gem, results: better_ood(results, gem, GridRow(other))),
        *both(f"calibration-{other}", calibrated),
    ]


def _with_severity(gem: GridRow, results: Results) -> list[Test]:
    """The most severe corruptions against the least severe."""
    shift = results.protocol.shift
    if not shift.corruptions:
        raise Unavailable("this protocol has no corruptions")
    if len(shift.severities) < 2:
        raise Unavailable("the corruptions of this protocol have one severity")
    low, *_, high = shift.severities
    most, least = (under_shift(at, "aleatoric", "aupr_ood") for at in (high, low))
    return [
        compared(results, (gem, gem), (most, least), f"AUPR at severity {high} above {low}"),
    ]


def _temperature(gem: GridRow, results: Results) -> list[Test]:
    gain, what = gain_of_temperature("ece"), "ECE before − after"
    return [sign_of(results, gem, gain, what, better="low", margin=_TEMPERATURE_GAIN)]


_ERRORS: Final = {"aupr_correct": "AUPR (right)", "auroc_error": "AUROC"}
_METHODS: Final = (
    *_beats("daedl"),
    *_beats("re-edl"),
    *_beats("edl"),
    *both("accuracy-daedl", partial(_better_on_test, "daedl", {"accuracy": "accuracy"}, "high")),
    *both("misclassification-daedl", partial(_better_on_test, "daedl", _ERRORS, "high")),
    *both("shift-severity", _with_severity),
    *both("temperature", _temperature, gain=_TEMPERATURE_GAIN),
)


# -- parts of GEM-FI, by its ablation -------------------------------------------------------------


def _steps(pairs: Sequence[tuple[str, str]], full: GridRow, results: Results) -> list[Test]:
    """The mean AUPR of one row of the ablation over that of another."""
    number = _mean_aupr(results)
    return [
        better_by(
            results, GridRow(first, full.group), GridRow(second, full.group), number, "mean AUPR"
        )
        for first, second in pairs
    ]


def _step(name: str, first: str, second: str) -> list[Claim]:
    def tests(full: GridRow, results: Results) -> list[Test]:
        return better_ood(results, GridRow(first, full.group), GridRow(second, full.group))

    return both(name, tests, ablation=True)


def _best(full: GridRow, results: Results) -> list[Test]:
    others = [name for name in results.rows(full.group) if name != FULL]
    if not others:
        raise Unavailable("this protocol has no such ablation")
    return _steps([(FULL, name) for name in others], full, results)


def _collapse(full: GridRow, results: Results) -> list[Test]:
    rows = GridRow("ablation-fi", full.group), GridRow("ablation-mix", full.group)
    return [compared(results, rows, (used_heads(), used_heads()), "effective heads")]


_FI_EBM: Final = (("ablation-mix", "ablation-fi"), ("ablation-ebm", "ablation-mix"))
"""No row has EBM without FI, so what EBM does alone is not told apart."""

_PARTS: Final = (
    *_step("sn", "ablation-sn", "ablation-none"),
    *_step("core", "ablation-core", "ablation-sn"),
    *_step("mix", "ablation-mix", "ablation-core"),
    *both("fi-ebm", partial(_steps, _FI_EBM), ablation=True),
    *both("full", _best, ablation=True),
    *_step("without-sn", FULL, "ablation-full-without-sn"),
    *both("collapse", _collapse, ablation=True),
)


# -- settings, outliers and cost ------------------------------------------------------------------


def _insensitive(name: str, default: GridRow) -> Claim:
    def tests(results: Results) -> list[Test]:
        numbers = {"mean AUPR": _mean_aupr(results), "accuracy": on_test("accuracy")}
        return [
            test
            for what, margin in _SPANS.items()
            for test in within(results, default, numbers[what], what, margin)
        ]

    return claim(name, tests, aupr=_SPANS["mean AUPR"], accuracy=_SPANS["accuracy"])


def _outliers(*pairs: tuple[str, str]) -> Callable[[Results], list[Test]]:
    return lambda results: [
        test
        for first, second in pairs
        for test in better_ood(results, GridRow(first, OUTLIERS), GridRow(second, OUTLIERS))
    ]


def _rho(gem: GridRow, results: Results) -> list[Test]:
    """Evidence with ρ against evidence without, on each set."""
    return [
        compared(
            results,
            (gem, gem),
            (on_sets([name], "evidence", "aupr_id"), on_sets([name], "bare_evidence", "aupr_id")),
            f"AUPR on {results.title(name)}",
        )
        for name in sets_of(results)
    ]


def _cost(results: Results) -> list[Test]:
    """Ratios to DAEDL, and how far apart they can be by the quartiles of the turns of both."""
    overhead = results.overhead
    if overhead is None:
        raise Unavailable("the cost was not measured for this protocol")
    mine, theirs = overhead["rows"]["gem-fi"], overhead["rows"]["daedl"]
    tests = []
    for kind, words, most in (
        ("train", "a training step", _TRAINING),
        ("infer", "inference", _INFERENCE),
    ):
        ratio = mine[f"{kind}_ratio"] / theirs[f"{kind}_ratio"]
        low = mine[f"{kind}_low"] / theirs[f"{kind}_high"]
        high = mine[f"{kind}_high"] / theirs[f"{kind}_low"]
        outcome: Outcome = "undecided"
        if high <= most or low > most:
            outcome = "supported" if high <= most else "refuted"
        what = f"time of {words} over DAEDL's, at most {most} (with quartiles over turns)"
        difference = Difference(ratio, Interval(low, high, ratio), overhead["rounds"])
        tests.append(Test(what, difference, outcome, ratio=True))
    return tests


SETTINGS: Final = (
    _insensitive("lambda-fi", GridRow("0.1", FISHER)),
    _insensitive("lambda-kl", GridRow("0.0001", KL)),
    _insensitive("components", GridRow("3", COMPONENTS)),
    claim("vos-fair", _outliers(("gem-fi+none", "daedl+vos"), ("gem-fi+none", "re-edl+vos"))),
    claim("vos-noise", _outliers(("gem-fi+vos", "gem-fi+noise"))),
    *both("rho", _rho),
    claim("cost", _cost, training=_TRAINING, inference=_INFERENCE),
)

COMPARISONS: Final = (*_METHODS, *_PARTS)
