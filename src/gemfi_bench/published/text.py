"""What the paper says in numbers outside its tables."""

from __future__ import annotations

from gemfi_bench.published.record import Published

_ABSTRACT = """
daedl  accuracy                          accuracy     91.11
gem-fi accuracy                          accuracy     93.75
gem-fi accuracy/over-daedl               difference    2.64
daedl  brier                             brier        14.27
gem-fi brier                             brier         6.81
gem-fi brier/over-daedl                  difference   -7.46
daedl  aupr_correct                      aupr_correct 99.08
gem-fi aupr_correct                      aupr_correct 99.94
gem-fi aupr_correct/over-daedl           difference    0.86
gem-fi cifar10>svhn/epistemic/aupr_id     aupr_id      92.59
gem-fi cifar10>svhn/epistemic/auroc       auroc        95.09
gem-fi cifar10>cifar100/epistemic/aupr_id aupr_id      90.20
gem-fi cifar10>cifar100/epistemic/auroc   auroc        89.06
daedl  cifar10>svhn/epistemic/aupr_id     aupr_id      85.54
daedl  cifar10>svhn/epistemic/auroc       auroc        89.30
daedl  cifar10>cifar100/epistemic/aupr_id aupr_id      88.19
daedl  cifar10>cifar100/epistemic/auroc   auroc        86.10
"""

_TEXT = """
gem-fi   cifar10>cifar100/aleatoric/aupr_id aupr_id      90.30
daedl    cifar10>cifar100/aleatoric/aupr_id aupr_id      88.16
re-edl   cifar10>cifar100/aleatoric/aupr_id aupr_id      87.57
edl      cifar10>svhn/pr-curve              aupr_id      78.87
gem-core cifar10>svhn/pr-curve              aupr_id      93.87
gem-mix  cifar10>svhn/pr-curve              aupr_id      93.72
gem-fi   cifar10>svhn/pr-curve              aupr_id      92.59
edl      cifar10>svhn/roc-curve             auroc        81.06
daedl    cifar10>svhn/roc-curve             auroc        89.24
gem-core cifar10>svhn/roc-curve             auroc        93.65
gem-fi   cifar10>svhn/roc-curve             auroc        93.65
gem-mix  cifar10>svhn/roc-curve             auroc        93.08
daedl    accuracy                           accuracy     91.11
gem-fi   accuracy                           accuracy     93.75
daedl    brier                              brier        14.27
gem-fi   brier                              brier         6.81
daedl    aupr_correct                       aupr_correct 99.08
gem-fi   aupr_correct                       aupr_correct 99.93
softmax  brier/lowest                       brier        15
softmax  brier/highest                      brier        20
gem-core brier                              brier         1.27
gem-fi   cifar10>svhn/aleatoric/aupr_id     aupr_id      91.27
gem-fi   cifar10>svhn/epistemic/aupr_id     aupr_id      92.59
gem-fi   cifar10>cifar100/epistemic/aupr_id aupr_id      90.20
gem-core cifar10>svhn/aleatoric/auroc       auroc        94.75
gem-core cifar10>svhn/epistemic/auroc       auroc        94.36
gem-fi   cifar10>svhn/epistemic/auroc       auroc        95.09
gem-core cifar10>cifar100/epistemic/auroc   auroc        83.63
gem-fi   cifar10>cifar100/epistemic/auroc   auroc        89.06
gem-fi   cifar10>svhn/mutual_information/aupr_id aupr_id 93.06
gem-fi   cifar10>svhn/entropy/auroc         auroc        95.41
gem-core temperature                        temperature   1.18
gem-core ece/before                         ece           1.94
gem-core ece/after                          ece           0.76
gem-mix  temperature                        temperature   1.01
gem-mix  ece/before                         ece           2.80
gem-mix  ece/after                          ece           3.04
gem-fi   temperature                        temperature   0.95
gem-fi   ece/before                         ece           2.42
gem-fi   ece/after                          ece           2.70
gem-fi   ece/about                          ece           2.5
gem-fi   rho_exponent                       setting       1.2
gem-fi   energy_desaturation                setting       0.5
gem-fi   vos_weight                         setting       0.1
gem-fi   vos_warm_up_epochs                 setting      10
gem-fi   gradient_clip                      setting       1.0
gem-fi   gate_low                           setting       0.1
gem-fi   gate_high                          setting       0.9
gem-fi   batch_size/mnist                   setting      50
gem-fi   batch_size/cifar10                 setting     128
gem-fi   knn_neighbours                     setting      10
"""


def _claims(label: str, text: str) -> tuple[Published, ...]:
    words = [line.split() for line in text.strip().splitlines()]
    return tuple(
        Published(label, row, column, metric, float(mean), None, "as its table, where one has it")
        for row, column, metric, mean in words
    )


TABLES = (*_claims("abstract", _ABSTRACT), *_claims("text", _TEXT))
