"""What a run is, as a record that its checkpoint carries and compares."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gemfi.backbones import is_frozen
from gemfi.data import Split
from gemfi.model import Model
from gemfi.training.config import TrainConfig
from gemfi.training.feature_cache import weights_digest
from gemfi.training.step import TrainingStep
from gemfi.training.weights import RowWeights


def fingerprint(
    step: TrainingStep,
    config: TrainConfig,
    splits: Mapping[str, Split | None],
    model: Model | None = None,
    weights: RowWeights = RowWeights(),  # noqa: B008 - immutable
) -> dict[str, Any]:
    """Method, settings, shape of the model and checksums of the data, for JSON.

    Args:
        step: as it is trained.
        config: how.
        splits: by name; of a frozen backbone too they are its inputs.
        model: of which that of the step is a part; None where it is the same.
        weights: of rows.
    """
    model = step.model if model is None else model
    named = list(model.named_parameters())
    frozen = is_frozen(model.backbone)
    return {
        "method": model.head.info.name,
        "head": asdict(model.head.config),
        "outliers": asdict(step.outliers),
        "train": _train(config),
        "normalisation": _normalisation(model),
        "backbone": _digest(repr(model.backbone)),
        "parameters": _digest(
            str([(n, tuple(p.shape), p.requires_grad) for n, p in named]),
        ),
        "data": {name: data_digest(split) for name, split in splits.items() if split},
        **{
            f"{name}_weight": _digest(str(weight.tolist()))
            for name, weight in weights._asdict().items()
            if weight is not None
        },
        # the checkpoint need not hold these weights
        **({"frozen": weights_digest(model.backbone)} if frozen else {}),
    }


def _train(config: TrainConfig) -> dict[str, Any]:
    """How often a run is saved does not change what it computes."""
    plain = asdict(config)
    del plain["checkpoint_steps"]
    return plain


def _normalisation(model: Model) -> dict[str, list[float]] | None:
    """As the model holds it, and not as it was given: weights may have been loaded since."""
    if model.input_mean is None or model.input_std is None:
        return None
    return {"mean": model.input_mean.tolist(), "std": model.input_std.tolist()}


def data_digest(split: Split) -> str:
    """A checksum of the inputs and labels of a split."""
    digest = hashlib.blake2b(digest_size=12)
    digest.update(split.x.contiguous().cpu().numpy().data)
    if split.y is not None:
        digest.update(split.y.contiguous().cpu().numpy().data)
    return digest.hexdigest()


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
