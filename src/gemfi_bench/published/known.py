"""What no rule can find: quantities that are printed more than once, and problems known by reading.

The problems were found in the paper's released code, or follow from its formulas.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemfi_bench.published.record import Key, Published

_SAME = """
table3:edl:accuracy = table5:ablation-none:accuracy
table3:daedl:accuracy = abstract:daedl:accuracy = text:daedl:accuracy
table3:gem-core:accuracy = table5:ablation-core:accuracy
table3:gem-mix:accuracy = table5:ablation-mix:accuracy
table3:gem-fi:accuracy = table5:ablation-full:accuracy = gemfi_k_cifar:3:accuracy
    = lambda_fi_appendix:0.1:accuracy = lambda_kl_appendix:1e-4:accuracy
    = ood_aupr_auroc:cifar10>svhn:accuracy = ood_aupr_auroc:cifar10>cifar100:accuracy
    = ood_aupr_auroc:cifar10>tinyimagenet:accuracy = abstract:gem-fi:accuracy = text:gem-fi:accuracy
ood_aupr_auroc:mnist>kmnist:accuracy = ood_aupr_auroc:mnist>fmnist:accuracy

table3:edl:aupr_correct = table5:ablation-none:aupr_correct = table13-cifar10:edl:aupr_correct
table3:i-edl:aupr_correct = table13-cifar10:i-edl:aupr_correct
table3:daedl:aupr_correct = table13-cifar10:daedl:aupr_correct = abstract:daedl:aupr_correct
    = text:daedl:aupr_correct
table3:r-edl:aupr_correct = table13-cifar10:r-edl:aupr_correct
table3:re-edl:aupr_correct = table13-cifar10:re-edl:aupr_correct
table3:gem-core:aupr_correct = table5:ablation-core:aupr_correct
    = table13-cifar10:gem-core:aupr_correct
table3:gem-mix:aupr_correct = table5:ablation-mix:aupr_correct
    = table13-cifar10:gem-mix:aupr_correct
table3:gem-fi:aupr_correct = table5:ablation-full:aupr_correct
    = table13-cifar10:gem-fi:aupr_correct = abstract:gem-fi:aupr_correct = text:gem-fi:aupr_correct

table3:edl:brier = table13-cifar10:edl:brier
table3:i-edl:brier = table13-cifar10:i-edl:brier
table3:daedl:brier = table13-cifar10:daedl:brier = abstract:daedl:brier = text:daedl:brier
table3:r-edl:brier = table13-cifar10:r-edl:brier
table3:re-edl:brier = table13-cifar10:re-edl:brier
table3:gem-core:brier = table13-cifar10:gem-core:brier = ts_calibration:gem-core:brier/before
    = text:gem-core:brier
table3:gem-mix:brier = table13-cifar10:gem-mix:brier = ts_calibration:gem-mix:brier/before
table3:gem-fi:brier = table13-cifar10:gem-fi:brier = ts_calibration:gem-fi:brier/before
    = abstract:gem-fi:brier = text:gem-fi:brier

table13-cifar10:gem-core:ece = ts_calibration:gem-core:ece/before = text:gem-core:ece/before
table13-cifar10:gem-mix:ece = ts_calibration:gem-mix:ece/before = text:gem-mix:ece/before
table13-cifar10:gem-fi:ece = ts_calibration:gem-fi:ece/before = text:gem-fi:ece/before
ts_calibration:gem-core:ece/after = text:gem-core:ece/after
ts_calibration:gem-mix:ece/after = text:gem-mix:ece/after
ts_calibration:gem-fi:ece/after = text:gem-fi:ece/after
ts_calibration:gem-core:temperature = text:gem-core:temperature
ts_calibration:gem-mix:temperature = text:gem-mix:temperature
ts_calibration:gem-fi:temperature = text:gem-fi:temperature

table2:edl:cifar10>svhn/aleatoric = table5:ablation-none:cifar10>svhn/aleatoric
    = text:edl:cifar10>svhn/pr-curve
table2:edl:cifar10>svhn/epistemic = table5:ablation-none:cifar10>svhn/epistemic
table2:edl:cifar10>cifar100/aleatoric = table5:ablation-none:cifar10>cifar100/aleatoric
table2:edl:cifar10>cifar100/epistemic = table5:ablation-none:cifar10>cifar100/epistemic
table2:daedl:cifar10>svhn/aleatoric = fair_vos_appendix:daedl:cifar10>svhn/aleatoric
table2:daedl:cifar10>svhn/epistemic = fair_vos_appendix:daedl:cifar10>svhn/epistemic
    = abstract:daedl:cifar10>svhn/epistemic/aupr_id
table2:daedl:cifar10>cifar100/aleatoric = text:daedl:cifar10>cifar100/aleatoric/aupr_id
table2:daedl:cifar10>cifar100/epistemic = abstract:daedl:cifar10>cifar100/epistemic/aupr_id
table2:re-edl:cifar10>svhn/aleatoric = fair_vos_appendix:re-edl:cifar10>svhn/aleatoric
table2:re-edl:cifar10>svhn/epistemic = fair_vos_appendix:re-edl:cifar10>svhn/epistemic
table2:re-edl:cifar10>cifar100/aleatoric = text:re-edl:cifar10>cifar100/aleatoric/aupr_id
table2:gem-core:cifar10>svhn/aleatoric = table5:ablation-core:cifar10>svhn/aleatoric
    = text:gem-core:cifar10>svhn/pr-curve
table2:gem-core:cifar10>svhn/epistemic = table5:ablation-core:cifar10>svhn/epistemic
table2:gem-core:cifar10>cifar100/aleatoric = table5:ablation-core:cifar10>cifar100/aleatoric
table2:gem-core:cifar10>cifar100/epistemic = table5:ablation-core:cifar10>cifar100/epistemic
table2:gem-mix:cifar10>svhn/aleatoric = table5:ablation-mix:cifar10>svhn/aleatoric
    = text:gem-mix:cifar10>svhn/pr-curve
table2:gem-mix:cifar10>svhn/epistemic = table5:ablation-mix:cifar10>svhn/epistemic
table2:gem-mix:cifar10>cifar100/aleatoric = table5:ablation-mix:cifar10>cifar100/aleatoric
table2:gem-mix:cifar10>cifar100/epistemic = table5:ablation-mix:cifar10>cifar100/epistemic
table2:gem-fi:mnist>kmnist/aleatoric = ood_aupr_auroc:mnist>kmnist:max_prob/aupr_id
table2:gem-fi:mnist>kmnist/epistemic = ood_aupr_auroc:mnist>kmnist:evidence/aupr_id
table2:gem-fi:mnist>fmnist/aleatoric = ood_aupr_auroc:mnist>fmnist:max_prob/aupr_id
table2:gem-fi:mnist>fmnist/epistemic = ood_aupr_auroc:mnist>fmnist:evidence/aupr_id
table2:gem-fi:cifar10>svhn/aleatoric = table5:ablation-full:cifar10>svhn/aleatoric
    = gemfi_k_cifar:3:cifar10>svhn/aleatoric = fair_vos_appendix:gem-fi:cifar10>svhn/aleatoric
    = vos_replace_appendix:gem-fi:cifar10>svhn/aleatoric
    = rho_one_appendix:gem-fi:cifar10>svhn/aleatoric = ood_aupr_auroc:cifar10>svhn:max_prob/aupr_id
    = text:gem-fi:cifar10>svhn/aleatoric/aupr_id
table2:gem-fi:cifar10>svhn/epistemic = table5:ablation-full:cifar10>svhn/epistemic
    = gemfi_k_cifar:3:cifar10>svhn/epistemic = fair_vos_appendix:gem-fi:cifar10>svhn/epistemic
    = vos_replace_appendix:gem-fi:cifar10>svhn/epistemic
    = rho_one_appendix:gem-fi:cifar10>svhn/epistemic = ood_aupr_auroc:cifar10>svhn:evidence/aupr_id
    = lambda_fi_appendix:0.1:cifar10>svhn/epistemic
    = lambda_kl_appendix:1e-4:cifar10>svhn/epistemic
    = abstract:gem-fi:cifar10>svhn/epistemic/aupr_id = text:gem-fi:cifar10>svhn/epistemic/aupr_id
    = text:gem-fi:cifar10>svhn/pr-curve
table2:gem-fi:cifar10>cifar100/aleatoric = table5:ablation-full:cifar10>cifar100/aleatoric
    = gemfi_k_cifar:3:cifar10>cifar100/aleatoric
    = ood_aupr_auroc:cifar10>cifar100:max_prob/aupr_id
    = text:gem-fi:cifar10>cifar100/aleatoric/aupr_id
table2:gem-fi:cifar10>cifar100/epistemic = table5:ablation-full:cifar10>cifar100/epistemic
    = gemfi_k_cifar:3:cifar10>cifar100/epistemic
    = ood_aupr_auroc:cifar10>cifar100:evidence/aupr_id
    = abstract:gem-fi:cifar10>cifar100/epistemic/aupr_id
    = text:gem-fi:cifar10>cifar100/epistemic/aupr_id

table2b:edl:cifar10>svhn/aleatoric = text:edl:cifar10>svhn/roc-curve
table2b:daedl:cifar10>svhn/aleatoric = text:daedl:cifar10>svhn/roc-curve
table2b:daedl:cifar10>svhn/epistemic = abstract:daedl:cifar10>svhn/epistemic/auroc
table2b:daedl:cifar10>cifar100/epistemic = abstract:daedl:cifar10>cifar100/epistemic/auroc
table2b:gem-core:cifar10>svhn/aleatoric = text:gem-core:cifar10>svhn/aleatoric/auroc
    = text:gem-core:cifar10>svhn/roc-curve
table2b:gem-core:cifar10>svhn/epistemic = text:gem-core:cifar10>svhn/epistemic/auroc
table2b:gem-core:cifar10>cifar100/epistemic = text:gem-core:cifar10>cifar100/epistemic/auroc
table2b:gem-mix:cifar10>svhn/aleatoric = text:gem-mix:cifar10>svhn/roc-curve
table2b:gem-fi:mnist>kmnist/aleatoric = ood_aupr_auroc:mnist>kmnist:max_prob/auroc
table2b:gem-fi:mnist>kmnist/epistemic = ood_aupr_auroc:mnist>kmnist:evidence/auroc
table2b:gem-fi:mnist>fmnist/aleatoric = ood_aupr_auroc:mnist>fmnist:max_prob/auroc
table2b:gem-fi:mnist>fmnist/epistemic = ood_aupr_auroc:mnist>fmnist:evidence/auroc
table2b:gem-fi:cifar10>svhn/aleatoric = ood_aupr_auroc:cifar10>svhn:max_prob/auroc
    = text:gem-fi:cifar10>svhn/roc-curve
table2b:gem-fi:cifar10>svhn/epistemic = ood_aupr_auroc:cifar10>svhn:evidence/auroc
    = abstract:gem-fi:cifar10>svhn/epistemic/auroc = text:gem-fi:cifar10>svhn/epistemic/auroc
table2b:gem-fi:cifar10>cifar100/aleatoric = ood_aupr_auroc:cifar10>cifar100:max_prob/auroc
table2b:gem-fi:cifar10>cifar100/epistemic = ood_aupr_auroc:cifar10>cifar100:evidence/auroc
    = abstract:gem-fi:cifar10>cifar100/epistemic/auroc
    = text:gem-fi:cifar10>cifar100/epistemic/auroc
ood_aupr_auroc:cifar10>svhn:mutual_information/aupr_id
    = text:gem-fi:cifar10>svhn/mutual_information/aupr_id
ood_aupr_auroc:cifar10>svhn:entropy/auroc = text:gem-fi:cifar10>svhn/entropy/auroc

hparams:batch_size:mnist = text:gem-fi:batch_size/mnist
hparams:batch_size:cifar10 = text:gem-fi:batch_size/cifar10
hparams:gate_low:cifar10 = text:gem-fi:gate_low
hparams:gate_high:cifar10 = text:gem-fi:gate_high
"""


def _key(text: str) -> Key:
    label, row, column = text.strip().split(":")
    return label, row, column


SAME_QUANTITY: tuple[tuple[Key, ...], ...] = tuple(
    tuple(_key(each) for each in group.split(" = "))
    for group in _SAME.strip().replace("\n    =", " =").splitlines()
    if group
)
"""Each group is one quantity in the paper's words, so that one number should stand everywhere."""


@dataclass(frozen=True)
class Known:
    """A problem of some numbers; empty fields match every number.

    Attributes:
        reason: in a sentence.
        labels: of tables.
        rows: of them.
        columns: of them; matched by their beginning.
        metrics: of them.
    """

    reason: str
    labels: tuple[str, ...]
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()

    def matches(self, number: Published) -> bool:
        """Whether it is a problem of this number."""
        return (
            number.label in self.labels
            and (not self.rows or number.row in self.rows)
            and (not self.columns or number.column.startswith(self.columns))
            and (not self.metrics or number.metric in self.metrics)
        )


_GEM = ("gem-core", "gem-mix", "gem-fi")
_DUMMY = (
    "the released code compares max p with 1 - max p of the same images and never looks at what "
    "was right"
)

KNOWN: tuple[Known, ...] = (
    Known(
        "the released code trains on these OOD test sets and chooses the epoch by them, so that "
        "it cannot be compared with methods that do not",
        ("table2", "table2b"),
        rows=_GEM,
    ),
    Known(
        "the released code prints 0.55 of entropy's AUPR, 0.30 of MI's and 0.15 of α0's as "
        "epistemic on CIFAR-10; this may be that mean and not α0's AUPR",
        ("table2",),
        rows=("gem-mix", "gem-fi"),
        columns=("cifar10>svhn/epistemic", "cifar10>cifar100/epistemic"),
    ),
    Known(
        "84.46 with an AUROC of 74.60 is close to the largest AUPR of any curve, 86.4: a quarter "
        "of the CIFAR-10 images would have to rank below nearly all of CIFAR-100",
        ("table2",),
        rows=("gem-mix",),
        columns=("cifar10>cifar100/epistemic",),
    ),
    Known(
        "92.59 is the epistemic AUPR, while 93.65 in the same paragraph is the aleatoric AUROC",
        ("text",),
        rows=("gem-fi",),
        columns=("cifar10>svhn/pr-curve",),
    ),
    Known(
        "the released code takes a softmax of probabilities and divides by 10; perfect one-hot "
        "predictions have 6.55 there, so that 6.81 and 6.97 are no Brier scores",
        ("table3", "table13-cifar10", "abstract", "text", "ts_calibration"),
        rows=("gem-mix", "gem-fi"),
        metrics=("brier",),
    ),
    *(
        Known(_DUMMY, labels, rows=rows, metrics=("aupr_correct",))
        for labels, rows in (
            (("table3", "abstract", "text"), ("gem-mix", "gem-fi")),
            (("table13-cifar10",), ("gem-fi",)),  # its 99.43 of GEM-MIX may be a true one
            (("table5",), ("ablation-mix", "ablation-full")),
        )
    ),
    Known(
        "the released code has no switch for EBM and UNC, so that it cannot make this row",
        ("table5",),
        rows=(
            "ablation-core",
            "ablation-mix",
            "ablation-fi-reg",
            "ablation-fi-mod",
            "ablation-fi",
            "ablation-ebm",
        ),
    ),
    Known(
        "90.60 falls to 75.38 by modulating π alone, which at λ_FI = 0.1 changes the odds of two "
        "heads by at most 10.5 % and only in training",
        ("table5",),
        rows=("ablation-fi-mod",),
        columns=("cifar10>svhn/epistemic",),
    ),
    Known(
        "91.71±0.14 with K = 4, but 93.75±0.36 with 3 and 92.62±0.20 with 5: the method has no "
        "reason for such a dip, and the text calls it stable",
        ("gemfi_k_cifar",),
        rows=("4",),
        columns=("accuracy",),
    ),
    Known(
        "ρ cancels in p, so that it cannot move an AUPR of max p from 89.50 to 91.27 except "
        "through training, and the released code never sets it",
        ("rho_one_appendix",),
        columns=("cifar10>svhn/aleatoric",),
    ),
    Known(
        "features of unit norm, which the released code uses, are never more than 2 apart",
        ("energy_bins_appendix",),
    ),
    Known(
        "the released code averages over 16 sets, the clean one among them; the text says 15",
        ("shift_detection_corruptions",),
        rows=_GEM,
        columns=("mnist>mnist-c",),
    ),
    Known(
        "the released code has 13.18 M (CORE), 14.37 M (K = 3) and 15.16 M (K = 5) parameters",
        ("overhead",),
        rows=(*_GEM, "gem-fi-k5"),
        columns=("parameters",),
    ),
    Known(
        "the released code uses 0.001 and 0.05 (MNIST), 0.005 and 0.002 (CIFAR-10)",
        ("hparams",),
        rows=("beta_id", "beta_ood"),
    ),
)
"""Found by reading; each of them is called suspicious."""
