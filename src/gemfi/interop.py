"""A trained model in the forms that other libraries know; none of them is needed to import this.

| library | what it gets |
|---|---|
| pytorch-ood | `OutlierDetector`: `fit`, `predict`, higher is more OOD |
| OpenOOD | `Postprocessor`: `setup`, `postprocess`, `inference`, higher confidence is more ID |
| Lightning | `lightning_module(model, ...)`, which a `Trainer` trains |
| scikit-learn, MAPIE | `gemfi.GEMClassifier`, with `predict_proba` |
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from tqdm import tqdm

from gemfi.belief import Belief
from gemfi.data.splits import AnySplit, Role, require_use
from gemfi.data.streams import parts_of
from gemfi.data.wrap import given_role
from gemfi.detectors.base import SplitLike
from gemfi.errors import InputError
from gemfi.model import Model
from gemfi.modes import evaluating
from gemfi.scores import score_of
from gemfi.training.config import TrainConfig
from gemfi.training.objective import Objective, make_optimizer

__all__ = ["OutlierDetector", "Postprocessor", "lightning_module"]


class OutlierDetector:
    """Outlier scores of inputs or of features; higher is more OOD.

    It has the methods of pytorch-ood's `Detector` and goes where such a detector goes. Nothing is
    to be fitted and nothing to be searched for: a trained model has its statistics already.

        >>> detector = OutlierDetector(model)
        >>> metrics.update(detector(x), y)

    Args:
        model: a trained model.
        score: a name in `SCORES`; None for the method's epistemic score.
    """

    requires_fit: ClassVar[bool] = False
    hyperparameter_space: ClassVar[dict[str, list[Any]]] = {}
    info: ClassVar[None] = None  # what pytorch-ood knows of its own detectors: papers and tasks

    def __init__(self, model: Model, score: str | None = None) -> None:
        if not isinstance(model, Model):
            raise InputError(f"a detector needs a gemfi Model, got {type(model).__name__}")
        self.model = model
        self.score = score or model.head.named_scores["epistemic"]

    def fit(self, *_: object, **__: object) -> Self:
        """Nothing."""
        return self

    fit_features = fit

    def predict(self, x: Tensor) -> Tensor:
        """Scores (B,) of inputs."""
        return score_of(self.model.predict(x), self.score)

    @torch.no_grad()
    def predict_features(self, z: Tensor) -> Tensor:
        """Scores (B,) of features, as `model.embed(x, taps=True)` returns them."""
        head = self.model.head
        width, taps = head.num_features + head.num_taps, "(x, taps=True)" if head.num_taps else ""
        if not isinstance(z, Tensor) or z.ndim != 2 or z.shape[1] != width:
            shape = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
            raise InputError(
                f"expected features (B, {width}) as model.embed{taps} returns them, got {shape}; "
                "predict takes inputs"
            )
        belief: Belief = evaluating(self.model.head)(z)
        return score_of(belief.to(torch.float64), self.score)

    __call__ = predict

    def to(self, device: torch.device | str) -> Self:
        """Move the model."""
        self.model.to(device)
        return self

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def get_hyperparameters(self) -> dict[str, Any]:
        """None."""
        return {}

    def set_hyperparameters(self, **values: Any) -> Self:
        """Refuse any."""
        if values:
            raise InputError(f"this detector has no hyperparameters, got {', '.join(values)}")
        return self


class Postprocessor:
    """Predictions and confidences of batches; a high confidence is more ID, as OpenOOD has it.

    The network that OpenOOD passes is the gemfi model itself, `evaluator(net=model,
    postprocessor=Postprocessor())`. Batches are mappings with `data` and `label`. Nothing of
    OpenOOD's `config` is read; `score` is as of `OutlierDetector`.
    """

    APS_mode = False  # no hyper-parameter is searched for
    hyperparam_search_done = True

    def __init__(self, config: object = None, score: str | None = None) -> None:
        self.config, self.score = config, score

    def setup(self, net: object, *_loaders: object) -> None:
        """Nothing but a look at the network: it was trained with its statistics."""
        _model(net)

    def postprocess(self, net: object, data: Tensor) -> tuple[Tensor, Tensor]:
        """Predicted classes (B,) and confidences (B,) of inputs."""
        model = _model(net)
        belief = model.predict(data)
        name = self.score or model.head.named_scores["epistemic"]
        return belief.labels(), -score_of(belief, name)

    def inference(
        self, net: object, data_loader: Iterable[Mapping[str, Any]], progress: bool = True
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
        """Predictions, confidences and labels of everything that a loader holds."""
        batches = [
            (*self.postprocess(net, batch["data"]), torch.as_tensor(batch["label"]))
            for batch in tqdm(data_loader, disable=not progress, leave=False)
        ]
        if not batches:
            raise InputError("the loader holds no batch")
        predicted, confidence, label = (
            torch.cat(column).cpu().numpy() for column in zip(*batches, strict=True)
        )
        return predicted.astype(np.int64), confidence, label.astype(np.int64)


def _model(net: object) -> Model:
    inner = getattr(net, "module", net)  # of DataParallel
    if not isinstance(inner, Model):
        raise InputError(
            f"the network must be a trained gemfi Model, got {type(net).__name__}: attach one with "
            "gemfi.attach"
        )
    return inner


def lightning_module(
    model: Model,
    train: SplitLike,
    validation: SplitLike | None = None,
    config: TrainConfig = TrainConfig(),  # noqa: B008 - frozen
) -> Any:
    """A `LightningModule` that trains a model as `gemfi.fit` does.

    The optimiser, the learning rate and the gradient norm are those of `config`, the number of
    epochs is the trainer's. Statistics are fitted when training ends, after which `module.model`
    is ready to be asked. Batches come from the trainer's loaders, as pairs (x, y) or mappings.

        >>> module = lightning_module(model, train_loader, validation_loader)
        >>> Trainer(max_epochs=20).fit(module, train_loader, validation_loader)
        >>> module.model.predict(x)

    Args:
        model: as `build_model` made it; an ensemble is trained with `gemfi.fit` instead.
        train: role train, for the statistics; a data set or a loader is taken for that.
        validation: likewise role validation, for the scaling of ρ.
        config: optimiser, learning rate, schedule and seed.
    """
    train, validation = given_role(train, Role.TRAIN), given_role(validation, Role.VALIDATION)
    require_use(train, "training")
    if validation is not None:
        require_use(validation, "selection")
    if model.members():
        raise InputError(
            f"{model.head.info.name} trains its members one by one: use gemfi.fit for it"
        )
    kind = type("GemfiModule", (_Training, _lightning_base()), {})
    return kind(model, train, validation, config)


class _Training:
    """What Lightning calls; mixed with its own module, which is there where it is installed."""

    trainer: Any
    global_step: int
    log: Any
    log_dict: Any

    def __init__(
        self, model: Model, train: AnySplit, validation: AnySplit | None, config: TrainConfig
    ) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.train_split, self.validation_split = train, validation
        self.objective: Objective | None = None
        self.notes: list[str] = []

    def forward(self, x: Tensor) -> Any:
        """As the model."""
        return self.model(x)

    def on_fit_start(self) -> None:
        """Tell the head what it may know of the data."""
        self.objective = Objective(
            self.model,
            int(self.trainer.estimated_stepping_batches),
            class_counts=lambda: self.train_split.class_counts,
            seed=self.config.seed,
        )

    def training_step(self, batch: Any, _index: int) -> Tensor:
        """The sum of the loss terms."""
        assert self.objective is not None  # noqa: S101 - made when the fit began
        x, y, _ = parts_of(batch, "a batch of the trainer")
        loss: Tensor = self.objective(x, y)
        self.log_dict({f"train_{name}": term for name, term in self.objective.terms.items()})
        self.log("train_loss", loss.detach(), prog_bar=True)
        return loss

    def validation_step(self, batch: Any, _index: int) -> None:
        """NLL, and accuracy in percent."""
        x, y, _ = parts_of(batch, "a batch of the trainer")
        log_p = self.model(x).log_probs()
        self.log("val_nll", -log_p.gather(1, y.unsqueeze(1)).mean(), prog_bar=True)
        right = (log_p.argmax(dim=1) == y).float().mean()
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
        self.notes = self.model.finish(self.train_split, self.validation_split)


def _lightning_base() -> type:
    """`LightningModule` of whichever of its two packages is installed."""
    for name in ("lightning", "pytorch_lightning"):
        try:
            return importlib.import_module(name).LightningModule  # type: ignore[no-any-return]
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
    raise InputError("this needs Lightning: pip install lightning")
