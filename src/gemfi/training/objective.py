"""The loss of a method as one module, and the optimiser of its parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn

from gemfi._config import check_int
from gemfi.devices import Precision, autocast_type, device_of, move
from gemfi.methods.base import Batch, DataFacts, Progress
from gemfi.model import Model, check_width
from gemfi.outliers import OutlierConfig, scramble, synthesiser
from gemfi.processes import gathered, own_share, total
from gemfi.randomness import derived_generator
from gemfi.training.config import TrainConfig

_MOMENTUM: Final = 0.9


class Objective(nn.Module):
    """The loss of a model, for a loop of your own.

        objective = Objective(model, total_steps=epochs * len(loader))
        for x, y in loader:
            loss = objective(x, y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        model.finish(train, validation)

    Each call in training mode counts a step, by which the schedules of the method go. In several
    processes (DistributedDataParallel takes an objective as any module) each gives its share of the
    batch, and the mean of their losses is the loss of the whole batch.

    Args:
        model: what is trained.
        total_steps: how often the loss will be asked for in all of training.
        class_counts: (C,) training samples of each class, or what counts them, for a method that
            needs to know.
        outliers: what to synthesise. Defaults to `model.head.outliers`.
        precision: of the backbone; heads and losses are float32.
        compile: let `torch.compile` translate the backbone.
        seed: of the outliers.

    Attributes:
        terms: of the last loss, by name: they add up to it.
        step: how many steps there were.
        is_finite: whether the features of the last step were finite.
    """

    def __init__(
        self,
        model: Model,
        total_steps: int,
        *,
        class_counts: Tensor | Callable[[], Tensor] | None = None,
        outliers: OutlierConfig | None = None,
        precision: Precision = "fp32",
        compile: bool = False,  # noqa: A002 - torch's own name for it
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_int("total_steps", total_steps, 1)
        self.model, self.total_steps, self.seed = model, total_steps, seed
        self.precision = precision
        self.outliers = model.head.outliers if outliers is None else outliers
        self.synthesiser = synthesiser(
            self.outliers, model.head.num_classes, model.head.num_features
        )
        if self.synthesiser is not None:
            self.synthesiser.to(device_of(model))
        self._features: Any = torch.compile(model.features) if compile else model.features
        self.step = 0
        self.terms: dict[str, Tensor] = {}
        self.is_finite = torch.tensor(True)
        model.head.prepare(DataFacts(class_counts, total_steps))

    def forward(self, x: Tensor, y: Tensor, auxiliary: Tensor | None = None) -> Tensor:
        """The loss of inputs x (B, ...) with labels y (B,).

        Args:
            x: as the model takes them, on any device.
            y: classes.
            auxiliary: real outliers (M, ...), for outliers of that kind.
        """
        head, device = self.model.head, device_of(self.model)
        at = Progress(min(self.step, self.total_steps - 1), self.total_steps)
        generator = derived_generator(f"{self.seed}:{at.step}:outliers")
        weight = at.ramp(self.outliers.start, self.outliers.ramp)
        share, x, labels = own_share(), move(x, device), move(y, device)
        needs_all = share.count > 1 and not self.outliers.is_none
        every_y = gathered(labels) if needs_all else y
        extra = [] if auxiliary is None else [move(auxiliary, device)]
        scrambled = round(self.outliers.scrambled * len(every_y))
        if weight > 0 and scrambled and not self.outliers.is_none:
            made = scramble(gathered(x), every_y, scrambled, generator)
            extra += [] if made is None else [share.of(made)]
        inputs = torch.cat([x, *extra]) if extra else x
        kind = autocast_type(self.precision, device)
        with torch.autocast(device.type, kind) if kind else contextlib.nullcontext():
            z = self._features(inputs)
        check_width(z, head.num_features)
        self.is_finite = torch.isfinite(z.detach()).all()
        inside = z[: len(x)]
        outliers = [head.embed(z[len(x) :])] if extra else []
        if self.synthesiser is not None:
            embedded = gathered(head.embed(inside.detach()))
            self.synthesiser.observe(embedded, every_y)
            drawn = self.synthesiser.sample(embedded, every_y, generator) if weight > 0 else None
            outliers += [] if drawn is None else [share.of(drawn)]
        outside = torch.cat(outliers) if outliers else None
        scale = 1.0
        if share.count > 1:
            scale, weight = _shares(len(x), 0 if outside is None else len(outside), weight)
        terms = head.objective(Batch(inside, labels, outside, weight), at)
        loss = torch.stack(list(terms.values())).sum()
        self.terms = {name: scale * term.detach() for name, term in terms.items()}
        self.step += self.training
        return loss if share.count == 1 else share.count * scale * loss


def _shares(samples: int, outliers: int, weight: float) -> tuple[float, float]:
    """The part of a process in the mean over samples, and the weight of its mean over outliers."""
    counts = total(torch.tensor([samples, outliers], dtype=torch.float64))
    mine = samples / float(counts[0])
    return mine, weight * (outliers / max(float(counts[1]), 1.0)) / mine


def make_optimizer(model: Model, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimiser of a configuration, with weight decay on weight matrices alone."""
    decayed: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        matrix = name.endswith("weight") and parameter.ndim > 1
        (decayed if matrix else others).append(parameter)
    groups: list[dict[str, Any]] = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
    rate, decay = config.learning_rate, config.weight_decay
    if config.optimizer == "sgd":
        # never fused: that wants every momentum at once, and some parameters meet a loss late
        return torch.optim.SGD(groups, lr=rate, weight_decay=decay, momentum=_MOMENTUM)
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return kind(groups, lr=rate, weight_decay=decay, fused=device_of(model).type != "mps")
