"""Backbones: modules that map a batch of inputs to features (B, D).

Any module does; these carry `num_features`, so that a model can be built without a trial pass.
"""

from gemfi.backbones.attached import Attached, find_classifier, is_hugging_face
from gemfi.backbones.networks import MLP, VGG16, ConvNet, Identity, ResNet18, resnet18, vgg16
from gemfi.backbones.registry import BACKBONES, Blueprint, find_backbone, input_options, parameters
from gemfi.backbones.whitenet import WhiteNet, whitenet
from gemfi.backbones.wrappers import Frozen, Stack, Tokens, cannot_learn, is_frozen, tokens_of

__all__ = [
    "BACKBONES",
    "MLP",
    "VGG16",
    "Attached",
    "Blueprint",
    "ConvNet",
    "Frozen",
    "Identity",
    "ResNet18",
    "Stack",
    "Tokens",
    "WhiteNet",
    "cannot_learn",
    "find_backbone",
    "find_classifier",
    "input_options",
    "is_frozen",
    "is_hugging_face",
    "parameters",
    "resnet18",
    "tokens_of",
    "vgg16",
    "whitenet",
]
