"""What `fit` refuses before it does anything: roles, shapes, labels, devices, outliers."""

from __future__ import annotations

from dataclasses import replace

import torch

from gemfi.backbones import is_frozen
from gemfi.data import require_classes, require_use
from gemfi.data.splits import AnySplit, Split
from gemfi.devices import device_of, move
from gemfi.errors import InputError
from gemfi.model import Model
from gemfi.modes import evaluating
from gemfi.outliers import OutlierConfig
from gemfi.training.config import TrainConfig


def check_run(
    model: Model,
    train: AnySplit,
    validation: AnySplit | None,
    auxiliary: AnySplit | None,
    config: TrainConfig,
) -> None:
    """Raise an error that says what is wrong with the data of a run, if anything is."""
    require_use(train, "training")
    if isinstance(train, Split):
        require_classes(train)
    if validation is not None:
        require_use(validation, "selection")
    if auxiliary is not None:
        require_use(auxiliary, "auxiliary outliers")
    if config.select == "best" and validation is None:
        raise InputError('select="best" needs validation data; give a split of role validation')
    splits = [split for split in (train, validation, auxiliary) if split is not None]
    for split in splits:
        _check_alike(train, split)
        _check_tokens(model, split)
        if split is not auxiliary:
            _check_labels(model, split)
    if any(parameter.is_inference() for parameter in model.parameters()):
        raise InputError(
            "the model was built under torch.inference_mode(), so that it cannot learn: build it "
            "outside"
        )
    model.check_channels(train.first(2))
    _check_augmentation(train, config)
    _check_pass(model, train)


def usable_outliers(
    model: Model, outliers: OutlierConfig, auxiliary: AnySplit | None
) -> tuple[OutlierConfig, list[str]]:
    """Outliers that can be made for this model, and notes on what was left out.

    Scrambled inputs teach a backbone, and one that is frozen learns nothing; of texts, a mixture of
    the words of two is no text, and may well be familiar.
    """
    notes: list[str] = []
    why = "the backbone is frozen" if is_frozen(model.backbone) else ""
    why = why or ("the inputs are token ids" if model.tokens is not None else "")
    if why and not outliers.is_none and outliers.scrambled != 0:
        if outliers.kind == "scrambled":
            raise InputError(
                f"outliers of kind 'scrambled' are scrambled inputs, and {why}: choose a kind that "
                "is made of features, such as OutlierConfig(kind='halo')"
            )
        notes.append(
            f"no scrambled inputs among the outliers: {why}; those of kind {outliers.kind} stay"
        )
        outliers = replace(outliers, scrambled=0.0)
    if not outliers.is_none and not model.head.takes_outliers:
        name = model.head.info.name
        raise InputError(f"{name} has no loss term on outliers: leave outliers= out")
    wants_auxiliary = outliers.kind == "auxiliary"
    if wants_auxiliary and auxiliary is None:
        raise InputError(
            'outliers of kind "auxiliary" need a split of role auxiliary: give auxiliary='
        )
    if auxiliary is not None and not wants_auxiliary:
        raise InputError(
            "an auxiliary split was given, but the outliers are of kind "
            f"{outliers.kind!r}; set outliers=OutlierConfig(kind='auxiliary')"
        )
    return outliers, notes


def _check_alike(train: AnySplit, split: AnySplit) -> None:
    mine, theirs = ((x.shape[1:], x.dtype) for x in (train.first(1), split.first(1)))
    if mine != theirs and not (train.tokens and split.tokens):
        raise InputError(
            f"split {split.name!r} ({split.role}) has samples {tuple(theirs[0])} {theirs[1]}, but "
            f"{train.name!r} has {tuple(mine[0])} {mine[1]}; all splits of a run must agree"
        )


def _check_tokens(model: Model, split: AnySplit) -> None:
    """Texts go to a backbone that takes them, and nothing else does."""
    if model.tokens is None:
        if split.tokens:
            raise InputError(
                f"split {split.name!r} ({split.role}) holds token ids, but this backbone takes "
                "numbers: attach to a model of texts, or give the backbone an attribute `tokens` "
                "of the kind Tokens(vocabulary, pad)"
            )
        return
    if not split.tokens:
        raise InputError(
            f"split {split.name!r} ({split.role}) holds {split.first(1).dtype} samples, but this "
            "backbone takes token ids: make it with Split(..., tokens=True)"
        )
    try:
        model.tokens.checked(split.first(32))
    except InputError as error:
        raise InputError(f"split {split.name!r} ({split.role}): {error}") from None


def _check_labels(model: Model, split: AnySplit) -> None:
    if not isinstance(split, Split):
        return  # each batch is looked at when it is read
    largest, classes = int(split.labels.max()), model.head.num_classes
    if largest >= classes:
        raise InputError(
            f"split {split.name!r} ({split.role}) has label {largest}, but the model has classes 0 "
            f"to {classes - 1}: count labels from 0, or build the model with more classes"
        )


def _check_augmentation(train: AnySplit, config: TrainConfig) -> None:
    if config.augmentation.is_nothing:
        return
    try:
        config.augmentation.check_images(train.first(2))
    except InputError as error:
        raise InputError(
            f"split {train.name!r} ({train.role}) cannot be augmented: {error}; leave the "
            "augmentation of TrainConfig out (--augmentation none), or choose another"
        ) from None


def _check_pass(model: Model, train: AnySplit) -> None:
    """Two samples through the backbone: options that do not fit them are found here."""
    try:
        with torch.no_grad():
            evaluating(model).features(move(train.first(2), device_of(model)))
    except (RuntimeError, ValueError) as error:  # an InputError is one
        raise InputError(
            f"the backbone cannot take the samples {tuple(train.first(1).shape[1:])} of split "
            f"{train.name!r} ({train.role}): {str(error).splitlines()[0]}; build it for them "
            "(--backbone-options such as in_features, in_channels and size follow from the data)"
        ) from error
