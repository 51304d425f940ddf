"""Random weights in the names and shapes in which EfficientNet-Lite0 is published."""

from __future__ import annotations

import torch
from torch import Tensor

# inputs, outputs, kernel, stride, expansion: block by block, as the published network has them
BLOCKS = (
    (32, 16, 3, 1, 1),
    (16, 24, 3, 2, 6), (24, 24, 3, 1, 6),
    (24, 40, 5, 2, 6), (40, 40, 5, 1, 6),
    (40, 80, 3, 2, 6), (80, 80, 3, 1, 6), (80, 80, 3, 1, 6),
    (80, 112, 5, 1, 6), (112, 112, 5, 1, 6), (112, 112, 5, 1, 6),
    (112, 192, 5, 2, 6), (192, 192, 5, 1, 6), (192, 192, 5, 1, 6), (192, 192, 5, 1, 6),
    (192, 320, 3, 1, 6),
)  # fmt: skip


class Maker:
    """Collects tensors; scaled so that a signal lives through sixteen blocks."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.state: dict[str, Tensor] = {}

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=self.generator)

    def conv(self, name: str, *shape: int) -> None:
        spread = (3 / (shape[1] * shape[2] * shape[3])) ** 0.5
        self.state[f"{name}.weight"] = 2 * self.uniform(-spread, spread, *shape)

    def norm(self, name: str, channels: int) -> None:
        self.state[f"{name}.weight"] = self.uniform(0.5, 1.5, channels)
        self.state[f"{name}.bias"] = self.uniform(-0.2, 0.8, channels)
        self.state[f"{name}.running_mean"] = self.uniform(-0.5, 0.5, channels)
        self.state[f"{name}.running_var"] = self.uniform(0.5, 2.0, channels)
        self.state[f"{name}.num_batches_tracked"] = torch.tensor(7)


def published_state(seed: int = 0) -> dict[str, Tensor]:
    """What the published file holds, with random numbers."""
    made = Maker(seed)
    made.conv("_conv_stem", 32, 3, 3, 3)
    made.norm("_bn0", 32)
    for index, (inputs, outputs, kernel, _, expansion) in enumerate(BLOCKS):
        block, wide = f"_blocks.{index}", inputs * expansion
        if expansion > 1:
            made.conv(f"{block}._expand_conv", wide, inputs, 1, 1)
            made.norm(f"{block}._bn0", wide)
        made.conv(f"{block}._depthwise_conv", wide, 1, kernel, kernel)
        made.norm(f"{block}._bn1", wide)
        made.conv(f"{block}._project_conv", outputs, wide, 1, 1)
        made.norm(f"{block}._bn2", outputs)
    made.conv("_conv_head", 1280, 320, 1, 1)
    made.norm("_bn1", 1280)
    made.state["_fc.weight"] = made.uniform(-1, 1, 1000, 1280)
    made.state["_fc.bias"] = made.uniform(-1, 1, 1000)
    return made.state
