"""The networks that are built by name: four for square images, two for rows of numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi._config import check_choice, check_int
from gemfi.errors import InputError
from gemfi.spectral import OFF, Conv2d, Linear, Spectral

Shortcut = Literal["pool", "project"]
_VGG_STAGES = ((1, 1), (2, 2), (4, 4, 4), (8, 8, 8), (8, 8, 8))  # channels in units of the width


class ImageNetwork(nn.Module):
    """A network for square images: maps of several stages, then features of the last of them.

    Subclasses set `input`, `num_features` and `num_taps`, and have `maps` and `pool`.
    """

    input: tuple[int, int]
    num_features: int
    num_taps: int

    def __init__(self, in_channels: int, size: int, least: int, dropout: float) -> None:
        super().__init__()
        self.name = type(self).__name__.lower()
        _at_least(self.name, least, size=size)
        _at_least(self.name, 1, in_channels=in_channels)
        self.input = (in_channels, size)
        self.dropout = nn.Dropout(dropout)

    def maps(self, x: Tensor) -> Iterator[Tensor]:
        """The maps (B, channels, height, width) of one stage after the other."""
        raise NotImplementedError

    def pool(self, last: Tensor) -> Tensor:
        """Features (B, D) of the maps of the last stage."""
        raise NotImplementedError

    def forward(self, x: Tensor, *, taps: bool = False) -> Tensor:
        """Map (B, in_channels, size, size) to (B, num_features).

        With `taps`, what the stages say comes after the features, (B, num_features + num_taps): the
        mean and the standard deviation of each channel, of unit norm for a stage.
        """
        said = []
        for last in self.maps(_checked_images(x, self.name, *self.input)):
            if taps:
                said.append(summary(last))
        z: Tensor = self.dropout(self.pool(last))
        return torch.cat([z, *said], dim=1) if taps else z


def summary(maps: Tensor) -> Tensor:
    """Mean and standard deviation of each channel of (B, C, H, W), of unit norm: (B, 2·C).

    Where a channel is constant its deviation is 1e-10, so that gradients stay finite; a stage
    without any signal is next to 0.
    """
    maps = maps.float()
    mean = maps.mean(dim=(2, 3))
    variance = maps.square().mean(dim=(2, 3)) - mean.square()  # a tenth of the time of torch.std
    std = variance.clamp_min(1e-20).sqrt()
    return functional.normalize(torch.cat([mean, std], dim=1), dim=1, eps=1e-6)


class ConvNet(ImageNetwork):
    """The MNIST network of GEM, DAEDL, I-EDL and PostNet: three 5×5 convolutions with 2×2 pooling.

    A 28×28 image becomes 64·3·3 = 576 features, or as many as the last of the `hidden` linear
    layers has; GEM has none of these, I-EDL three of 64. Dropout is on the features.
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
        super().__init__(in_channels, size, 8, dropout)  # it pools three times
        _at_least("convnet", 1, channels=channels)
        for width in hidden:
            _at_least("convnet", 1, hidden=width)
        layers = ((in_channels, size), (channels, size // 2), (channels, size // 4))
        self.convs = nn.ModuleList(
            Conv2d(inputs, channels, 5, size=side, spectral=spectral) for inputs, side in layers
        )
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(channels)) for _ in layers)
        flat = (channels * (size // 8) ** 2, *hidden)
        self.hidden = nn.Sequential()
        for inputs, outputs in pairwise(flat):
            self.hidden += nn.Sequential(Linear(inputs, outputs, spectral=spectral), nn.ReLU())
        self.num_features, self.num_taps = flat[-1], 2 * channels * len(layers)

    def maps(self, x: Tensor) -> Iterator[Tensor]:
        """What each of the three convolutions makes, pooled."""
        for conv, bias in zip(self.convs, self.biases, strict=True):
            pooled = functional.max_pool2d(conv(x), 2)  # first, since it commutes with the rest
            x = functional.relu(pooled + bias[:, None, None])
            yield x

    def pool(self, last: Tensor) -> Tensor:
        """All of the last maps, through the hidden layers."""
        return self.hidden(last.flatten(1))  # type: ignore[no-any-return]


class VGG16(ImageNetwork):
    """Thirteen 3×3 convolutions with batch norm in five stages, each halved by 2×2 max pooling.

    `width` is the channels of the first stage (64 is the usual network), and a 32×32 image becomes
    8·width features. Convolutions have no bias: the batch norms would take it out again.
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
        super().__init__(in_channels, size, 32, dropout)  # it pools five times
        _at_least("vgg16", 1, width=width)
        self.stages = nn.ModuleList()
        channels = in_channels
        for factors in _VGG_STAGES:
            layers: list[nn.Module] = []
            for factor in factors:
                layers.append(Conv2d(channels, factor * width, 3, size=size, spectral=spectral))
                channels = factor * width
                layers += [nn.BatchNorm2d(channels), nn.ReLU()]
            self.stages.append(nn.Sequential(*layers))
            size //= 2
        self.num_features = channels * size**2
        self.num_taps = 2 * width * sum(factors[-1] for factors in _VGG_STAGES)

    def maps(self, x: Tensor) -> Iterator[Tensor]:
        """What each of the five stages makes, pooled."""
        for stage in self.stages:
            x = functional.max_pool2d(stage(x), 2)
            yield x

    def pool(self, last: Tensor) -> Tensor:
        """All of the last maps."""
        return last.flatten(1)


class ResNet18(ImageNetwork):
    """ResNet-18 for small images as DDU has it: 3×3 stem, leaky ReLU, average-pool shortcuts.

    Four stages of `width`·(1, 2, 4, 8) channels; 64 is the usual width, 16 suits two cores. The
    shortcut `pool` averages and pads with zero channels (DDU, no parameters); `project` averages
    and applies a 1×1 convolution, which gives the 11.17 M parameters of the common CIFAR network.
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
        super().__init__(in_channels, size, 8, dropout)
        _at_least("resnet18", 1, width=width)
        check_choice("shortcut", shortcut, get_args(Shortcut))
        self.stem = Conv2d(in_channels, width, 3, size=size, spectral=spectral)
        self.norm = nn.BatchNorm2d(width)
        self.blocks = nn.Sequential()
        channels = width
        for stage in range(4):
            for index in range(2):
                stride = 2 if stage > 0 and index == 0 else 1
                outputs = width << stage
                self.blocks.append(_Block(channels, outputs, stride, size, spectral, shortcut))
                channels, size = outputs, (size + stride - 1) // stride
        self.num_features, self.num_taps = channels, 2 * width * 15

    def maps(self, x: Tensor) -> Iterator[Tensor]:
        """What each of the four stages of two blocks makes."""
        x = functional.leaky_relu(self.norm(self.stem(x)))
        for number, block in enumerate(self.blocks, start=1):
            x = block(x)
            if number % 2 == 0:
                yield x

    def pool(self, last: Tensor) -> Tensor:
        """The mean of each of the last maps."""
        return last.mean(dim=(2, 3))


class _Block(nn.Module):
    def __init__(
        self, inputs: int, outputs: int, stride: int, size: int, spectral: Spectral, shortcut: str
    ) -> None:
        super().__init__()
        self.conv1 = Conv2d(inputs, outputs, 3, size=size, stride=stride, spectral=spectral)
        self.norm1 = nn.BatchNorm2d(outputs)
        small = (size + stride - 1) // stride
        self.conv2 = Conv2d(outputs, outputs, 3, size=small, spectral=spectral)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.stride, self.extra = stride, outputs - inputs
        self.project = None
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
            return self.project(x)  # type: ignore[no-any-return]
        if self.extra:
            x = torch.cat([x, x.new_zeros(x.shape[0], self.extra, *x.shape[2:])], dim=1)
        return x


class MLP(nn.Module):
    """A residual perceptron for rows: one linear layer, then `depth` blocks z + act(W z + b).

    With bounded W it keeps distances: a block stretches by at most 1 + σ(W) and, for σ(W) < 1,
    shrinks by at least 1 − σ(W).
    """

    def __init__(
        self,
        in_features: int,
        width: int = 128,
        depth: int = 4,
        *,
        dropout: float = 0.0,
        spectral: Spectral = OFF,
    ) -> None:
        super().__init__()
        _at_least("mlp", 1, in_features=in_features, width=width)
        _at_least("mlp", 0, depth=depth)
        self.first = Linear(in_features, width, spectral=spectral)
        self.blocks = nn.ModuleList(Linear(width, width, spectral=spectral) for _ in range(depth))
        self.dropout = nn.Dropout(dropout)
        self.num_features = width

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, ...) to (B, width); inputs with more dimensions are flattened."""
        z: Tensor = self.first(_checked_rows(x, "mlp", self.first.inputs))
        for block in self.blocks:
            z = z + self.dropout(functional.leaky_relu(block(z)))
        return z


class Identity(nn.Module):
    """z = x: a head directly on features that are at hand, such as those of a frozen network.

    `spectral` is without effect, as there is no layer to hold; every backbone takes it.
    """

    def __init__(self, in_features: int, *, dropout: float = 0.0, spectral: Spectral = OFF) -> None:
        super().__init__()
        _at_least("identity", 1, in_features=in_features)
        self.dropout = nn.Dropout(dropout)
        self.num_features = in_features

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, ...) to (B, D); inputs with more dimensions are flattened."""
        return self.dropout(_checked_rows(x, "identity", self.num_features))  # type: ignore[no-any-return]


resnet18, vgg16 = ResNet18, VGG16  # the names people know them by: resnet18(width=16)


def _at_least(network: str, least: int, **sizes: int) -> None:
    for name, size in sizes.items():
        check_int(f"{network}: {name}", size, least)


def _checked_images(x: Tensor, name: str, channels: int, size: int) -> Tensor:
    """Images (B, channels, size, size), channels last: a tenth to a quarter faster on CPUs."""
    if x.ndim != 4 or tuple(x.shape[1:]) != (channels, size, size):
        raise InputError(
            f"{name} was built for images ({channels}, {size}, {size}) in a batch, got shape "
            f"{tuple(x.shape)}; set in_channels and size, or add the batch dimension"
        )
    return x.to(memory_format=torch.channels_last)


def _checked_rows(x: Tensor, name: str, features: int) -> Tensor:
    """Samples of `features` numbers, flattened to (B, features)."""
    if x.ndim < 2 or math.prod(x.shape[1:]) != features:
        raise InputError(
            f"{name} was built for {features} numbers a sample in a batch, got shape "
            f"{tuple(x.shape)}; set in_features, or add the batch dimension"
        )
    return x.flatten(1)
