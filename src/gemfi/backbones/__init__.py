"""Backbones: modules that map a batch of inputs to features (B, D).

Any module does; these carry `num_features`, so that a model can be built without a trial pass. To
add one, write its file and list it in `BACKBONES`
(registry.py). `EfficientNetLite0` is not listed: it is frozen,
and its features are data (`gemfi_bench.frozen`).
"""

from __future__ import annotations

from gemfi.backbones.convnet import ConvNet
from gemfi.backbones.efficientnet_lite import EfficientNetLite0
from gemfi.backbones.identity import Identity
from gemfi.backbones.mlp import MLP
from gemfi.backbones.registry import BACKBONES, Blueprint, find_backbone, input_options, parameters
from gemfi.backbones.resnet import ResNet18, resnet18
from gemfi.backbones.stack import Stack
from gemfi.backbones.vgg import VGG16, vgg16

__all__ = [
    "BACKBONES",
    "MLP",
    "VGG16",
    "Blueprint",
    "ConvNet",
    "EfficientNetLite0",
    "Identity",
    "ResNet18",
    "Stack",
    "find_backbone",
    "input_options",
    "parameters",
    "resnet18",
    "vgg16",
]
