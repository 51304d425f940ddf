"""Every table and figure of the paper by its label, and what stands for it here.

To add a table or a figure of our own, enter it in `TABLES` or `FIGURES`; a label of the paper also
belongs into `PAPER_TABLES` or `PAPER_FIGURES`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gemfi_bench.record_file import ARRAYS, PACKED

MANIFEST: Final = "manifest.json"

PAPER_TABLES: Final = (
    "table2", "table3", "table5", "notation-summary", "related_work_comparison", "table1",
    "hparams", "table2b", "shift_detection_corruptions", "table13-cifar10", "ts_calibration",
    "ood_aupr_auroc", "lambda_fi_appendix", "lambda_kl_appendix", "gemfi_k_cifar",
    "fair_vos_appendix", "vos_replace_appendix", "rho_one_appendix",
    "energy_support_corr_appendix", "energy_bins_appendix", "head_diversity_appendix",
    "routing_specialization_appendix", "overhead",
)  # fmt: skip
"""The paper's tables, in its order, by their labels without `tab:`."""

PAPER_FIGURES: Final = (
    "moons-edl", "moons-daedl", "moons-gemfi", "moons-2d", "toy-daedl", "toy-gemfi",
    "moons-toy-1d", "arch-daedl", "arch-gemfi", "arch", "prroc", "dirichlet-comp", "tsne-before",
    "tsne-after", "tsne-id-ood", "tsne-fi", "pr-curves", "roc-curves", "reliability_id",
    "conf_correct_wrong", "hist-ood", "entropy-mi-scatter", "boxplots", "tsne-comparison",
    "app:lambda", "supp-uncert", "supp-calib", "supp-accconf", "supp-energy",
)  # fmt: skip
"""The paper's figures and their panels, in its order, by their labels without `fig:`."""


def is_kept(folder: Path) -> bool:
    """Whether a folder holds results that were rendered elsewhere, from arrays not here."""
    kept = (folder / MANIFEST).exists() and (folder / PACKED).exists()
    return kept and not (folder / ARRAYS).exists()


def file_stem(label: str) -> str:
    """The name of a label's files."""
    return label.replace(":", "-")
