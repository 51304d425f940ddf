"""What this project sets out to establish, tested like the paper's claims."""

from __future__ import annotations

from collections.abc import Sequence

from gemfi_bench.claims.claim_tests import GridRow, better_by, better_chosen, better_ood
from gemfi_bench.claims.ledger import OURS, Claim
from gemfi_bench.claims.numbers import on_test, under_shift
from gemfi_bench.style import method_label

_GEM = GridRow("gem-fi")
_SOFTMAX, _ENSEMBLE = GridRow("softmax"), GridRow("ensemble")
_SHIFT = under_shift(None, "aleatoric", "aupr_ood")
_CHOSEN = (
    "paired difference of AUROC by the score that OOD-validation data choose for each, each OOD set"
)


def _chosen(other: str, label: str) -> Claim:
    return Claim(
        f"chosen-{other}",
        f"With the best score for each, GEM-FI detects OOD data better than {label}.",
        OURS,
        _CHOSEN,
        lambda results: better_chosen(results, _GEM, GridRow(other)),
    )


OUR_CLAIMS: Sequence[Claim] = (
    Claim(
        "ensemble-ood",
        "At one forward pass GEM-FI detects OOD data better than an ensemble.",
        OURS,
        "paired difference of AUROC by each method's epistemic score, each OOD set",
        lambda results: better_ood(results, _GEM, _ENSEMBLE, "auroc"),
    ),
    Claim(
        "ensemble-calibration",
        "At one forward pass GEM-FI is better calibrated than an ensemble.",
        OURS,
        "paired difference of Brier score and NLL on test data",
        lambda results: [
            better_by(results, _GEM, _ENSEMBLE, on_test("brier"), "Brier", better="low"),
            better_by(results, _GEM, _ENSEMBLE, on_test("nll"), "NLL", better="low"),
        ],
    ),
    Claim(
        "softmax-ood",
        "GEM-FI detects OOD data better than the softmax of the same network.",
        OURS,
        "paired difference of AUROC, unfamiliarity against the energy of softmax's logits",
        lambda results: better_ood(results, _GEM, _SOFTMAX, "auroc"),
    ),
    Claim(
        "shift-daedl",
        "GEM-FI tells corrupted inputs from clean ones better than DAEDL.",
        OURS,
        "paired difference of AUPR (corrupted positive) by the aleatoric score, all corruptions",
        lambda results: [
            better_by(results, _GEM, GridRow("daedl"), _SHIFT, "AUPR under shift"),
        ],
    ),
    Claim(
        "softmax-accuracy",
        "GEM-FI loses less than half a point of accuracy against softmax.",
        OURS,
        "paired difference of accuracy, above −0.5",
        lambda results: [
            better_by(results, _GEM, _SOFTMAX, on_test("accuracy"), "accuracy", margin=-0.5),
        ],
    ),
    *(_chosen(other, method_label(other)) for other in ("edl", "daedl", "re-edl")),
    _chosen("ensemble", "an ensemble"),
    Claim(
        "chosen-detectors",
        "With the best score, GEM-FI detects OOD data better than the best post-hoc detector on "
        "softmax.",
        OURS,
        _CHOSEN,
        lambda results: better_chosen(results, _GEM, _SOFTMAX, detector=True),
    ),
)
