"""Features of a real pretrained network in place of images: extracted once, then kept.

The network is EfficientNet-Lite0, trained on ImageNet and never trained here. Its published weights
are converted once, by `convert_weights` or `python -m gemfi_bench.frozen FILE`; after that nothing
is unpickled.
"""

from __future__ import annotations

from gemfi_bench.frozen.features import cifar10_frozen, frozen_features
from gemfi_bench.frozen.weights import convert_weights

__all__ = ["cifar10_frozen", "convert_weights", "frozen_features"]
