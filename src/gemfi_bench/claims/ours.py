"""What this project sets out to establish, tested like the paper's claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gemfi_bench.claims.claim_tests import GridRow, better_by, better_chosen, better_ood, claim
from gemfi_bench.claims.ledger import Claim, Tests
from gemfi_bench.claims.numbers import on_test, under_shift

_GEM = GridRow("gem-fi")
_SOFTMAX, _ENSEMBLE = GridRow("softmax"), GridRow("ensemble")
_SHIFT = under_shift(None, "aleatoric", "aupr_ood")


def _on_test(metrics: Mapping[str, str], other: GridRow, **options: Any) -> Tests:
    """A number of the classifier, each by its name and in words."""
    return lambda results: [
        better_by(results, _GEM, other, on_test(metric), what, **options)
        for metric, what in metrics.items()
    ]


def _chosen(other: str) -> Claim:
    return claim(f"chosen-{other}", lambda results: better_chosen(results, _GEM, GridRow(other)))


OUR_CLAIMS: Sequence[Claim] = (
    claim("ensemble-ood", lambda results: better_ood(results, _GEM, _ENSEMBLE, "auroc")),
    claim(
        "ensemble-calibration",
        _on_test({"brier": "Brier", "nll": "NLL"}, _ENSEMBLE, better="low"),
    ),
    claim("softmax-ood", lambda results: better_ood(results, _GEM, _SOFTMAX, "auroc")),
    claim(
        "shift-daedl",
        lambda results: [better_by(results, _GEM, GridRow("daedl"), _SHIFT, "AUPR under shift")],
    ),
    claim("softmax-accuracy", _on_test({"accuracy": "accuracy"}, _SOFTMAX, margin=-0.5)),
    *map(_chosen, ("edl", "daedl", "re-edl", "ensemble")),
    claim(
        "chosen-detectors",
        lambda results: better_chosen(results, _GEM, _SOFTMAX, detector=True),
    ),
)
