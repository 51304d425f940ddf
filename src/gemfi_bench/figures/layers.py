"""The layers of a module in a few words, as the diagrams of architectures have them."""

from __future__ import annotations

import math
from itertools import groupby
from typing import Final

from torch import nn

from gemfi.methods.gem_modules import Perceptron
from gemfi.spectral import Conv2d, Linear, SpectralLayer

_MOST: Final = 5  # lines of layers
_LAYERS: Final = (Conv2d, Linear, nn.Conv2d, nn.Linear)


def layer_lines(module: nn.Module) -> list[str]:
    """The linear and convolutional layers of a module, equal neighbours counted, in order."""
    texts = [_layer(each) for each in module.modules() if isinstance(each, _LAYERS)]
    counted = [(text, len(list(group))) for text, group in groupby(texts)]
    lines = [text if count == 1 else f"{count} × {text}" for text, count in counted]
    if len(lines) > _MOST:
        lines = [*lines[: _MOST - 2], "…", lines[-1]]
    return lines


def _layer(layer: nn.Module) -> str:
    weight = layer.get_parameter("weight")
    if weight.ndim == 4:
        return f"conv {weight.shape[-1]}×{weight.shape[-1]}, {weight.shape[0]}"
    return f"linear {weight.shape[-1]}–{weight.shape[-2]}"


def sizes_line(perceptron: Perceptron) -> str:
    """Widths of a perceptron from input to output: 33–64–3."""
    shapes = [layer.get_parameter("weight").shape for layer in perceptron.layers]
    return "–".join(str(each) for each in (shapes[0][-1], *(shape[-2] for shape in shapes)))


def norms_line(module: nn.Module) -> str | None:
    """How the spectral norms of a module are held; None where they are free."""
    kinds = {
        (each.spectral.kind, each.spectral.bound)
        for each in module.modules()
        if isinstance(each, SpectralLayer) and each.spectral.kind != "off"
    }
    told = (f"spectral norm {'≤' if kind == 'soft' else '='} {c:g}" for kind, c in sorted(kinds))
    return ", ".join(told) or None


def sample_line(backbone: nn.Module, num_features: int) -> str:
    """The shape of an input, from the first layer; where there is none, inputs are features."""
    for layer in backbone.modules():
        if isinstance(layer, Conv2d):
            return "×".join(map(str, layer.in_shape))
        if isinstance(layer, Linear):
            return str(layer.inputs)
    return str(num_features)


def power(value: float) -> str:
    """A number, as a power of ten where it is a small one."""
    exponent = round(math.log10(value)) if value > 0 else 0
    if exponent < -3 and math.isclose(value, 10.0**exponent):
        return f"$10^{{{exponent}}}$"
    return f"{value:g}"
