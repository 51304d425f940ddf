"""Claims of the paper about other methods: detection, accuracy and calibration."""

from __future__ import annotations

from collections.abc import Sequence

from gemfi.bench.claims import measures
from gemfi.bench.claims.ledger import Claim, Test, Tests
from gemfi.bench.claims.settings import both
from gemfi.bench.claims.tests_of import (
    Measured,
    better_by,
    better_ood,
    rises,
    sign_of,
    together,
)
from gemfi.bench.grid import MAIN
from gemfi.bench.results import Results, of_shift, of_test
from gemfi.bench.unavailable import Unavailable

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
                better_by(row, other, of_test("brier"), "Brier", better="low", group=group,
                          other_group=MAIN),
                better_by(row, other, of_test("ece"), "ECE", better="low", group=group,
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
        picks = [of_shift(each, "aleatoric", "aupr_ood") for each in severities]
        runs = results.by_seed(row, group)
        low, high = (
            {
                seed: Measured(value, run.key)
                for seed, run in runs.items()
                if (value := pick(run)) is not None
            }
            for pick in (picks[0], picks[-1])
        )
        return [rises(low, high, f"AUPR at severity {severities[-1]} above {severities[0]}")]

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
            row, "daedl", of_test("accuracy"), "accuracy", group=group, other_group=MAIN
        ),
    ),
    *both(
        "misclassification-daedl",
        "GEM-FI tells its errors from its hits better than DAEDL.",
        "abstract, Table 3",
        "paired difference of AUPR of right predictions and of AUROC by 1 − max p",
        lambda row, group: together(
            *(
                better_by(row, "daedl", of_test(metric), name, group=group, other_group=MAIN)
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
