"""What `fit` refuses before it does anything: roles, shapes, labels, devices, outliers."""

from __future__ import annotations

import torch

from gemfi.data import Split, require_classes, require_use
from gemfi.errors import InputError
from gemfi.model import Model
from gemfi.modes import evaluating
from gemfi.outliers import OutlierConfig
from gemfi.training.config import TrainConfig


def check_run(
    model: Model,
    train: Split,
    validation: Split | None,
    auxiliary: Split | None,
    config: TrainConfig,
) -> None:
    """Raise an error that says what is wrong with the data of a run, if anything is."""
    require_classes(require_use(train, "training"))
    if validation is not None:
        require_use(validation, "selection")
    if auxiliary is not None:
        require_use(auxiliary, "auxiliary outliers")
    if config.select == "best" and validation is None:
        raise InputError('select="best" needs validation data; give a split of role validation')
    given = [split for split in (train, validation, auxiliary) if split is not None]
    for split in given:
        _check_alike(train, split)
        _check_tokens(model, split)
        if split is not auxiliary:
            _check_labels(model, split)
    if any(each.is_inference() for each in model.parameters()):
        raise InputError(
            "the model was built under torch.inference_mode(), so that it cannot learn: build it "
            "outside"
        )
    model.check_channels(train.x)
    _check_augmentation(train, config)
    _check_device(model, given)
    _check_pass(model, train)


def check_outliers(model: Model, outliers: OutlierConfig, auxiliary: Split | None) -> None:
    """Refuse outliers that the method has no use for, and an auxiliary split that has no use."""
    head = model.head
    if not outliers.is_none and not head.takes_outliers:
        raise InputError(f"{head.info.name} has no loss term on outliers: leave outliers= out")
    wants = outliers.kind == "auxiliary"
    if wants and auxiliary is None:
        raise InputError(
            'outliers of kind "auxiliary" need a split of role auxiliary: give auxiliary='
        )
    if auxiliary is not None and not wants:
        raise InputError(
            "an auxiliary split was given, but the outliers are of kind "
            f"{outliers.kind!r}; set outliers=OutlierConfig(kind='auxiliary')"
        )


def _check_alike(train: Split, split: Split) -> None:
    mine, theirs = (train.x.shape[1:], train.x.dtype), (split.x.shape[1:], split.x.dtype)
    if mine != theirs:
        raise InputError(
            f"split {split.name!r} ({split.role}) has samples {tuple(theirs[0])} {theirs[1]}, but "
            f"{train.name!r} has {tuple(mine[0])} {mine[1]}; all splits of a run must agree"
        )


def _check_tokens(model: Model, split: Split) -> None:
    """Texts go to a backbone that takes them, and nothing else does."""
    if split.tokens and model.tokens is None:
        raise InputError(
            f"split {split.name!r} ({split.role}) holds token ids, but this backbone takes "
            "numbers: attach to a model of texts, or give the backbone an attribute `tokens` of "
            "the kind Tokens(vocabulary, pad)"
        )
    if model.tokens is None:
        return
    if not split.tokens:
        raise InputError(
            f"split {split.name!r} ({split.role}) holds {split.x.dtype} samples, but this backbone "
            "takes token ids: make it with Split(..., tokens=True)"
        )
    try:
        model.tokens.checked(split.x)
    except InputError as error:
        raise InputError(f"split {split.name!r} ({split.role}): {error}") from None


def _check_labels(model: Model, split: Split) -> None:
    largest, classes = int(split.labels.max()), model.head.num_classes
    if largest >= classes:
        raise InputError(
            f"split {split.name!r} ({split.role}) has label {largest}, but the model has classes 0 "
            f"to {classes - 1}: count labels from 0, or build the model with more classes"
        )


def _check_augmentation(train: Split, config: TrainConfig) -> None:
    if config.augmentation.is_nothing:
        return
    try:
        config.augmentation.check_images(train.x)
    except InputError as error:
        raise InputError(
            f"split {train.name!r} ({train.role}) cannot be augmented: {error}; leave the "
            "augmentation of TrainConfig out (--augmentation none), or choose another"
        ) from None


def _check_pass(model: Model, train: Split) -> None:
    """Two samples through the backbone: options that do not fit them are found here."""
    try:
        with torch.no_grad():
            evaluating(model).features(train.x[:2])
    except (RuntimeError, ValueError) as error:  # an InputError is one
        raise InputError(
            f"the backbone cannot take the samples {tuple(train.x.shape[1:])} of split "
            f"{train.name!r} ({train.role}): {str(error).splitlines()[0]}; build it for them "
            "(--backbone-options such as in_features, in_channels and size follow from the data)"
        ) from error


def _check_device(model: Model, splits: list[Split]) -> None:
    devices = {p.device.type for p in model.parameters()} | {s.x.device.type for s in splits}
    if devices - {"cpu"}:
        raise InputError(
            f"training runs on the CPU so far, got tensors on {', '.join(sorted(devices))}"
        )
