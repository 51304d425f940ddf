"""VGG-16 with batch normalisation, for small images."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi.backbones.inputs import check_images
from gemfi.errors import InputError
from gemfi.spectral import OFF, Conv2d, Spectral

_STAGES = ((1, 1), (2, 2), (4, 4, 4), (8, 8, 8), (8, 8, 8))  # channels in units of the width


class VGG16(nn.Module):
    """Thirteen 3×3 convolutions in five stages, each stage halved by 2×2 max pooling.

    A 32×32 image becomes 8·width features. Convolutions have no bias of their own: the batch norm
    that follows each would take it out again.

    Args:
        in_channels: channels of the input.
        size: height and width of the input, at least 32.
        width: channels of the first stage; 64 is the usual network.
        dropout: rate on the features.
        spectral: how the norms of the convolutions are held.
    """

    def __init__(
        self,
        in_channels: int = 3,
        size: int = 32,
        width: int = 64,
        *,
        dropout: float = 0.0,
        spectral: Spectral = OFF,
    ) -> None:
        super().__init__()
        if size < 32:
            raise InputError(f"vgg16 pools five times, so size must be at least 32, got {size}")
        if min(in_channels, width) < 1:
            raise InputError(
                f"vgg16 needs in_channels >= 1 and width >= 1, got {in_channels} and {width}"
            )
        self.input = (in_channels, size)
        stages = []
        channels = in_channels
        for widths in _STAGES:
            layers: list[nn.Module] = []
            for each in widths:
                layers.append(Conv2d(channels, each * width, 3, size=size, spectral=spectral))
                channels = each * width
                layers += [nn.BatchNorm2d(channels), nn.ReLU()]
            stages.append(nn.Sequential(*layers))
            size //= 2
        self.stages = nn.ModuleList(stages)
        self.dropout = nn.Dropout(dropout)
        self.num_features = channels * size**2

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in_channels, size, size) to (B, num_features)."""
        check_images(x, "vgg16", *self.input)
        x = x.to(memory_format=torch.channels_last)
        for stage in self.stages:
            x = functional.max_pool2d(stage(x), 2)
        features: Tensor = self.dropout(x.flatten(1))
        return features


vgg16 = VGG16  # the name people know it by: vgg16(width=16)
