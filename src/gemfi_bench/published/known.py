"""How the paper's numbers were really computed, and problems that were found by reading.

Sources are the paper's formulas and its released code. A number is called `label:row:column` here,
and `*` in a pattern stands for anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final

_LEAK: Final = "the released code trains and selects on these OOD test sets"
_NORM: Final = "mean L2 norm ×100, not squared"
_SPLIT: Final = "on the validation split of the fit in the released code"
_MEAN: Final = "mean over classes ×100 (the sum divided by 10)"
_TWICE: Final = "softmax of probabilities, then mean over classes ×100"
_SHIFTED: Final = "AP, corrupted positive, 10,000 against 10,000, mean over corruptions"

CONVENTIONS: Final = (
    ("as its table, where one has it", "abstract:* text:*"),
    ("share of right predictions", "*:accuracy"),
    # OOD detection; the paper's text says that OOD is positive, the code of nearly all says ID
    (
        "AP, ID positive, as in PostNet's paper (origin not verified)",
        "table2:mc-dropout:* table2:kl-pn:* table2:rkl-pn:*",
    ),
    ("not verifiable: no code for these data", "table2:cedl-plus:*"),
    ("not verified: its own code takes trapezoids, not AP", "table2:lts:*"),
    (f"the same whoever is positive; {_LEAK}", "table2b:gem-*"),
    ("the same whoever is positive; origin not verified", "table2b:*"),
    (f"ID positive in AUPR, though the text says OOD; {_LEAK}", "ood_aupr_auroc:*"),
    (
        "AP, ID positive",
        "table2:*edl:* table2:postnet:* table5:ablation-none:cifar10>* fair_vos_appendix:*edl*",
    ),
    (f"AP, ID positive; {_LEAK}", "*:cifar10>svhn/* *:cifar10>cifar100/* table2:*"),
    # detection of corruptions
    (f"{_SHIFTED}; score: entropy", "shift_detection_corruptions:gem-core:*"),
    (f"{_SHIFTED}; score: expected entropy", "shift_detection_corruptions:gem-*"),
    (_SHIFTED, "shift_detection_corruptions:*"),
    # detection of errors
    (
        "AP, correct positive, it seems: the dummy metric of the released code gives more",
        "table13-cifar10:gem-mix:aupr_correct",
    ),
    (
        "max p against 1 - max p of the same images; correctness is never used",
        "*:gem-mix:aupr_correct *:gem-fi:aupr_correct table5:ablation-mix:* table5:ablation-full:*",
    ),
    (
        "not known; the dummy metric of the released code by entropy looks like it",
        "table5:ablation-fi*:aupr_correct table5:ablation-ebm:* table5:ablation-full-*",
    ),
    ("AP, correct positive", "*:aupr_correct"),
    # calibration
    ("fitted on validation data by NLL", "ts_calibration:*:temperature"),
    (_SPLIT, "ts_calibration:*:nll/*"),
    (f"10 bins in the released code; {_SPLIT}", "ts_calibration:gem-core:ece/*"),
    (f"15 bins; {_SPLIT}", "ts_calibration:*:ece/*"),
    ("10 bins in the released code", "*:gem-core:ece"),
    ("15 bins", "*:ece"),
    (
        f"{_NORM}, as in PostNet's paper (origin not verified)",
        "*:mc-dropout:brier *:kl-pn:brier *:rkl-pn:brier",
    ),
    (
        "a square, not verified (59.73 of table13-cifar10 is the mean L2 norm)",
        "table3:i-edl:brier",
    ),
    (_NORM, "*:postnet:brier *:i-edl:brier *:r-edl:brier *:re-edl:brier"),
    ("sum over classes ×100", "*:daedl:brier"),
    (_MEAN, "*:gem-core:brier"),
    (_TWICE, "*:gem-mix:brier *:gem-fi:brier"),
    (f"{_MEAN}; {_SPLIT}", "*:gem-core:brier/*"),
    (f"{_TWICE}; {_SPLIT}", "*:brier/*"),
    (f"mean of SVHN and CIFAR-100, score not said; {_LEAK}", "*:gem-*:mean_auroc"),
    ("mean of SVHN and CIFAR-100, score not said", "*:mean_auroc"),
    ("not verified", "*:brier"),
    # the rest of the appendix
    ("1 is a tick, 0 a cross", "related_work_comparison:*"),
    ("as printed; the schedule, a cosine for both, is no number", "hparams:*"),
    ("an upper bound: the paper prints < 1e-6", "*:p_value"),
    ("rank correlation of the learned energy with the 10-NN distance", "*:spearman"),
    (
        "10-NN distance on the CIFAR-10 test set by decile of energy, lowest first",
        "energy_bins_appendix:*",
    ),
    ("K = 3, over all pairs of heads; what disagrees is not said", "head_diversity_appendix:*"),
    (
        "K = 3; unit of entropy and threshold of confidence are not said",
        "routing_specialization_appendix:*",
    ),
    ("ResNet-18 on one RTX 3090; an epoch, a batch of 128", "overhead:*"),
)
"""What numbers were really computed under, and which; the first that matches counts."""

PROBLEMS: Final[Mapping[str, str]] = {
    "the released code trains on these OOD test sets and chooses the epoch by them, so that it "
    "cannot be compared with methods that do not": "table2:gem-* table2b:gem-*",
    "the released code prints 0.55 of entropy's AUPR, 0.30 of MI's and 0.15 of α0's as epistemic "
    "on CIFAR-10; this may be that mean and not α0's AUPR": (
        "table2:gem-mix:cifar10>*/epistemic table2:gem-fi:cifar10>*/epistemic"
    ),
    "84.46 with an AUROC of 74.60 is close to the largest AUPR of any curve, 86.4: a quarter of "
    "the CIFAR-10 images would have to rank below nearly all of CIFAR-100": (
        "table2:gem-mix:cifar10>cifar100/epistemic"
    ),
    "92.59 is the epistemic AUPR, while 93.65 in the same paragraph is the aleatoric AUROC": (
        "text:gem-fi:cifar10>svhn/pr-curve"
    ),
    "the released code takes a softmax of probabilities and divides by 10; perfect one-hot "
    "predictions have 6.55 there, so that 6.81 and 6.97 are no Brier scores": (
        "*:gem-mix:brier *:gem-fi:brier ts_calibration:gem-mix:brier/* "
        "ts_calibration:gem-fi:brier/*"
    ),
    "the released code compares max p with 1 - max p of the same images and never looks at what "
    "was right": (  # 99.43 of GEM-MIX in table13 may be a true one
        "table3:gem-mix:aupr_correct *:gem-fi:aupr_correct "
        "table5:ablation-mix:aupr_correct table5:ablation-full:aupr_correct"
    ),
    "the released code has no switch for EBM and UNC, so that it cannot make this row": (
        "table5:ablation-core:* table5:ablation-mix:* table5:ablation-fi* table5:ablation-ebm:*"
    ),
    "90.60 falls to 75.38 by modulating π alone, which at λ_FI = 0.1 changes the odds of two heads "
    "by at most 10.5 % and only in training": "table5:ablation-fi-mod:cifar10>svhn/epistemic",
    "91.71±0.14 with K = 4, but 93.75±0.36 with 3 and 92.62±0.20 with 5: the method has no reason "
    "for such a dip, and the text calls it stable": "gemfi_k_cifar:4:accuracy",
    "ρ cancels in p, so that it cannot move an AUPR of max p from 89.50 to 91.27 except through "
    "training, and the released code never sets it": "rho_one_appendix:*:cifar10>svhn/aleatoric",
    "features of unit norm, which the released code uses, are never more than 2 apart": (
        "energy_bins_appendix:*"
    ),
    "the released code averages over 16 sets, the clean one among them; the text says 15": (
        "shift_detection_corruptions:gem-*:mnist>mnist-c"
    ),
    "the released code has 13.18 M (CORE), 14.37 M (K = 3) and 15.16 M (K = 5) parameters": (
        "overhead:gem-*:parameters"
    ),
    "the released code uses 0.001 and 0.05 (MNIST), 0.005 and 0.002 (CIFAR-10)": "hparams:beta_*",
}
"""Problem -> the numbers that have it; each is suspicious."""


def is_one_of(key: str, patterns: str) -> bool:
    """Whether a number, `label:row:column`, is one of those that patterns name."""
    return any(fnmatchcase(key, pattern) for pattern in patterns.split())


def convention(key: str) -> str:
    """What a number was really computed under; "" where that is not known."""
    return next((phrase for phrase, patterns in CONVENTIONS if is_one_of(key, patterns)), "")
