"""The backbones by name, what each takes, and which of that follows from the shape of a sample."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from torch import nn

from gemfi._config import decode, to_plain
from gemfi.backbones.networks import MLP, ConvNet, Identity, resnet18, vgg16
from gemfi.backbones.whitenet import whitenet
from gemfi.errors import InputError

BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "convnet": ConvNet,
    "mlp": MLP,
    "resnet18": resnet18,
    "vgg16": vgg16,
    "whitenet": whitenet,
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
    maker = find_backbone(backbone)
    hints = get_type_hints(maker if inspect.isfunction(maker) else vars(maker)["__init__"])
    arguments = inspect.signature(maker).parameters
    return {name: (hints[name], argument.default) for name, argument in arguments.items()}


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
    """A backbone by its name in `BACKBONES` and its arguments as JSON values, to build it again.

    Arguments that are left out are filled in with their defaults.
    """

    name: str
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        known = parameters(self.name)
        for name in self.options:
            if name not in known:
                raise InputError(
                    f"{_WHERE}.{name}: {self.name} has no such option; known: {', '.join(known)}"
                )
        values = {name: default for name, (_, default) in known.items()} | dict(self.options)
        for name, value in values.items():
            if value is inspect.Parameter.empty:
                raise InputError(f"{_WHERE}: {self.name} needs {name}")
        object.__setattr__(self, "options", to_plain(values))
        object.__setattr__(self, "options", to_plain(self.arguments()))

    def arguments(self) -> dict[str, Any]:
        """The options as the backbone takes them."""
        known = parameters(self.name)
        return {
            name: decode(known[name][0], value, f"{_WHERE}.{name}")
            for name, value in self.options.items()
        }
