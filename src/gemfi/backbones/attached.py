"""Somebody else's network as a backbone: inputs to the features that its classifier saw.

The classifier is the last linear layer. Hugging Face, timm and torchvision have few names for it;
in any other module it is the linear layer that was registered last. It is replaced by an identity,
and what comes in there is caught on its way, whatever the network returns afterwards.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

from gemfi.backbones.wrappers import Tokens
from gemfi.errors import InputError

FeatureFunction = Callable[[Any, Tensor], Tensor]
"""A network and a batch of inputs to features (B, D)."""

Part = tuple[str, Literal["input", "output"]]
"""Name of a part of a network, and which of its sides is meant."""

NAMES: Final = (
    "classifier", "score", "fc", "head", "heads", "classification_head", "logits_proj",
    "sequence_summary", "last_linear",
)  # fmt: skip
"""What the part with the classifier is called: a linear layer, or a module that ends in one."""

REMEDY: Final = (
    'say where the features are: features="NAME" (the output of a part), features="NAME:input" '
    "(what goes into it) or features=function(network, inputs), with num_features=D"
)
_LISTED: Final = 8  # candidates in a message

# What the code of a network may raise where the old classifier's output is missed.
_OF_CODE: Final = (RuntimeError, AssertionError, AttributeError, IndexError, TypeError, ValueError)

# One list a forward pass, so that threads which ask one model do not get in each other's way.
_CAUGHT: Final[ContextVar[list[Any] | None]] = ContextVar("caught", default=None)
_CHECKING: Final = threading.RLock()  # re-entrant: a network may hold another

# -- the old classifier -------------------------------------------------------------------------


def find_classifier(network: Any) -> tuple[str, nn.Linear] | None:
    """Name and layer of the classifier of a network; None where the network says it has none.

    That is a base model of Hugging Face, or one of timm made with `num_classes=0`. Several
    candidates, or none, are an error that lists them.
    """
    if hasattr(network, "get_classifier") and hasattr(network, "forward_features"):
        return _timm_classifier(network)
    candidates = _named_classifiers(network)
    if len(candidates) > 1:
        names = [name for name, _ in candidates]
        raise _unclear(network, "has several layers that may be", names)
    if len(candidates) == 1:
        return candidates[0]
    if not is_hugging_face(network):
        return _registered_last(network)
    if getattr(network, "base_model", network) is network:
        return None
    raise _unclear(network, "is no base model (that is its `base_model`), and has no part that is")


def is_hugging_face(network: nn.Module) -> bool:
    """Whether it has the looks of a model of `transformers`."""
    return hasattr(network, "config") and isinstance(getattr(network, "main_input_name", None), str)


def _named_classifiers(network: Any) -> list[tuple[str, nn.Linear]]:
    """The candidates by name; of several, where one alone returns `config.num_labels`, that one.

    ModernBERT has a `head`, which is a dense layer, before its `classifier`.
    """
    ends = [_last_linear(part, name) for name, part in network.named_children() if name in NAMES]
    candidates = [end for end in ends if end is not None]
    if len(candidates) > 1 and is_hugging_face(network):
        labels = getattr(network.config, "num_labels", None)
        fitting = [end for end in candidates if end[1].out_features == labels]
        return fitting if len(fitting) == 1 else candidates
    return candidates


def _timm_classifier(network: Any) -> tuple[str, nn.Linear] | None:
    layer = network.get_classifier()
    if isinstance(layer, nn.Identity):
        return None
    name = next((name for name, part in network.named_modules() if part is layer), None)
    end = None if name is None else _last_linear(layer, name)
    if end is None:  # two heads, or a convolution
        raise _unclear(network, "returns from get_classifier() no layer that is")
    return end


def _registered_last(network: nn.Module) -> tuple[str, nn.Linear]:
    """The last layer with weights of a module of one's own, if it is linear."""
    leaves = [
        (name, part)
        for name, part in network.named_modules()
        if name and not list(part.children()) and list(part.parameters())
    ]
    if not leaves or not isinstance(leaves[-1][1], nn.Linear):
        raise _unclear(network, "does not end in a linear layer that would be")
    return leaves[-1][0], leaves[-1][1]


def _last_linear(part: nn.Module, name: str) -> tuple[str, nn.Linear] | None:
    layers = _linear_layers(part, name)
    return layers[-1] if layers else None


def _linear_layers(part: nn.Module, prefix: str = "") -> list[tuple[str, nn.Linear]]:
    modules = part.named_modules(prefix=prefix)
    return [(name, layer) for name, layer in modules if isinstance(layer, nn.Linear)]


def _unclear(network: nn.Module, what: str, names: list[str] | None = None) -> InputError:
    if names is None:
        names = [name for name, _ in _linear_layers(network) if name]
    listed = ", ".join(names[-_LISTED:]) or "none"
    more = f" (the last of {len(names)})" if len(names) > _LISTED else ""
    return InputError(
        f"{type(network).__name__} {what} the classifier; linear layers: {listed}{more}; {REMEDY}"
    )


# -- the features -------------------------------------------------------------------------------


class Attached(nn.Module):
    """A network that returns features (B, D), whatever it returned before.

    They come from a function of network and inputs, or from a part; or they are what went into the
    classifier, which is taken away; or the network's own output, pooled. `num_features` may be
    unknown (None) at first; `tokens` are those of a network that takes texts.
    """

    def __init__(
        self,
        network: nn.Module,
        num_features: int | None,
        *,
        classifier: str | None = None,
        part: Part | None = None,
        function: FeatureFunction | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        super().__init__()
        self.network, self.num_features, self.tokens = network, num_features, tokens
        self.part, self.function = part, function
        self.has_classifier = classifier is not None and part is None and function is None
        if classifier is not None and self.has_classifier:
            network.set_submodule(classifier, nn.Identity())
            self.part = (classifier, "input")
        self.is_checked = not self.has_classifier  # that nothing comes after the classifier
        if self.part is not None:
            name, side = self.part
            layer = network.get_submodule(name)
            if side == "input":
                layer.register_forward_pre_hook(_catch_input, with_kwargs=True)
            else:
                layer.register_forward_hook(_catch_output)

    def extra_repr(self) -> str:
        """Where the features come from; it is part of what a run is known by."""
        where = self.part if self.function is None else getattr(self.function, "__qualname__", "")
        return f"num_features={self.num_features}, features={where}, tokens={self.tokens}"

    def forward(self, x: Tensor) -> Tensor:
        """(B, ...) to (B, D)."""
        if self.tokens is None:
            weight = next(self.network.parameters(), x)
            x = x.to(weight.dtype)  # it may be half as long as that of the inputs
        if self.function is not None:
            return _checked(self.function(self.network, x))
        caught: list[Any] = []
        before = _CAUGHT.set(caught)
        try:
            if self.is_checked:
                output = self._run(x)
            else:
                with _CHECKING:  # one thread after the other: the hooks see every pass
                    output = self._run(x) if self.is_checked else self._run_checked(x)
        finally:
            _CAUGHT.reset(before)
        return _checked(self._features(x, caught, output))

    def _features(self, x: Tensor, caught: list[Any], output: Any) -> Tensor:
        mask = None if self.tokens is None else self.tokens.mask(x)
        if self.part is None:
            return pooled(output, mask)
        if len(caught) != 1:
            raise InputError(
                f"{self.part[0]} of {type(self.network).__name__} ran {len(caught)} times in one "
                f"pass, and not once; {REMEDY}"
            )
        if self.has_classifier and isinstance(caught[0], Tensor) and caught[0].ndim > 2:
            # a classifier of every position, one of which is chosen afterwards
            return _first_tensor(output, ("logits",))
        return caught[0] if self.has_classifier else pooled(caught[0], mask)

    def _run(self, x: Tensor) -> Any:
        """The network's own forward, with the names that it has for its inputs."""
        name = getattr(self.network, "main_input_name", None)
        takes = inspect.signature(self.network.forward).parameters
        if not isinstance(name, str) or name not in takes:
            return self.network(x)
        if self.tokens is None:
            return self.network(**{name: x})
        more = {}
        if "attention_mask" in takes:
            more["attention_mask"] = self.tokens.mask(x).to(torch.int64)
        try:
            return self.network(**{name: x}, **more)
        except (IndexError, RuntimeError) as error:
            raise InputError(
                f"{type(self.network).__name__} cannot take texts of {x.shape[1]} tokens; are they "
                f"longer than it has positions for? ({str(error).splitlines()[0]})"
            ) from error

    def _run_checked(self, x: Tensor) -> Any:
        """The first pass also sees whether any linear layer comes after the classifier."""
        name = "" if self.part is None else self.part[0]
        later: list[str] = []
        hooks = [
            layer.register_forward_pre_hook(lambda *_, other=other: later.append(other))
            for other, layer in _linear_layers(self.network)
        ]
        classifier = self.network.get_submodule(name)
        hooks.append(classifier.register_forward_pre_hook(lambda *_: later.clear()))
        try:
            output = self._run(x)
        except _OF_CODE as error:
            if _CAUGHT.get():
                raise self._not_last(later or ["something"]) from error
            if isinstance(error, AttributeError) and "'Identity'" in str(error):
                raise InputError(
                    f"{type(self.network).__name__} looks into its classifier {name}, which is "
                    f'taken away ({error}): leave it there with features="{name}:input" and '
                    "num_features=D"
                ) from error
            raise
        finally:
            for hook in hooks:
                hook.remove()
        if later and _CAUGHT.get():
            raise self._not_last(later)
        self.is_checked = True
        return output

    def _not_last(self, later: list[str]) -> InputError:
        name = "" if self.part is None else self.part[0]
        return InputError(
            f"{name} was taken for the classifier of {type(self.network).__name__}, but "
            f"{', '.join(later[-3:])} comes after it; {REMEDY}"
        )


def pooled(output: Any, mask: Tensor | None = None) -> Tensor:
    """Features (B, D) from what a network, or a part of one, returns.

    Of several outputs it is `pooler_output`, or else the hidden states of the last layer. The
    positions of an image (B, D, H, W) or (B, L, D) are averaged, and those of a text where `mask`
    (B, L) is True.
    """
    z = _first_tensor(output, ("pooler_output", "last_hidden_state", "logits"))
    if z.ndim == 4:
        return z.mean(dim=(2, 3))
    if z.ndim != 3:
        return z
    if mask is None or mask.shape != z.shape[:2]:
        return z.mean(dim=1)
    weight = mask.to(z.dtype)[:, :, None]
    return (z * weight).sum(dim=1) / weight.sum(dim=1)


def _first_tensor(output: Any, names: tuple[str, ...]) -> Tensor:
    """The tensor of one of these names, or the first one."""
    if isinstance(output, Tensor):
        return output
    named = dict(output) if isinstance(output, Mapping) else {}
    values = named.values() if named else output if isinstance(output, tuple | list) else ()
    for value in (*(named.get(name, getattr(output, name, None)) for name in names), *values):
        if isinstance(value, Tensor):
            return value
    raise InputError(f"expected a tensor among the outputs, got {type(output).__name__}; {REMEDY}")


def _checked(z: object) -> Tensor:
    if not isinstance(z, Tensor) or z.ndim != 2:
        shape = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise InputError(f"expected features (B, D) of a network, got {shape}; {REMEDY}")
    return z


def _catch_input(_layer: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    _catch(given[0] if given else next(iter(named.values()), None))


def _catch_output(_layer: nn.Module, _given: tuple[Any, ...], output: Any) -> None:
    _catch(output)


def _catch(value: Any) -> None:
    if (caught := _CAUGHT.get()) is not None:
        caught.append(value)
