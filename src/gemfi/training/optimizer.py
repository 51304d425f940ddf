"""The optimiser of a training configuration."""

from __future__ import annotations

from typing import Any

import torch

from gemfi.model import Model
from gemfi.training.config import TrainConfig

_MOMENTUM = 0.9


def make_optimizer(model: Model, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimiser of a configuration, with weight decay on weight matrices alone."""
    named = list(model.named_parameters())
    decayed = [p for name, p in named if name.endswith("weight") and p.ndim > 1]
    others = [p for name, p in named if not (name.endswith("weight") and p.ndim > 1)]
    groups: list[dict[str, Any]] = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
    rate, decay = config.learning_rate, config.weight_decay
    if config.optimizer == "sgd":
        # never fused: that wants every momentum at once, and some parameters meet a loss late
        return torch.optim.SGD(groups, lr=rate, weight_decay=decay, momentum=_MOMENTUM)
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return kind(groups, lr=rate, weight_decay=decay, fused=True)


def state_names(optimizer: torch.optim.Optimizer) -> set[str]:
    """What an optimiser of `make_optimizer` keeps of each parameter that has met a gradient."""
    if isinstance(optimizer, torch.optim.SGD):
        return {"momentum_buffer"}
    return {"step", "exp_avg", "exp_avg_sq"}
