"""Backbones: modules that map a batch of inputs to features (B, D).

Any module does; these carry `num_features`, so that a model can be built without a trial pass. To
add one, write its file and list it in `BACKBONES`.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from gemfi.backbones.convnet import ConvNet
from gemfi.backbones.mlp import MLP
from gemfi.backbones.resnet import ResNet18, resnet18
from gemfi.backbones.stack import Stack
from gemfi.backbones.vgg import VGG16, vgg16

BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "convnet": ConvNet,
    "mlp": MLP,
    "resnet18": resnet18,
    "vgg16": vgg16,
}

__all__ = ["BACKBONES", "MLP", "VGG16", "ConvNet", "ResNet18", "Stack", "resnet18", "vgg16"]
