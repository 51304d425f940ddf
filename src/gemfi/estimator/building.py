"""From the settings of an estimator to a model, before and after its training."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor, nn

from gemfi.backbones import input_options
from gemfi.estimator.inputs import Scaling
from gemfi.methods import GEMConfig
from gemfi.methods import method as method_named
from gemfi.model import Model, build_model
from gemfi.randomness import forked_generator


def draw_seed(random_state: int | np.random.RandomState | None) -> int:
    """A seed; without a state it is the system's, so that numpy's global state is left alone."""
    if random_state is None:
        return int(np.random.default_rng().integers(1 << 31))
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def build(
    method: str,
    backbone: str | nn.Module,
    options: Mapping[str, Any] | None,
    num_classes: int,
    *,
    config: Any,
    example: Tensor,
    seed: int,
) -> Model:
    """A model whose weights come from the seed alone; torch's generator is as before afterwards.

    Args:
        method: a name in `METHODS`.
        backbone: a name in `BACKBONES`, or a module, which is copied.
        options: of a backbone given by name.
        num_classes: C.
        config: the method's configuration; None for `default_config`.
        example: a few inputs.
        seed: of the weights.
    """
    given = dict(options or {})
    config = default_config(method, example.ndim) if config is None else config
    if isinstance(backbone, nn.Module):
        backbone = copy.deepcopy(backbone)
    else:
        given = input_options(backbone, tuple(example.shape[1:])) | given
    with forked_generator(seed):
        return build_model(method, backbone, num_classes, config=config, example=example, **given)


def default_config(method: str, dimensions: int) -> Any:
    """The configuration of a method for rows (two dimensions) or images (four).

    It is the method's own, but for rows the density of the GEM family is one of the features as
    they are, and not of their directions. A perceptron maps a row and ten times that row to almost
    the same direction, so that on unit-norm features distance from the data cannot be seen.
    """
    config = method_named(method).default_config()
    if isinstance(config, GEMConfig) and dimensions == 2:
        return replace(config, density_space="raw")
    return config


def finished(model: Model, scaling: Scaling) -> Model:
    """The trained model in float64, with the standardisation inside.

    In float32 the last digits of a prediction would depend on what else is in its batch.
    """
    model = model.double().eval()
    model.input_mean = torch.from_numpy(scaling.mean)
    model.input_std = torch.from_numpy(scaling.std)
    return model
