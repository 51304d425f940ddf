"""A small fast network for CIFAR: a fixed whitening of 2×2 patches, then three groups of two."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional

from gemfi._config import check_int
from gemfi.backbones.networks import ImageNetwork
from gemfi.density import Fitted
from gemfi.errors import InputError
from gemfi.spectral import OFF, Conv2d, Spectral

_PATCH = 2
_FLOOR = 5e-4  # added to the variance of a direction of patches


class WhiteNet(ImageNetwork):
    """The network of the CIFAR-10 speed records: whitening, then three groups with GELU.

    Its first convolution is not learned. It is fitted to the first batch of training: a filter for
    each direction of 2×2 patches, of unit variance, and another of the opposite sign. A group is a
    3×3 convolution, 2×2 max pooling, and another convolution, each with a batch norm and a GELU.
    Features are the largest value of each of the last maps.

    Args:
        in_channels: of the images.
        size: of the images, at least 16.
        widths: channels of the three groups.
        dropout: rate on the features.
        spectral: normalisation of the learned convolutions.
    """

    def __init__(
        self,
        in_channels: int = 3,
        size: int = 32,
        widths: tuple[int, int, int] = (64, 256, 256),
        *,
        dropout: float = 0.0,
        spectral: Spectral = OFF,
    ) -> None:
        super().__init__(in_channels, size, 16, dropout)  # it pools three times
        if len(widths) != 3:
            raise InputError(f"whitenet: widths are those of three groups, got {widths}")
        for width in widths:
            check_int("whitenet: widths", width, 1)
        self.whitening = Whitening(in_channels)
        self.groups = nn.ModuleList()
        channels, side = self.whitening.num_filters, size - 1
        for width in widths:
            self.groups.append(_Group(channels, width, side, spectral))
            channels, side = width, side // 2
        self.num_features, self.num_taps = channels, 2 * sum(widths)

    def maps(self, x: Tensor) -> Iterator[Tensor]:
        """What each of the three groups makes."""
        x = functional.gelu(self.whitening(x))
        for group in self.groups:
            x = group(x)
            yield x

    def pool(self, last: Tensor) -> Tensor:
        """The largest value of each of the last maps."""
        return last.amax(dim=(2, 3))


class _Group(nn.Module):
    def __init__(self, inputs: int, outputs: int, size: int, spectral: Spectral) -> None:
        super().__init__()
        self.conv1 = Conv2d(inputs, outputs, 3, size=size, spectral=spectral)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = Conv2d(outputs, outputs, 3, size=size // 2, spectral=spectral)
        self.norm2 = nn.BatchNorm2d(outputs)
        with torch.no_grad():  # it begins by passing its inputs on
            for conv in (self.conv1, self.conv2):
                nn.init.dirac_(conv.weight[: conv.weight.shape[1]])

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(self.norm1(functional.max_pool2d(self.conv1(x), 2)))
        return functional.gelu(self.norm2(self.conv2(x)))


class Whitening(Fitted):
    """A convolution whose outputs are uncorrelated and of unit variance on the first batch.

    Before that batch its filters are the pixels of a patch. Biases are learned.
    """

    weight: Tensor

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        size = in_channels * _PATCH**2
        pixels = torch.eye(size).view(size, in_channels, _PATCH, _PATCH)
        self.num_filters = 2 * size
        self.bias = nn.Parameter(torch.zeros(self.num_filters))
        self.register_buffer("weight", torch.cat([pixels, -pixels]))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, 8·C, H − 1, W − 1)."""
        if self.training and not self.fitted:
            self.fit(x)
        return functional.conv2d(x, self.weight, self.bias)

    @torch.no_grad()
    def fit(self, x: Tensor) -> None:
        """Set the filters from the patches of a batch; of several processes, from all batches."""
        patches = functional.unfold(x.detach().float(), _PATCH)  # (B, C·4, positions)
        total = torch.einsum("bip,bjp->ij", patches, patches)
        count = total.new_full((1, total.shape[1]), patches.shape[2] * len(x))
        sums = torch.cat([total, count])
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(sums)
        moments = sums[:-1] / sums[-1]
        # on the CPU in float64: not every device has an eigendecomposition
        values, vectors = torch.linalg.eigh(moments.to("cpu", torch.float64))
        filters = (vectors / (values + _FLOOR).sqrt()).T.view(-1, *self.weight.shape[1:])
        self.weight.copy_(torch.cat([filters, -filters]))
        self.mark_fitted()


whitenet = WhiteNet
