"""Every table of the paper from the records of a benchmark, and a few of our own.

A table is a function from `Results` to a `Table`; it raises `Unavailable` with the reason where the
records do not hold what it needs.

| file | holds |
|---|---|
| `common.py`, `labels.py` | rows, cells and notes; how rows are called |
| `arrays.py`, `intervals.py` | numbers from the arrays of a run; how sure they are |
| `detection.py`, `by_score.py`, `shift.py` | OOD detection by method, by score, under corruption |
| `chosen.py` | OOD detection by the score that OOD-validation data choose |
| `classification.py`, `calibration.py` | accuracy and calibration; temperature scaling |
| `ablation.py`, `sweeps.py` | switches; λ, K, outliers and ρ |
| `energy.py`, `heads.py` | diagnostics of energy, gate, heads and router |
| `parameterisation.py`, `hyper_parameters.py`, `related.py`, `notation.py` | what the methods are |
| `overhead.py` | what they cost |
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gemfi_bench.tables import (
    ablation,
    by_score,
    calibration,
    chosen,
    classification,
    detection,
    energy,
    heads,
    hyper_parameters,
    notation,
    overhead,
    parameterisation,
    related,
    shift,
    sweeps,
)
from gemfi_bench.tables.common import Maker

TABLES: Final[Mapping[str, Maker]] = MappingProxyType(
    {
        "table2": detection.ood_aupr,
        "table3": classification.classification,
        "table5": ablation.paper_settings,
        "table5-ours": ablation.our_settings,
        "notation-summary": notation.notation,
        "related_work_comparison": related.related_work,
        "table1": parameterisation.dirichlet,
        "hparams": hyper_parameters.hyper_parameters,
        "table2b": detection.ood_auroc,
        "ood_chosen": chosen.by_validation,
        "shift_detection_corruptions": shift.corruptions,
        "table13-cifar10": calibration.comparison,
        "ts_calibration": calibration.effect_on_gem,
        "ood_aupr_auroc": by_score.dataset_shift,
        "lambda_fi_appendix": sweeps.fisher,
        "lambda_kl_appendix": sweeps.kl,
        "gemfi_k_cifar": sweeps.components,
        "fair_vos_appendix": sweeps.fair_outliers,
        "vos_replace_appendix": sweeps.noise_for_vos,
        "rho_one_appendix": sweeps.rho_one,
        "energy_support_corr_appendix": energy.energy_support,
        "energy_bins_appendix": energy.energy_deciles,
        "gate_correlations": energy.gate_correlations,
        "head_diversity_appendix": heads.diversity,
        "routing_specialization_appendix": heads.routing,
        "overhead": overhead.overhead,
    }
)
"""Label of the paper -> what makes the table; `table5-ours`, `ood_chosen`, `gate_correlations` are
ours."""

__all__ = ["TABLES", "Maker"]
