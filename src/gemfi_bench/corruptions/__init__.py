"""Common corruptions: the 19 types of CIFAR-10-C and the 15 of MNIST-C, generated and seeded.

The constants and the steps are those of Hendrycks & Dietterich (2019) and of Mu & Gilmer (2019);
the code is our own. `docs/corruptions.md` has the table, the pictures and what is approximate. To
add a type, write a function on a batch and enter it in `table.toml`.
"""

from __future__ import annotations

from gemfi_bench.corruptions.apply import (
    ANY_SIZE,
    CORRUPTIONS_CIFAR,
    CORRUPTIONS_MNIST,
    FAMILIES,
    MADE_SEED,
    SEVERITIES,
    SHAPES,
    Corruption,
    corrupt,
    corrupt_small,
    write_published_layout,
)

__all__ = [
    "ANY_SIZE",
    "CORRUPTIONS_CIFAR",
    "CORRUPTIONS_MNIST",
    "FAMILIES",
    "MADE_SEED",
    "SEVERITIES",
    "SHAPES",
    "Corruption",
    "corrupt",
    "corrupt_small",
    "write_published_layout",
]
