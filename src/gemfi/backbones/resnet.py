"""ResNet-18 for small images, in the form of DDU: leaky ReLU and average-pool shortcuts."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi.backbones.inputs import check_images
from gemfi.errors import InputError
from gemfi.spectral import OFF, Conv2d, Spectral

Shortcut = Literal["pool", "project"]


class ResNet18(nn.Module):
    """ResNet-18 with a 3×3 stem and four stages of `width`·(1, 2, 4, 8) channels.

    Args:
        in_channels: channels of the input.
        size: height and width of the input, at least 8.
        width: channels of the first stage; 64 is the usual network, 16 suits two cores.
        dropout: rate on the features.
        spectral: how the norms of the convolutions are held.
        shortcut: `pool` averages and pads with zero channels (DDU, no parameters); `project`
            averages and applies a 1×1 convolution, which gives the 11.17 M parameters of the
            common CIFAR network at width 64.
    """

    def __init__(
        self,
        in_channels: int = 3,
        size: int = 32,
        width: int = 64,
        *,
        dropout: float = 0.0,
        spectral: Spectral = OFF,
        shortcut: Shortcut = "pool",
    ) -> None:
        super().__init__()
        if min(in_channels, width) < 1 or size < 8:
            raise InputError(
                f"resnet18 needs in_channels >= 1, width >= 1 and size >= 8, got {in_channels}, "
                f"{width} and {size}"
            )
        if shortcut not in ("pool", "project"):
            raise InputError(f"resnet18 shortcut must be pool or project, got {shortcut!r}")
        self.input = (in_channels, size)
        self.stem = Conv2d(in_channels, width, 3, size=size, spectral=spectral)
        self.norm = nn.BatchNorm2d(width)
        blocks = []
        channels = width
        for stage in range(4):
            for index in range(2):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(_Block(channels, width << stage, stride, size, spectral, shortcut))
                channels, size = width << stage, (size + stride - 1) // stride
        self.blocks = nn.Sequential(*blocks)
        self.dropout = nn.Dropout(dropout)
        self.num_features = channels

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in_channels, size, size) to (B, 8·width)."""
        check_images(x, "resnet18", *self.input)
        x = x.to(memory_format=torch.channels_last)  # a tenth faster on CPUs
        x = functional.leaky_relu(self.norm(self.stem(x)))
        features: Tensor = self.dropout(self.blocks(x).mean(dim=(2, 3)))
        return features


class _Block(nn.Module):
    def __init__(
        self,
        inputs: int,
        outputs: int,
        stride: int,
        size: int,
        spectral: Spectral,
        shortcut: Shortcut,
    ) -> None:
        super().__init__()
        self.conv1 = Conv2d(inputs, outputs, 3, size=size, stride=stride, spectral=spectral)
        self.norm1 = nn.BatchNorm2d(outputs)
        small = (size + stride - 1) // stride
        self.conv2 = Conv2d(outputs, outputs, 3, size=small, spectral=spectral)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.stride, self.extra = stride, outputs - inputs
        self.project: nn.Module | None = None
        if shortcut == "project" and (stride > 1 or self.extra):
            project = Conv2d(inputs, outputs, 1, size=small, spectral=spectral)
            self.project = nn.Sequential(project, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = functional.leaky_relu(self.norm1(self.conv1(x)))
        return functional.leaky_relu(self.norm2(self.conv2(out)) + self._shortcut(x))

    def _shortcut(self, x: Tensor) -> Tensor:
        if self.stride > 1:
            x = functional.avg_pool2d(x, self.stride, ceil_mode=True)
        if self.project is not None:
            projected: Tensor = self.project(x)
            return projected
        if self.extra:
            x = torch.cat([x, x.new_zeros(x.shape[0], self.extra, *x.shape[2:])], dim=1)
        return x


resnet18 = ResNet18  # the name people know it by: resnet18(width=16)
