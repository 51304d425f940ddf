"""Claims of the paper about other methods: detection, accuracy and calibration."""

from __future__ import annotations

from collections.abc import Sequence

from gemfi_bench.claims import measures
from gemfi_bench.claims.ledger import Claim, Test, Tests
from gemfi_bench.claims.numbers import on_test, under_shift
from gemfi_bench.claims.settings import both
from gemfi_bench.claims.tests_of import better_by, better_ood, gap_within, sign_of, together
from gemfi_bench.grid import MAIN
from gemfi_bench.results import Results
from gemfi_bench.unavailable import Unavailable

_TEMPERATURE_GAIN = 0.5
"""Points of ECE that would make temperature scaling worth its while."""


def _beats(other: str, label: str) -> list[Claim]:
    return [
        *both(
            f"ood-{other}",
            f"GEM-FI detects OOD data better than {label}.",
            "Table 2, abstract",
            "paired difference of AUPR (ID positive) by the epistemic score, each OOD set",
            lambda row, group: better_ood(row, other, group=group, other_group=MAIN),
        ),
        *both(
            f"calibration-{other}",
            f"GEM-FI is better calibrated than {label}.",
            "Table 3, Table 13",
            "paired difference of Brier score (sum) and ECE on test data",
            lambda row, group: together(
                better_by(row, other, on_test("brier"), "Brier", better="low", group=group,
                          other_group=MAIN),
                better_by(row, other, on_test("ece"), "ECE", better="low", group=group,
                          other_group=MAIN),
            ),
        ),
    ]  # fmt: skip


def _with_severity(row: str, group: str) -> Tests:
    """The most severe corruptions against the least severe."""

    def tests(results: Results) -> Sequence[Test]:
        shift = results.protocol.shift
        severities = shift.severities
        if not shift.corruptions:
            raise Unavailable("this protocol has no corruptions")
        if len(severities) < 2:
            raise Unavailable("the corruptions of this protocol have one severity")
        low, high = severities[0], severities[-1]
        numbers = (
            under_shift(high, "aleatoric", "aupr_ood"),
            under_shift(low, "aleatoric", "aupr_ood"),
        )
        return [gap_within(results, (row, group), numbers, f"AUPR at severity {high} above {low}")]

    return tests


COMPARISONS = [
    *_beats("daedl", "DAEDL"),
    *_beats("re-edl", "Re-EDL"),
    *_beats("edl", "EDL"),
    *both(
        "accuracy-daedl",
        "GEM-FI is more accurate than DAEDL.",
        "abstract, Table 3",
        "paired difference of test accuracy",
        lambda row, group: better_by(
            row, "daedl", on_test("accuracy"), "accuracy", group=group, other_group=MAIN
        ),
    ),
    *both(
        "misclassification-daedl",
        "GEM-FI tells its errors from its hits better than DAEDL.",
        "abstract, Table 3",
        "paired difference of AUPR of right predictions and of AUROC by 1 − max p",
        lambda row, group: together(
            *(
                better_by(row, "daedl", on_test(metric), name, group=group, other_group=MAIN)
                for metric, name in (("aupr_correct", "AUPR (right)"), ("auroc_error", "AUROC"))
            )
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
        lambda row, group: sign_of(
            row,
            measures.gain_of_temperature("ece"),
            "ECE before − after",
            positive=False,
            margin=_TEMPERATURE_GAIN,
            group=group,
        ),
    ),
]
