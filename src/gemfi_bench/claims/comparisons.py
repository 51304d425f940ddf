"""Claims of the paper about other methods, its own parts, settings, outliers and cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from gemfi_bench.claims.claim_tests import (
    GridRow,
    better_by,
    better_ood,
    both,
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

_AUPR_EACH: Final = "paired difference of AUPR by the epistemic score, each OOD set"


def _mean_aupr(results: Results) -> Number:
    return on_sets(sets_of(results), "epistemic", "aupr_id")


# -- other methods --------------------------------------------------------------------------------


def _better_on_test(
    other: str, metrics: Sequence[tuple[str, str]], better: Better, gem: GridRow, results: Results
) -> list[Test]:
    """Numbers of the classifier, each by its name and in words."""
    return [
        better_by(results, gem, GridRow(other), on_test(metric), what, better=better)
        for metric, what in metrics
    ]


def _beats(other: str, label: str) -> list[Claim]:
    return [
        *both(
            f"ood-{other}",
            f"GEM-FI detects OOD data better than {label}.",
            "Table 2, abstract",
            "paired difference of AUPR (ID positive) by the epistemic score, each OOD set",
            lambda gem, results: better_ood(results, gem, GridRow(other)),
        ),
        *both(
            f"calibration-{other}",
            f"GEM-FI is better calibrated than {label}.",
            "Table 3, Table 13",
            "paired difference of Brier score (sum) and ECE on test data",
            partial(_better_on_test, other, [("brier", "Brier"), ("ece", "ECE")], "low"),
        ),
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


_METHODS: Final = (
    *_beats("daedl", "DAEDL"),
    *_beats("re-edl", "Re-EDL"),
    *_beats("edl", "EDL"),
    *both(
        "accuracy-daedl",
        "GEM-FI is more accurate than DAEDL.",
        "abstract, Table 3",
        "paired difference of test accuracy",
        partial(_better_on_test, "daedl", [("accuracy", "accuracy")], "high"),
    ),
    *both(
        "misclassification-daedl",
        "GEM-FI tells its errors from its hits better than DAEDL.",
        "abstract, Table 3",
        "paired difference of AUPR of right predictions and of AUROC by 1 − max p",
        partial(
            _better_on_test,
            "daedl",
            [("aupr_correct", "AUPR (right)"), ("auroc_error", "AUROC")],
            "high",
        ),
    ),
    *both(
        "shift-severity",
        "GEM-FI tells corrupted inputs from clean ones better the more severe the corruption.",
        "Table of corruption shift",
        "paired difference of AUPR (corrupted positive) by the aleatoric score, the most severe "
        "against the least, all corruptions",
        _with_severity,
    ),
    *both(
        "temperature",
        "GEM-FI needs no temperature scaling.",
        "Appendix on temperature scaling",
        f"ECE that scaling takes away, which ought to be below {_TEMPERATURE_GAIN} points",
        _temperature,
    ),
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


def _step(name: str, text: str, first: str, second: str) -> list[Claim]:
    def tests(full: GridRow, results: Results) -> list[Test]:
        return better_ood(results, GridRow(first, full.group), GridRow(second, full.group))

    return both(name, text, "Table 5", _AUPR_EACH, tests, ablation=True)


def _best(full: GridRow, results: Results) -> list[Test]:
    others = [name for name in results.rows(full.group) if name != FULL]
    if not others:
        raise Unavailable("this protocol has no such ablation")
    return _steps([(FULL, name) for name in others], full, results)


def _collapse(full: GridRow, results: Results) -> list[Test]:
    rows = GridRow("ablation-fi", full.group), GridRow("ablation-mix", full.group)
    return [compared(results, rows, (used_heads(), used_heads()), "effective heads")]


_PARTS: Final = (
    *_step("sn", "Spectral normalisation alone helps.", "ablation-sn", "ablation-none"),
    *_step("core", "The energy-gated core adds to it.", "ablation-core", "ablation-sn"),
    *_step("mix", "The mixture improves OOD detection further.", "ablation-mix", "ablation-core"),
    *both(  # no row has EBM without FI, so what EBM does alone is not told apart
        "fi-ebm",
        "Fisher terms hurt the mixture alone, and with the energy-based module improve it.",
        "Section 4.3",
        "paired differences of the mean AUPR: MIX over MIX + FI, and MIX + FI + EBM over MIX; no "
        "row has EBM without FI",
        partial(_steps, [("ablation-mix", "ablation-fi"), ("ablation-ebm", "ablation-mix")]),
        ablation=True,
    ),
    *both(
        "full",
        "The full model is the best row of the ablation.",
        "Table 5",
        "paired difference of the mean AUPR by the epistemic score from every other row",
        _best,
        ablation=True,
    ),
    *_step(
        "without-sn",
        "Without spectral normalisation the full model is worse.",
        FULL,
        "ablation-full-without-sn",
    ),
    *both(
        "collapse",
        "Fisher terms keep the heads from collapsing.",
        "Section 3.3",
        "paired difference of the effective number of heads, MIX + FI against MIX",
        _collapse,
        ablation=True,
    ),
)


# -- settings, outliers and cost ------------------------------------------------------------------


def _insensitive(name: str, default: GridRow, label: str) -> Claim:
    def tests(results: Results) -> list[Test]:
        numbers = {"mean AUPR": _mean_aupr(results), "accuracy": on_test("accuracy")}
        return [
            test
            for what, margin in _SPANS.items()
            for test in within(results, default, numbers[what], what, margin)
        ]

    return Claim(
        name,
        f"GEM-FI is insensitive to {label}.",
        "Appendix on sensitivity",
        f"paired difference from the default: of the mean AUPR inside ±{_SPANS['mean AUPR']} "
        f"points, of the accuracy inside ±{_SPANS['accuracy']}; this project's settings",
        tests,
    )


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
    _insensitive("lambda-fi", GridRow("0.1", FISHER), "λ_FI"),
    _insensitive("lambda-kl", GridRow("0.0001", KL), "λ_KL"),
    _insensitive("components", GridRow("3", COMPONENTS), "the number of heads K"),
    Claim(
        "vos-fair",
        "Even without virtual outliers GEM-FI beats DAEDL and Re-EDL with them.",
        "Table of the fair comparison with VOS",
        f"{_AUPR_EACH}; this project's settings",
        _outliers(("gem-fi+none", "daedl+vos"), ("gem-fi+none", "re-edl+vos")),
    ),
    Claim(
        "vos-noise",
        "VOS is better than noise in feature space.",
        "Table of VOS against noise",
        f"{_AUPR_EACH}; this project's settings",
        _outliers(("gem-fi+vos", "gem-fi+noise")),
    ),
    *both(
        "rho",
        "The density scaler ρ improves OOD detection by total evidence.",
        "Table of ρ = 1",
        "paired difference of AUPR, evidence with ρ against evidence without, each OOD set",
        _rho,
    ),
    Claim(
        "cost",
        "GEM-FI costs little more than DAEDL.",
        "Table of computational overhead",
        f"ratio of times, at most the paper's own {_TRAINING} in training and {_INFERENCE} in use; "
        "the interval is that of the quartiles over the turns, n counts turns; this project's "
        "settings",
        _cost,
    ),
)

COMPARISONS: Final = (*_METHODS, *_PARTS)
