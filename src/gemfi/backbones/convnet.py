"""The MNIST network of GEM, DAEDL, I-EDL and PostNet: three 5×5 convolutions with pooling."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi.backbones.inputs import check_images
from gemfi.errors import InputError
from gemfi.spectral import OFF, Conv2d, Linear, Spectral


class ConvNet(nn.Module):
    """Three convolutions of `channels` 5×5 filters, each with 2×2 max pooling and ReLU.

    A 28×28 image becomes 64·3·3 = 576 features, or as many as the last of the `hidden` layers has.

    Args:
        in_channels: channels of the input.
        size: height and width of the input, at least 8.
        channels: filters of each layer.
        hidden: sizes of linear layers with ReLU that come after; GEM has none, I-EDL three of 64.
        dropout: rate on the features.
        spectral: how the norms are held.
    """

    def __init__(
        self,
        in_channels: int = 1,
        size: int = 28,
        channels: int = 64,
        *,
        hidden: tuple[int, ...] = (),
        dropout: float = 0.0,
        spectral: Spectral = OFF,
    ) -> None:
        super().__init__()
        if size < 8:
            raise InputError(f"convnet pools three times, so size must be at least 8, got {size}")
        if min(in_channels, channels, *hidden) < 1:
            raise InputError(
                f"convnet needs in_channels >= 1 and channels >= 1, got {in_channels} and "
                f"{channels}, and layers of at least 1, got {tuple(hidden)}"
            )
        self.input = (in_channels, size)
        sizes = (size, size // 2, size // 4)
        widths = (in_channels, channels, channels)
        self.convs = nn.ModuleList(
            Conv2d(width, channels, 5, size=each, spectral=spectral)
            for width, each in zip(widths, sizes, strict=True)
        )
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(channels)) for _ in sizes)
        flat = (channels * (size // 8) ** 2, *hidden)
        self.hidden = nn.Sequential()
        for inputs, outputs in pairwise(flat):
            self.hidden += nn.Sequential(Linear(inputs, outputs, spectral=spectral), nn.ReLU())
        self.dropout = nn.Dropout(dropout)
        self.num_features = flat[-1]

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, channels, size, size) to (B, num_features)."""
        check_images(x, "convnet", *self.input)
        x = x.to(memory_format=torch.channels_last)  # a quarter faster on CPUs
        for conv, bias in zip(self.convs, self.biases, strict=True):
            pooled = functional.max_pool2d(conv(x), 2)  # first, since it commutes with the rest
            x = functional.relu(pooled + bias[:, None, None])
        features: Tensor = self.dropout(self.hidden(x.flatten(1)))
        return features
