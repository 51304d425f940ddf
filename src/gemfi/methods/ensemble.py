"""A deep ensemble: M softmax networks that share nothing but the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gemfi._config import check_int
from gemfi.backbones import Stack
from gemfi.belief import Belief
from gemfi.errors import InputError
from gemfi.methods.base import Batch, Head, MethodInfo, Progress
from gemfi.methods.softmax import Softmax


@dataclass(frozen=True)
class EnsembleConfig:
    """Choices of a deep ensemble.

    Attributes:
        members: M.
    """

    members: int = 5

    def __post_init__(self) -> None:
        check_int("members", self.members, 2)


class Ensemble(Head):
    """M softmax heads, each on the features of its own backbone (`Stack`), with equal weights.

    Each member is trained as a run of its own, with its own initial weights and order of the data;
    with a `run_dir` they are below it as `member-0`, `member-1`, ... and each can be resumed.
    """

    info: ClassVar[MethodInfo] = MethodInfo(
        name="ensemble",
        label="Ensemble",
        summary="softmax networks trained apart; epistemic score = their disagreement",
        paper="Simple and Scalable Predictive Uncertainty Estimation using Deep Ensembles",
        venue="NeurIPS",
        year=2017,
        epistemic="disagreement",
        passes=5,
    )
    config_class = EnsembleConfig

    def __init__(
        self, num_features: int, num_classes: int, config: EnsembleConfig | None = None
    ) -> None:
        super().__init__(num_features, num_classes, config)
        self.config: EnsembleConfig
        count = self.config.members
        if num_features % count:
            raise InputError(
                f"an ensemble of {count} needs the features of {count} backbones of one width, got "
                f"{num_features}, which {count} does not divide"
            )
        self.heads = nn.ModuleList(
            Softmax(num_features // count, num_classes) for _ in range(count)
        )

    @classmethod
    def copies(cls, config: Any) -> int:
        """One backbone a member."""
        chosen = cls.default_config() if config is None else config
        if not isinstance(chosen, EnsembleConfig):
            raise InputError(f"ensemble takes an EnsembleConfig, got {type(chosen).__name__}")
        return chosen.members

    def members(self, backbone: nn.Module) -> list[tuple[nn.Module, Head]]:
        """The networks to train one by one."""
        if not isinstance(backbone, Stack) or len(backbone.members) != len(self.heads):
            raise InputError(
                f"an ensemble of {len(self.heads)} needs that many backbones: give one by name, or "
                "Stack([...]) of your own modules"
            )
        return list(zip(backbone.members, self._heads(), strict=True))

    def notes(self) -> list[str]:
        """What the count of steps means."""
        return [f"{len(self.heads)} members trained one by one; the steps are those of one"]

    def forward(self, z: Tensor) -> Belief:
        """One component a member, without evidence."""
        logits = torch.stack(self._logits(z), dim=1)
        return Belief(
            log_p=torch.log_softmax(logits, dim=-1),
            log_weight=logits.new_full(logits.shape[:2], 1 / logits.shape[1]).log(),
            logits=logits,
        )

    def objective(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """The mean of the members' cross-entropies."""
        del at
        each = [nn.functional.cross_entropy(logits, batch.y) for logits in self._logits(batch.z)]
        return {"nll": torch.stack(each).mean()}

    def _logits(self, z: Tensor) -> list[Tensor]:
        parts = z.chunk(len(self.heads), dim=1)
        return [head.linear(part) for head, part in zip(self._heads(), parts, strict=True)]

    def _heads(self) -> list[Softmax]:
        return [head for head in self.heads if isinstance(head, Softmax)]
