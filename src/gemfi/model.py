"""Model = backbone + head, and how to build and ask one."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, Self

import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset

from gemfi.backbones import Blueprint, Stack, cannot_learn, find_backbone, parameters, tokens_of
from gemfi.belief import Belief
from gemfi.data.inputs import InputSpec
from gemfi.data.normalisation import (
    Normalisation,
    check_channels,
    is_on_another_scale,
    standardised,
)
from gemfi.data.splits import ALONE, OOD_ROLES, AnySplit, Role, Share, Split, require_use
from gemfi.data.tensors import as_tensor
from gemfi.data.wrap import as_split, given_role, is_data_set
from gemfi.devices import CPU, device_of, move, place
from gemfi.errors import GemfiWarning, InputError, NoAnswerError, user_level
from gemfi.finish import finish
from gemfi.methods import Head, method
from gemfi.modes import evaluating
from gemfi.processes import shared_out
from gemfi.spectral import SOFT

_ANOTHER_SCALE: Final = (
    "these inputs look like they are on another scale than the training data: did they skip a "
    "preprocessing step? Behind a Pipeline, ask with pipeline[:-1].transform(X), or give "
    "GEMClassifier a preprocessor=, which X then always goes through"
)

Inputs = Tensor | npt.NDArray[Any] | AnySplit | Dataset[Any] | DataLoader[Any]
"""A tensor, an array, a split, a data set or a loader (labels that it has are not looked at)."""


class Model(nn.Module):
    """A backbone that maps inputs to features (B, D), and a head that maps them to a belief.

    `model(x)` is one forward pass. `model.predict(x)` does batches, checks its input, and returns
    a float64 belief for the scores:

        >>> model = build_model("gem-fi", "mlp", num_classes=3, in_features=4)
        >>> model.predict(torch.randn(5, 4)).probs().shape
        torch.Size([5, 3])

    Args:
        backbone: any module that returns (B, D). One with an attribute `tokens` (`Tokens`) takes
            the ids of texts, (B, L). One whose weights ask for no gradients stays in evaluation
            mode.
        head: of a method.
        normalisation: of the inputs; it becomes the buffers `input_mean` and `input_std`, (C,).

    Attributes:
        inputs: what is known of the inputs and classes; `fit` and `load` fill it in.
        log_temperature: log T of the probabilities, a buffer; None for none. See `set_temperature`.
        blueprint: of a backbone that was given by its name.
    """

    input_mean: Tensor | None
    input_std: Tensor | None
    log_temperature: Tensor | None

    def __init__(
        self, backbone: nn.Module, head: Head, normalisation: Normalisation | None = None
    ) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head
        self.tokens = tokens_of(backbone)
        self.inputs = InputSpec()
        mean, std = _tensors(normalisation) or (None, None)
        self.register_buffer("input_mean", mean)
        self.register_buffer("input_std", std)
        self.register_buffer("log_temperature", None)
        self.blueprint: Blueprint | None = None

    def set_temperature(self, log_temperature: Tensor | float | None) -> None:
        """Let every belief of this model have a temperature.

        Args:
            log_temperature: log T, as `fit_temperature` returns it; None for none.
        """
        if log_temperature is not None:
            like = next(self.parameters(), torch.zeros(()))
            value = torch.as_tensor(log_temperature, dtype=like.dtype, device=like.device)
            if value.ndim or not bool(torch.isfinite(value)):
                raise InputError(f"log_temperature must be a finite number, got {log_temperature}")
            log_temperature = value.clone()
        self.log_temperature = log_temperature

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *more: Any) -> None:
        """Make room for a normalisation and a temperature that the state has and this has not."""
        for name in ("input_mean", "input_std", "log_temperature"):
            value = state.get(prefix + name)
            if value is not None and getattr(self, name) is None:
                like = next(self.parameters(), value)
                setattr(self, name, torch.empty_like(value, device=like.device))
        super()._load_from_state_dict(state, prefix, *more)

    def train(self, mode: bool = True) -> Self:
        """Like `nn.Module.train`, but keeps a backbone that cannot learn in evaluation mode."""
        super().train(mode)
        if mode and cannot_learn(self.backbone):
            self.backbone.eval()
        return self

    def features(self, x: Tensor) -> Tensor:
        """Features z (B, D), in float32 under autocast too; in evaluation with the head's taps.

        Images of uint8 are scaled to [0, 1]; then the normalisation, if there is one, is applied.
        """
        x = scaled(x)
        if self.input_mean is not None and self.input_std is not None:
            x = standardised(x, self.input_mean, self.input_std)
        more = {"taps": True} if self.head.num_taps and not self.training else {}
        z: Tensor = self.backbone(x, **more)
        return z.float() if z.dtype in (torch.bfloat16, torch.float16) else z

    def check_channels(self, x: Tensor) -> None:
        """Refuse inputs (B, ...) that the normalisation, where there is one, is not for."""
        if self.input_mean is not None:
            check_channels(x, len(self.input_mean))

    def members(self) -> list[Model]:
        """The models that are trained one by one, sharing their parameters with this one."""
        members = [Model(*parts) for parts in self.head.members(self.backbone)]
        for member in members:
            member.input_mean, member.input_std = self.input_mean, self.input_std
        return members

    def forward(self, x: Tensor) -> Belief:
        """One pass: inputs to a belief."""
        return self._believe(self.features(x))

    def _believe(self, z: Tensor) -> Belief:
        belief: Belief = self.head(z)
        if self.log_temperature is None:
            return belief
        before = belief.log_temperature
        total = self.log_temperature if before is None else before + self.log_temperature
        return replace(belief, log_temperature=total)

    def predict(
        self, x: Inputs, batch_size: int = 512, *, device: str | torch.device | None = None
    ) -> Belief:
        """The belief on any number of inputs, in evaluation mode, as float64 on the CPU.

        The modes and buffers of the model stay as they are, so that threads may share it.

        Args:
            x: (N, ...) inputs with N ≥ 1: a tensor, an array, a split, a data set or a loader.
            batch_size: how many at a time; a loader has its own.
            device: where to compute, and where the model is afterwards: `auto`, or a name such as
                `cuda`. Defaults to where it is.
        """
        place(self, device)
        return Belief.cat([belief for belief, _ in self.beliefs(x, batch_size)])

    def beliefs(self, x: Inputs, batch_size: int = 512) -> Iterator[tuple[Belief, Tensor | None]]:
        """What `predict` returns, batch by batch, and the labels (B,) where the data have any.

        Args:
            x: as of `predict`.
            batch_size: likewise.
        """
        model = evaluating(self)

        def work(share: Share) -> Iterator[tuple[Belief, Tensor | None]]:
            for first, batch, y in model.batches(x, batch_size, share):
                with torch.no_grad():
                    _, belief = model.ask(batch, first)
                yield belief, None if y is None else y.cpu()

        yield from shared_out(work)
        self.warn_of_scale(x)

    @torch.no_grad()
    def embed(self, x: Inputs, batch_size: int = 512, *, taps: bool = False) -> Tensor:
        """Features (N, D) of any number of inputs, in evaluation mode, on the CPU.

        With `taps`, those that the head takes come after them.
        """
        model = evaluating(self)
        width = None if taps else self.head.num_features
        parts = (model._embed(x, n) for n, x, _ in model.batches(x, batch_size))
        return torch.cat([z[:, :width].cpu() for z in parts])

    def passes(self, x: Inputs, batch_size: int = 512) -> Iterator[tuple[Tensor, Belief]]:
        """Features and float64 beliefs on the CPU, batch by batch, in the mode of the model."""
        for first, batch, _ in self.batches(x, batch_size):
            yield self.ask(batch, first)

    def ask(self, x: Tensor, first: int = 0) -> tuple[Tensor, Belief]:
        """Checked features and belief of one batch, on the CPU, in the mode of the model.

        Args:
            x: (B, ...) inputs.
            first: the number of its first input, for messages.
        """
        z = self._embed(x, first)
        belief = self._believe(z).to(CPU)
        _check_belief(belief, first)
        return z[:, : self.head.num_features].cpu(), belief.to(torch.float64)

    def finish(self, train: Any, validation: Any = None) -> list[str]:
        """Fit densities, scales and the like when a loop of your own has trained the weights.

        `fit` does it by itself. The model is in evaluation mode afterwards, and can be asked, saved
        and exported. Returns notes.

        Args:
            train: the training data: a split of that role, a data set or a loader.
            validation: validation data, for the scales; without it they come from training data.
        """
        train, validation = given_role(train, Role.TRAIN), given_role(validation, Role.VALIDATION)
        require_use(train, "statistics")
        if validation is not None:
            require_use(validation, "density scaling")
        self.inputs = self.inputs.trained_on(train)
        return [*self.head.notes(), *finish(self, train, validation)]

    def require_finished(self, what: str) -> None:
        """Refuse a model whose weights alone are trained.

        Args:
            what: that wants more of it, for the message.
        """
        if not self.head.is_finished:
            raise InputError(
                f"{what} needs a finished model, and the densities of this {self.head.info.name} "
                "are not fitted: after a loop of your own, call model.finish(train, validation)"
            )

    def batches(
        self, inputs: Inputs, batch_size: int = 512, share: Share = ALONE
    ) -> Iterator[tuple[int, Tensor, Tensor | None]]:
        """The number of the first input, checked inputs, and labels where there are any.

        Args:
            inputs: as `predict` takes them.
            batch_size: how many at a time.
            share: of p processes each gets every p-th batch.
        """
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}")
        if is_data_set(inputs):
            tokens = self.tokens is not None
            inputs = as_split(inputs, role=Role.OOD_TEST, name="inputs", tokens=tokens)
        if isinstance(inputs, AnySplit) and not isinstance(inputs, Split):
            size = inputs.batch_size or batch_size
            for number, (x, y) in enumerate(inputs.walk(size, share)):
                yield (share.rank + share.count * number) * size, self._checked(x), y
            return
        labels = inputs.y if isinstance(inputs, Split) else None
        x = self._checked(inputs.x if isinstance(inputs, Split) else inputs)
        for first in range(share.rank * batch_size, len(x), share.count * batch_size):
            rows = slice(first, first + batch_size)
            yield first, x[rows], None if labels is None else labels[rows]

    def _embed(self, x: Tensor, first: int) -> Tensor:
        """Checked features of a checked batch, on the model's device."""
        z = self.features(move(x, device_of(self)))
        check_width(z, self.head.num_features + self.head.num_taps)
        _refuse_rows(~torch.isfinite(z).all(dim=1), first, "the features of")
        return z

    def _checked(self, inputs: Any) -> Tensor:
        """Inputs as a tensor that the backbone can take."""
        x = as_tensor(inputs, "x")
        if x.ndim < 1 or len(x) == 0:
            raise InputError(f"expected at least one input, got shape {tuple(x.shape)}")
        if self.tokens is not None:
            return self.tokens.checked(x)  # of any length
        self.inputs.check_samples(x)
        if x.dtype == torch.uint8:
            return x
        parameter = next(self.parameters(), None)
        return x if parameter is None else x.to(parameter.dtype)

    def warn_of_scale(self, inputs: Inputs) -> None:
        """Warn where rows have probably skipped a preprocessing step."""
        mean, std = self.input_mean, self.input_std
        if mean is None or std is None or is_data_set(inputs):
            return
        if isinstance(inputs, AnySplit):
            if inputs.role in OOD_ROLES:
                return  # on another scale, maybe, and meant so
            inputs = inputs.first(len(inputs)) if isinstance(inputs, Split) else inputs.first(32)
        x = as_tensor(inputs, "x")
        if x.ndim == 2 and is_on_another_scale(x.to(mean), mean, std):
            warnings.warn(_ANOTHER_SCALE, GemfiWarning, stacklevel=user_level())


def scaled(x: Tensor) -> Tensor:
    """Images of uint8 as float32 in [0, 1]; anything else as it is."""
    return x.float() / 255 if x.dtype == torch.uint8 else x


def _tensors(normalisation: Normalisation | None) -> tuple[Tensor, Tensor] | None:
    if normalisation is not None and not isinstance(normalisation, Normalisation):
        raise InputError(
            f"normalisation must be a Normalisation, got {type(normalisation).__name__}; write "
            "Normalisation(mean, std) or Normalisation.of(split)"
        )
    return None if normalisation is None else normalisation.tensors()


def check_width(z: Tensor, num_features: int) -> None:
    """Refuse features of another shape than (B, num_features)."""
    if z.ndim != 2 or z.shape[1] != num_features:
        raise InputError(
            f"the backbone must return (B, {num_features}) features, got {tuple(z.shape)}: were "
            "the inputs of the shape that it was built for?"
        )


def _check_belief(belief: Belief, start: int) -> None:
    """Refuse probabilities that are not finite, and NaN anywhere; an infinite score has a rank."""
    values = pytree.tree_leaves(belief)
    if belief.log_temperature is not None:
        values.append(torch.exp(-belief.log_temperature))
    if all(math.isfinite(value.detach().sum()) for value in values):
        return  # the sums are cheap, and no value can hide in them
    bad = ~torch.isfinite(belief.to(torch.float64).probs()).all(dim=1)
    for value in values:
        if value.ndim:  # a scalar is the same for all
            bad |= value.isnan().reshape(len(bad), -1).any(dim=1)
    _refuse_rows(bad, start, "the outputs of the head on")


def _refuse_rows(bad: Tensor, start: int, what: str) -> None:
    """Raise an error on the first of the bad rows (B,), which are counted from `start`."""
    if bool(bad.any()):
        row = start + int(bad.nonzero()[0])
        raise NoAnswerError(
            f"{what} input {row} are not finite: look for NaN, infinite or huge values in the "
            "input or in the weights",
            row,
        )


def build_model(
    method_name: str,
    backbone: str | nn.Module,
    num_classes: int,
    *,
    config: Any = None,
    num_features: int | None = None,
    example: Tensor | None = None,
    normalisation: Normalisation | None = None,
    **options: Any,
) -> Model:
    """A model from the name of a method and a backbone.

    Args:
        method_name: a name in `METHODS`.
        backbone: a name in `BACKBONES`, or any module that returns (B, D). For an ensemble, copies
            of a module begin with its weights and differ by their heads and the order of the data;
            `Stack([...])` holds members of your own.
        num_classes: C, at least 2.
        config: the method's configuration; None for its default.
        num_features: D of a module without a `num_features` attribute.
        example: or a batch of inputs, to find D by a trial pass.
        normalisation: of the inputs, such as `Normalisation.of(task.train)`; None for none.
        options: for a backbone given by name, its arguments. With `PaperConfig(sn=True)` it is
            spectrally normalised (`SOFT`), if it can be, unless `spectral` is given; a module of
            your own is used as it is.
    """
    blueprint = None
    head_class = method(method_name)
    copies = head_class.copies(config)
    if isinstance(backbone, str):
        maker = find_backbone(backbone)
        if getattr(config, "sn", False) and "spectral" in parameters(backbone):
            options.setdefault("spectral", SOFT)
        made = [maker(**options) for _ in range(copies)]
        blueprint = Blueprint(backbone, options)
        backbone = made[0] if copies == 1 else Stack(made)
    elif options:
        raise InputError(
            f"options {', '.join(options)} are for a backbone given by name, not for a module"
        )
    if num_features is None:
        num_features = _find_width(backbone, example, normalisation)
    if copies > 1 and not isinstance(backbone, Stack):
        backbone = Stack([copy.deepcopy(backbone) for _ in range(copies)], num_features)
        num_features = backbone.num_features
    config = _with_taps(head_class.default_config() if config is None else config, backbone)
    model = Model(backbone, head_class(num_features, num_classes, config), normalisation)
    model.blueprint = blueprint
    return model


def _with_taps(config: Any, backbone: nn.Module) -> Any:
    """The configuration with as many taps as the backbone has, where it wants them."""
    if getattr(config, "density_space", None) != "layers":
        return config
    return replace(config, taps=getattr(backbone, "num_taps", 0))


def _find_width(
    backbone: nn.Module, example: Tensor | None, normalisation: Normalisation | None
) -> int:
    width = getattr(backbone, "num_features", None)
    if isinstance(width, int):
        return width
    if example is None:
        raise InputError(
            f"{type(backbone).__name__} has no `num_features`: give num_features=D or "
            "example=<a batch of inputs>"
        )
    return trial_width(backbone, example, normalisation)


def trial_width(backbone: nn.Module, example: Tensor, normalisation: Normalisation | None) -> int:
    """D by a pass of a batch of inputs, in evaluation mode."""
    x, tensors, tokens = scaled(example), _tensors(normalisation), tokens_of(backbone)
    if tokens is not None:
        x = tokens.checked(x)
    if tensors is not None:
        x = standardised(x, *tensors)
    with torch.no_grad():
        z = evaluating(backbone)(x)
    if not isinstance(z, Tensor) or z.ndim != 2:
        shape = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise InputError(f"a backbone must return (B, D) features, got {shape}")
    return z.shape[1]
