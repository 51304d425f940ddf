"""The backbones by name, what each takes, and which of that follows from the shape of a sample."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, get_type_hints

from torch import nn

from gemfi._config import decode, to_plain
from gemfi.backbones.networks import MLP, ConvNet, Identity, resnet18, vgg16
from gemfi.errors import InputError

BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "convnet": ConvNet,
    "mlp": MLP,
    "resnet18": resnet18,
    "vgg16": vgg16,
    "identity": Identity,
}

_WHERE = "backbone_options"


def find_backbone(name: str) -> Callable[..., nn.Module]:
    """What makes the backbone of that name."""
    if not isinstance(name, str) or name not in BACKBONES:
        raise InputError(f"unknown backbone {name!r}; known: {', '.join(BACKBONES)}")
    return BACKBONES[name]


def parameters(backbone: str) -> dict[str, tuple[Any, Any]]:
    """Argument of a backbone -> its type and its default."""
    return _parameters(find_backbone(backbone))


@cache
def _parameters(maker: Callable[..., nn.Module]) -> dict[str, tuple[Any, Any]]:
    hints = get_type_hints(maker if inspect.isfunction(maker) else vars(maker)["__init__"])
    return {
        name: (hints[name], each.default)
        for name, each in inspect.signature(maker).parameters.items()
    }


def input_options(backbone: str, shape: Sequence[int]) -> dict[str, Any]:
    """The arguments of a backbone that follow from the shape of a sample."""
    if "in_features" in parameters(backbone):
        return {"in_features": math.prod(shape)}
    if len(shape) != 3 or shape[1] != shape[2]:
        raise InputError(
            f"{backbone} takes square images (channels, size, size), but a sample is "
            f"{tuple(shape)}; use the backbone mlp, or reshape the samples"
        )
    return {"in_channels": int(shape[0]), "size": int(shape[1])}


@dataclass(frozen=True)
class Blueprint:
    """A backbone by its name and every argument, as JSON values: enough to build it again.

    Attributes:
        name: in `BACKBONES`.
        options: its arguments; those that are left out are filled in.
    """

    name: str
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", _complete(self.name, self.options))

    def arguments(self) -> dict[str, Any]:
        """The options as the backbone takes them."""
        return _decoded(self.name, self.options)


def _complete(backbone: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Every argument of a backbone as a plain value: those given, checked, and the defaults."""
    known = parameters(backbone)
    for name in options:
        if name not in known:
            raise InputError(
                f"{_WHERE}.{name}: {backbone} has no such option; known: {', '.join(known)}"
            )
    given = {name: options.get(name, default) for name, (_, default) in known.items()}
    for name, value in given.items():
        if value is inspect.Parameter.empty:
            raise InputError(f"{_WHERE}: {backbone} needs {name}")
    checked = _decoded(backbone, {name: to_plain(value) for name, value in given.items()})
    return {name: to_plain(value) for name, value in checked.items()}


def _decoded(backbone: str, options: Mapping[str, Any]) -> dict[str, Any]:
    known = parameters(backbone)
    return {
        name: decode(known[name][0], value, f"{_WHERE}.{name}") for name, value in options.items()
    }
