"""`attach`: a head that knows when it does not know, on somebody else's network.

    network = AutoModelForImageClassification.from_pretrained("...")
    model = gemfi.attach(network, num_classes=10, freeze=True)
    fit(model, train, validation)

Networks of Hugging Face (images and texts), timm and torchvision, and any module that ends in a
linear layer; none of these libraries is imported.
"""

from __future__ import annotations

import copy as copying
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gemfi._config import check_int
from gemfi.backbones import Frozen, Tokens, find_classifier, is_hugging_face, tokens_of
from gemfi.backbones.attached import Attached, FeatureFunction, Part
from gemfi.data.inputs import InputSpec
from gemfi.data.normalisation import Normalisation
from gemfi.errors import InputError
from gemfi.methods import Head
from gemfi.methods import method as method_named
from gemfi.model import Model, build_model, trial_width

_TEXT = "input_ids"  # what Hugging Face calls token ids


def attach(
    model: nn.Module,
    method: str = "gem-fi",
    num_classes: int | None = None,
    *,
    config: Any = None,
    features: str | FeatureFunction | None = None,
    num_features: int | None = None,
    example: Tensor | None = None,
    freeze: bool = False,
    normalisation: Normalisation | None = None,
    copy: bool = True,
) -> Model:
    """A `Model` on the features that the classifier of a network saw.

    The classifier is taken away, and a head of the method put in its place. `fit` then trains
    everything, or the head alone with `freeze=True`; `predict` takes the network's inputs: images
    (N, 3, H, W), token ids (N, L) or whatever a module of your own takes.

    Args:
        model: of Hugging Face, timm or torchvision, or any module that ends in a linear layer; the
            head stands on a copy of it.
        method: a name in `METHODS`. With `keep` the old classifier stays: probabilities are those
            of the network, nothing is trained, and `Model.finish` fits a density of its features.
        num_classes: C; by default as many as the old classifier had.
        config: the method's configuration; None for its default.
        features: where they are, if not at the classifier: the name of a part whose output is
            meant, or `NAME:input` for what goes into it, or a function of the network and a batch
            of inputs.
        num_features: D of these features; not needed with an example.
        example: a batch of inputs, for a trial pass.
        freeze: the network does not learn, and its features are computed once.
        normalisation: of the images, such as that with which the network was trained.
        copy: False to save the memory: then the classifier of `model` itself is gone afterwards.
    """
    method_named(method)  # says at once what is wrong with the name
    if isinstance(model, Model):
        raise InputError("this is a Model with a head already: build_model takes its `backbone`")
    if not isinstance(model, nn.Module):
        raise InputError(f"expected a torch.nn.Module to attach to, got {type(model).__name__}")
    network = copying.deepcopy(model) if copy else model
    try:
        name, layer = find_classifier(network) or (None, None)
    except InputError:
        if features is None:
            raise
        name, layer = None, None  # the features are elsewhere, so it may be unclear
    count = _num_classes(network, num_classes, name, layer)
    if num_features is not None:
        check_int("num_features", num_features, 1)
    part, function = _place(network, features)
    width = num_features if features is not None else _width(network, num_features, name, layer)
    tokens = _tokens(network)
    if tokens is not None and normalisation is not None:
        raise InputError("normalisation is for images and tables: token ids are not standardised")
    if getattr(getattr(network, "config", None), "use_cache", False):
        network.config.use_cache = False  # type: ignore[union-attr] # of a generator of texts
    backbone = Attached(
        network, width, classifier=name, part=part, function=function, tokens=tokens
    )
    if width is None or example is not None:
        backbone.num_features = _tried(backbone, example, normalisation)
    chosen = Frozen(backbone) if freeze or method == "keep" else backbone
    attached = build_model(method, chosen, count, config=config, normalisation=normalisation)
    if method == "keep":
        _keep(attached.head, layer, count, is_elsewhere=features is not None)
    attached.inputs = InputSpec(class_names=_class_names(network, count))
    return attached


def _keep(head: Head, layer: nn.Linear | None, count: int, *, is_elsewhere: bool) -> None:
    """Give a head the weights of the old classifier."""
    if layer is None or is_elsewhere:
        raise InputError(
            'method="keep" needs the classifier of the network and what it saw: leave features= '
            "out, or choose a method that is trained"
        )
    if layer.out_features != count:
        raise InputError(
            f'method="keep": the network tells {layer.out_features} classes apart, not {count}: '
            "leave num_classes= out"
        )
    with torch.no_grad():
        head.linear.weight.copy_(layer.weight)  # type: ignore[union-attr, operator]
        head.linear.bias.zero_()  # type: ignore[union-attr, operator]
        if layer.bias is not None:
            head.linear.bias.copy_(layer.bias)  # type: ignore[union-attr, operator]


def _num_classes(
    network: nn.Module, given: int | None, name: str | None, classifier: nn.Linear | None
) -> int:
    if given is not None:
        check_int("num_classes", given, 2)
        return int(given)
    if classifier is not None and classifier.out_features > 1:
        return classifier.out_features
    why = f"{type(network).__name__} has no classifier to tell the number of classes from"
    if classifier is not None:
        why = f"the old head {name} has 1 output, as for a regression"
    raise InputError(f"{why}: give num_classes=")


def _place(
    network: nn.Module, features: str | FeatureFunction | None
) -> tuple[Part | None, FeatureFunction | None]:
    """`features` as a part of the network, or as a function."""
    if features is None:
        return None, None
    if isinstance(features, str):
        name, _, side = features.partition(":")
        names = [known for known, _ in network.named_modules() if known]
        if name not in names or side not in {"", "input", "output"}:
            top = ", ".join(known for known, _ in network.named_children())
            raise InputError(
                f"features={features!r} is no part of {type(network).__name__}; it has {top} and "
                "the parts of these (NAME, NAME:output or NAME:input)"
            )
        return (name, "input" if side == "input" else "output"), None
    if isinstance(features, nn.Module):
        raise InputError(
            "features is a module: one that maps inputs to features needs no attaching; give it to "
            "build_model, inside Frozen(...) if it is not to learn"
        )
    if not callable(features):
        raise InputError(f"features must be a name or a function, got {type(features).__name__}")
    return None, features


def _width(
    network: Any, given: int | None, name: str | None, classifier: nn.Linear | None
) -> int | None:
    """D of what the classifier saw, or of the output of a network without one, if it is known."""
    where = type(network).__name__
    if classifier is not None:
        where = f"the input of {name} in {where}"
        widths: list[Any] = [classifier.in_features]
    else:
        settings = getattr(network, "config", None)
        stages = getattr(settings, "hidden_sizes", None)
        widths = [*stages[-1:]] if isinstance(stages, list | tuple) else []
        widths.append(getattr(settings, "hidden_size", None))
        widths += [getattr(network, name, None) for name in ("head_hidden_size", "num_features")]
    known = next((width for width in widths if isinstance(width, int)), None)
    if given is not None and known is not None and given != known:
        raise InputError(
            f"num_features is {given}, but {where} has {known} features; leave it out, or say with "
            "features= where others are"
        )
    return known if given is None else given


def _tokens(network: Any) -> Tokens | None:
    """What a network that takes texts says of its vocabulary."""
    if not is_hugging_face(network) or network.main_input_name != _TEXT:
        return tokens_of(network)
    pad = network.config.pad_token_id
    if pad is None:
        raise InputError(
            f"{type(network).__name__} has no padding id, and texts of different lengths need one: "
            "set model.config.pad_token_id to that of the tokenizer"
        )
    return Tokens(network.get_input_embeddings().num_embeddings, pad)


def _tried(backbone: Attached, example: Tensor | None, normalisation: Normalisation | None) -> int:
    """D by a trial pass, which must agree with what is known."""
    if example is None:
        raise InputError("the width of these features is not known: give num_features= or example=")
    known, width = backbone.num_features, trial_width(backbone, example, normalisation)
    if known not in (None, width):
        raise InputError(f"expected {known} features of the network, but the example gives {width}")
    return width


def _class_names(network: Any, count: int) -> tuple[str, ...] | None:
    """Those of a Hugging Face configuration, unless they only count the classes."""
    named = getattr(getattr(network, "config", None), "id2label", None)
    if not isinstance(named, Mapping) or set(named) != set(range(count)):
        return None
    names = tuple(str(named[index]) for index in range(count))
    return None if all(name == f"LABEL_{index}" for index, name in enumerate(names)) else names
