"""A small network for images, with the parts that need care on a device, and models on it."""

from __future__ import annotations

from torch import Tensor, nn

from gemfi.backbones import Stack
from gemfi.methods import METHODS
from gemfi.model import Model, build_model


class Net(nn.Module):
    """Convolution, batch norm and pooling."""

    num_features = 8

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


def make(method: str) -> Model:
    copies = METHODS[method].copies(METHODS[method].default)
    backbone = Net() if copies == 1 else Stack([Net() for _ in range(copies)])
    return build_model(method, backbone, 4)
