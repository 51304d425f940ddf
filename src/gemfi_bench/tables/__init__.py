"""Every table of the paper from the records of a benchmark, and a few of our own.

A table is a function from `Results` to a `Table`; it raises `Unavailable` with the reason where the
records do not hold what it needs. Most are rows (`Source`) and columns with what makes their cells
(`Field`), see `common.py`; title and notes are in `words.toml`.

| file | holds |
|---|---|
| `common.py`, `labels.py` | sources, fields, numbers from arrays; how rows are called |
| `detection.py` | OOD detection by method, by score, by chosen score, under corruption |
| `classification.py` | accuracy and calibration; temperature scaling |
| `sweeps.py` | GEM-FI by switches, λ, K and outliers |
| `diagnostics.py` | energy, gate, heads and router, from the arrays |
| `formulas.py`, `settings.py` | what the methods are |
| `cost.py` | what they cost |
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from gemfi_bench.tables import (
    classification,
    cost,
    detection,
    diagnostics,
    formulas,
    settings,
    sweeps,
)
from gemfi_bench.tables.common import Maker

TABLES: Final[Mapping[str, Maker]] = MappingProxyType(
    {
        "table2": partial(detection.by_method, label="table2"),
        "table3": classification.classification,
        "table5": partial(sweeps.switched, label="table5"),
        "table5-ours": partial(sweeps.switched, label="table5-ours"),
        "notation-summary": formulas.notation,
        "related_work_comparison": settings.related_work,
        "table1": formulas.dirichlet,
        "hparams": settings.hyper_parameters,
        "table2b": partial(detection.by_method, label="table2b"),
        "ood_chosen": detection.by_validation,
        "shift_detection_corruptions": detection.corruptions,
        "table13-cifar10": classification.temperature_scaling,
        "ts_calibration": classification.scaling_of_gem,
        "ood_aupr_auroc": detection.by_score,
        "lambda_fi_appendix": partial(sweeps.sensitivity, label="lambda_fi_appendix"),
        "lambda_kl_appendix": partial(sweeps.sensitivity, label="lambda_kl_appendix"),
        "gemfi_k_cifar": partial(sweeps.sensitivity, label="gemfi_k_cifar"),
        "fair_vos_appendix": partial(sweeps.outliers, label="fair_vos_appendix"),
        "vos_replace_appendix": partial(sweeps.outliers, label="vos_replace_appendix"),
        "rho_one_appendix": detection.rho_one,
        "energy_support_corr_appendix": diagnostics.energy_support,
        "energy_bins_appendix": diagnostics.energy_deciles,
        "gate_correlations": diagnostics.gate_correlations,
        "head_diversity_appendix": diagnostics.diversity,
        "routing_specialization_appendix": diagnostics.routing,
        "overhead": cost.overhead,
    }
)
"""Label of the paper -> what makes the table; `table5-ours`, `ood_chosen`, `gate_correlations` are
ours."""

__all__ = ["TABLES", "Maker"]
