"""What this project sets out to establish, tested like the paper's claims."""

from __future__ import annotations

from typing import Final

from gemfi_bench.claims.ledger import OURS as WHERE
from gemfi_bench.claims.ledger import Claim
from gemfi_bench.claims.numbers import on_test, under_shift
from gemfi_bench.claims.tests_of import better_by, better_chosen, better_ood, together
from gemfi_bench.style import method_label

_CHOSEN = (
    "paired difference of AUROC by the score that OOD-validation data choose for each, each OOD set"
)

OURS: Final = (
    Claim(
        "ensemble-ood",
        "At one forward pass GEM-FI detects OOD data better than an ensemble.",
        WHERE,
        "paired difference of AUROC by each method's epistemic score, each OOD set",
        better_ood("gem-fi", "ensemble", metric="auroc"),
    ),
    Claim(
        "ensemble-calibration",
        "At one forward pass GEM-FI is better calibrated than an ensemble.",
        WHERE,
        "paired difference of Brier score and NLL on test data",
        together(
            better_by("gem-fi", "ensemble", on_test("brier"), "Brier", better="low"),
            better_by("gem-fi", "ensemble", on_test("nll"), "NLL", better="low"),
        ),
    ),
    Claim(
        "softmax-ood",
        "GEM-FI detects OOD data better than the softmax of the same network.",
        WHERE,
        "paired difference of AUROC, unfamiliarity against the energy of softmax's logits",
        better_ood("gem-fi", "softmax", metric="auroc"),
    ),
    Claim(
        "shift-daedl",
        "GEM-FI tells corrupted inputs from clean ones better than DAEDL.",
        WHERE,
        "paired difference of AUPR (corrupted positive) by the aleatoric score, all corruptions",
        better_by(
            "gem-fi", "daedl", under_shift(None, "aleatoric", "aupr_ood"), "AUPR under shift"
        ),
    ),
    Claim(
        "softmax-accuracy",
        "GEM-FI loses less than half a point of accuracy against softmax.",
        WHERE,
        "paired difference of accuracy, above −0.5",
        better_by("gem-fi", "softmax", on_test("accuracy"), "accuracy", margin=-0.5),
    ),
    *(
        Claim(
            f"chosen-{other}",
            f"With the best score for each, GEM-FI detects OOD data better than {name}.",
            WHERE,
            _CHOSEN,
            better_chosen("gem-fi", other),
        )
        for other, name in [
            *((each, method_label(each)) for each in ("edl", "daedl", "re-edl")),
            ("ensemble", "an ensemble"),
        ]
    ),
    Claim(
        "chosen-detectors",
        "With the best score, GEM-FI detects OOD data better than the best post-hoc detector on "
        "softmax.",
        WHERE,
        _CHOSEN,
        better_chosen("gem-fi", "softmax", detector=True),
    ),
)
"""Our own claims."""
