"""How good a model is on validation data, at the end of an epoch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gemfi import metrics
from gemfi.data import Split
from gemfi.model import Model


def judge(model: Model, split: Split, weight: Tensor | None) -> dict[str, Any]:
    """NLL and accuracy in percent and, of a mixture, the mean weights of its heads.

    Args:
        model: to ask.
        split: validation data.
        weight: (N,) of its rows in NLL and accuracy; None where all count alike.
    """
    belief = model.predict(split.x)
    log_p, labels = belief.log_probs(), split.labels
    if weight is None:
        nll, accuracy = metrics.nll(log_p, labels), metrics.accuracy(log_p.exp(), labels)
    else:
        share, of_label = weight / weight.sum(), log_p[torch.arange(len(labels)), labels]
        nll = -float((share * of_label)[share > 0].sum())  # 0·(−inf) is none
        accuracy = 100.0 * float(share @ (log_p.argmax(dim=1) == labels).double())
    found: dict[str, Any] = {"validation_nll": nll, "validation_accuracy": accuracy}
    if belief.log_weight.shape[1] > 1:  # one look at the same inputs an epoch
        found["router"] = belief.log_weight.exp().mean(dim=0).tolist()
    return found
