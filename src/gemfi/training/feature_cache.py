"""Features of a frozen backbone: computed once for a run, and the head trains on them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from gemfi.backbones import Identity, is_frozen
from gemfi.data import Split
from gemfi.errors import InputError
from gemfi.model import Model
from gemfi.outliers import OutlierConfig
from gemfi.randomness import forked_generator
from gemfi.training.config import TrainConfig
from gemfi.training.extraction import Extraction
from gemfi.training.stored import digest_of

FOLDER: Final = "features"
"""Where they are, below the folder of a run."""

_VERSION: Final = 1  # raise it when the same inputs and weights give other features
_BATCH: Final = 64
_NEAR: Final = 1e-3  # of the largest feature: as many threads as before may not be at hand


def keeps_features(model: Model, config: TrainConfig) -> bool:
    """Whether an input has the same features in every epoch: frozen, and nothing is augmented."""
    return is_frozen(model.backbone) and config.augmentation.is_nothing


def head_alone(model: Model) -> Model:
    """A model of features, whose head is that of the given one."""
    return Model(Identity(model.head.num_features), model.head)


def augmentation_notes(model: Model, config: TrainConfig) -> list[str]:
    """What an augmentation costs a frozen backbone."""
    if not is_frozen(model.backbone) or keeps_features(model, config):
        return []
    return ["the frozen backbone ran in every step: images are augmented, and features with them"]


def usable_outliers(model: Model, wanted: OutlierConfig) -> tuple[OutlierConfig, list[str]]:
    """Outliers that can be made for this model, and what has to be said about it.

    Scrambled inputs teach a backbone, and one that is frozen learns nothing; of texts, a mixture of
    the words of two is no text, and may well be familiar.
    """
    why = "the backbone is frozen" if is_frozen(model.backbone) else ""
    why = why or ("the inputs are token ids" if model.tokens is not None else "")
    if not why or wanted.is_none or wanted.scrambled == 0:
        return wanted, []
    if wanted.kind == "scrambled":
        raise InputError(
            f"outliers of kind 'scrambled' are scrambled inputs, and {why}: choose a kind that is "
            "made of features, such as OutlierConfig(kind='halo')"
        )
    note = f"no scrambled inputs among the outliers: {why}; those of kind {wanted.kind} stay"
    return replace(wanted, scrambled=0.0), [note]


def weights_digest(backbone: nn.Module) -> str:
    """A checksum of all weights and statistics of a backbone, and of how it is put together."""
    text = f"{digest_of(backbone.state_dict())}:{backbone!r}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def kept_features(
    model: Model,
    splits: Sequence[Split | None],
    folder: Path | None,
    interrupted: threading.Event,
    progress: bool | None,
) -> list[Split | None]:
    """Splits with features (N, D) in place of their inputs, and all else as it was.

    Args:
        model: with a frozen backbone.
        splits: of its inputs.
        folder: where to keep them, in files that are known by the weights and the inputs; None to
            hold them in memory.
        interrupted: if it is set, KeyboardInterrupt ends the work between two batches. In a folder
            nothing is lost.
        progress: a progress bar, as of `fit`.
    """

    def pause() -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt

    def of(split: Split) -> Split:
        pause()
        work = Extraction(
            lambda x: model.embed(x, _BATCH),
            split.x,
            model.head.num_features,
            batch=_BATCH,
            name=split.name,
            progress=progress,
            pause=pause,
        )
        z = work.in_memory() if folder is None else _kept(work, folder / _name(model, split))
        return replace(split, x=z, tokens=False)

    with forked_generator():  # a network may draw, and a run that goes on draws less
        return [split and of(split) for split in splits]


def _kept(work: Extraction, file: Path) -> Tensor:
    features = work.kept(file)
    if not _agree(work.run(work.inputs[: work.batch]), features[: work.batch]):
        # weights and inputs are the same: the code of the network is not
        file.unlink()
        features = work.kept(file)
    return features


def _agree(now: Tensor, then: Tensor) -> bool:
    return torch.allclose(now, then, rtol=_NEAR, atol=_NEAR * float(now.abs().max()))


def _name(model: Model, split: Split) -> str:
    """Other weights, inputs or another normalisation have another file."""
    given = {"x": split.x}
    if model.input_mean is not None and model.input_std is not None:
        given |= {"mean": model.input_mean, "std": model.input_std}
    text = f"{_VERSION}:{_BATCH}:{weights_digest(model.backbone)}:{digest_of(given)}"
    return f"{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}.safetensors"
