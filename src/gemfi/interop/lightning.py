"""A model as a Lightning module, where Lightning is installed."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from gemfi.data import Split
from gemfi.data.splits import require_use
from gemfi.errors import InputError
from gemfi.methods.base import DataFacts, Progress
from gemfi.model import Model
from gemfi.training.config import TrainConfig
from gemfi.training.features import FeatureBatches
from gemfi.training.objective import Objective, make_optimizer


def lightning_module(
    model: Model,
    train: Split,
    validation: Split | None = None,
    config: TrainConfig = TrainConfig(),  # noqa: B008 - frozen
) -> Any:
    """A `LightningModule` that trains a model as `gemfi.fit` does.

    The optimiser, the learning rate and the gradient norm are those of `config`, the number of
    epochs is the trainer's. Statistics are fitted when training ends, after which `module.model`
    is ready to be asked. Data come from the trainer's loaders of (x, y) pairs.

        >>> module = lightning_module(model, task.train, task.validation)
        >>> Trainer(max_epochs=20).fit(module, DataLoader(...), DataLoader(...))
        >>> module.model.predict(x)

    Args:
        model: as `build_model` made it; an ensemble is trained with `gemfi.fit` instead.
        train: role train, for the class counts and the statistics.
        validation: role validation, for the scaling of ρ.
        config: optimiser, learning rate, schedule and seed.
    """
    require_use(train, "training")
    if validation is not None:
        require_use(validation, "selection")
    if model.members():
        raise InputError(
            f"{model.head.info.name} trains its members one by one: use gemfi.fit for it"
        )
    kind = type("GemfiModule", (_Training, _base()), {})
    return kind(model, train, validation, config)


class _Training:
    """What Lightning calls; mixed with its own module, which is known only where it is installed.

    Args:
        model: what is trained.
        train: for class counts and statistics.
        validation: for statistics.
        config: how to train.
    """

    trainer: Any
    global_step: int
    log: Any
    log_dict: Any

    def __init__(
        self, model: Model, train: Split, validation: Split | None, config: TrainConfig
    ) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.train_split, self.validation_split = train, validation
        self.objective = Objective(model)
        self.generator = torch.Generator().manual_seed(config.seed + 1)
        self.steps = 0
        self.notes: list[str] = []

    def forward(self, x: Tensor) -> Any:
        """As the model."""
        return self.model(x)

    def on_fit_start(self) -> None:
        """Tell the head what it may know of the data."""
        train = self.train_split
        self.steps = int(self.trainer.estimated_stepping_batches)
        self.model.inputs = self.model.inputs.trained_on(train)
        self.model.head.prepare(DataFacts(train.class_counts, self.steps))

    def training_step(self, batch: tuple[Tensor, Tensor], _index: int) -> Tensor:
        """The sum of the loss terms."""
        at = Progress(min(self.global_step, self.steps - 1), self.steps)
        terms = self.objective(batch[0], batch[1], None, at, self.generator)
        loss = torch.stack(list(terms.values())).sum()
        self.log_dict({f"train_{name}": term.detach() for name, term in terms.items()})
        self.log("train_loss", loss.detach(), prog_bar=True)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], _index: int) -> None:
        """NLL, and accuracy in percent."""
        log_p = self.model(batch[0]).log_probs()
        self.log("val_nll", -log_p.gather(1, batch[1].unsqueeze(1)).mean(), prog_bar=True)
        right = (log_p.argmax(dim=1) == batch[1]).float().mean()
        self.log("val_accuracy", 100 * right, prog_bar=True)

    def configure_optimizers(self) -> Any:
        """The optimiser of the configuration, its rate a function of the share of training."""
        config, steps = self.config, int(self.trainer.estimated_stepping_batches)
        optimizer = make_optimizer(self.model, config)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: config.rate(min(step, steps) / steps) / config.learning_rate
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def configure_gradient_clipping(self, *_: Any, **__: Any) -> None:
        """The largest norm of the configuration."""
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)

    def on_train_end(self) -> None:
        """Fit the statistics."""
        self.model.eval()
        seen = self.validation_split
        with torch.no_grad():
            fitted = self.model.head.fit_statistics(
                FeatureBatches(self.model, self.train_split),
                None if seen is None else FeatureBatches(self.model, seen),
            )
        self.notes = [*self.model.head.notes(), *fitted]


def _base() -> type:
    """`LightningModule` of whichever of its two packages is installed."""
    for name in ("lightning", "pytorch_lightning"):
        try:
            return importlib.import_module(name).LightningModule  # type: ignore[no-any-return]
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
    raise InputError("this needs Lightning: pip install lightning")
