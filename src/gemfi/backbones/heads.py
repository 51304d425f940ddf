"""Where the classifier of somebody else's network is: the last linear layer.

Hugging Face, timm and torchvision have few names for it; in any other module it is the linear layer
that was registered last. No library is imported for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from torch import nn

from gemfi.errors import InputError

NAMES: Final = (
    "classifier",
    "score",
    "fc",
    "head",
    "heads",
    "classification_head",
    "logits_proj",
    "sequence_summary",
    "last_linear",
)
"""What the part with the classifier is called: a linear layer, or a module that ends in one."""

REMEDY: Final = (
    'say where the features are: features="NAME" (the output of a part), features="NAME:input" '
    "(what goes into it) or features=function(network, inputs), with num_features=D"
)
_LISTED: Final = 8  # candidates in a message


@dataclass(frozen=True)
class Classifier:
    """The last linear layer of a network.

    Attributes:
        name: of the layer in the network, such as `classifier.out_proj`.
        num_features: D that it takes.
        num_classes: C that it returns.
    """

    name: str
    num_features: int
    num_classes: int


def find_classifier(network: nn.Module) -> Classifier | None:
    """The classifier of a network; None for one that has none, as it says itself.

    That is a base model of Hugging Face, or one of timm that was made with `num_classes=0`. If
    there are several candidates, or none, it is an error that lists them.
    """
    if _is_timm(network):
        return _of_timm(network)
    found = _named(network)
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        raise _unclear(network, [each.name for each in found], "has several layers that may be")
    if is_hugging_face(network):
        if getattr(network, "base_model", network) is network:
            return None
        what = "is no base model (that is its `base_model`), and has no part that is"
        raise _unclear(network, _linears(network), what)
    return _registered_last(network)


def _named(network: nn.Module) -> list[Classifier]:
    """The candidates by name; of several, where one alone returns `config.num_labels`, that one.

    ModernBERT has a `head`, which is a dense layer, before its `classifier`.
    """
    parts = [(name, each) for name, each in network.named_children() if name in NAMES]
    found = [place for name, part in parts if (place := _last_linear(part, name)) is not None]
    if len(found) > 1 and is_hugging_face(network):
        labels = getattr(network.config, "num_labels", None)
        fitting = [each for each in found if each.num_classes == labels]
        return fitting if len(fitting) == 1 else found
    return found


def is_hugging_face(network: nn.Module) -> bool:
    """Whether it has the looks of a model of `transformers`."""
    return hasattr(network, "config") and isinstance(getattr(network, "main_input_name", None), str)


def _is_timm(network: nn.Module) -> bool:
    return all(
        callable(getattr(network, name, None)) for name in ("get_classifier", "forward_features")
    )


def _of_timm(network: Any) -> Classifier | None:
    layer = network.get_classifier()
    if isinstance(layer, nn.Identity):
        return None
    name = next((name for name, each in network.named_modules() if each is layer), None)
    place = None if name is None else _last_linear(layer, name)
    if place is None:  # two heads, or a convolution
        raise _unclear(network, _linears(network), "returns from get_classifier() no layer that is")
    return place


def _registered_last(network: nn.Module) -> Classifier:
    """Of a module of one's own: its last layer with weights, if that is linear."""
    leaves = [
        (name, each)
        for name, each in network.named_modules()
        if not list(each.children()) and list(each.parameters())
    ]
    place = _last_linear(leaves[-1][1], leaves[-1][0]) if leaves and leaves[-1][0] else None
    if place is None:
        raise _unclear(network, _linears(network), "does not end in a linear layer that would be")
    return place


def _last_linear(part: nn.Module, name: str) -> Classifier | None:
    """The last linear layer of a part, in the order in which they were registered."""
    found = None
    for inner, layer in part.named_modules(prefix=name):
        if isinstance(layer, nn.Linear):
            found = Classifier(inner, layer.in_features, layer.out_features)
    return found


def _linears(network: nn.Module) -> list[str]:
    return [name for name, each in network.named_modules() if isinstance(each, nn.Linear) and name]


def _unclear(network: nn.Module, candidates: list[str], what: str) -> InputError:
    listed = ", ".join(candidates[-_LISTED:]) or "none"
    more = f" (the last of {len(candidates)})" if len(candidates) > _LISTED else ""
    return InputError(
        f"{type(network).__name__} {what} the classifier; linear layers: {listed}{more}; {REMEDY}"
    )
