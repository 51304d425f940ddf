"""The 19 types of CIFAR-10-C and the 15 of MNIST-C, with their published constants."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gemfi.data.corruptions import functions
from gemfi.data.corruptions.fields import Constants, Floats

Function = Callable[..., Floats]


@dataclass(frozen=True)
class Corruption:
    """One type of corruption.

    Args:
        name: as in the published files.
        function: (B, C, H, W) in [0, 1], B generators and the constants of one severity -> the
            corrupted images, not yet clipped.
        constants: of each severity, mildest first; one entry where there is one severity.
        meaning: what the numbers of an entry are, in order.
        provenance: the publication, and what the constants were compared with.
        random: whether the seed matters.
        approximation: how and why the result differs from the published procedure; None where
            only the random draws differ.
    """

    name: str
    function: Function
    constants: tuple[Constants, ...]
    meaning: str
    provenance: str
    random: bool = True
    approximation: str | None = None


def _read_facts() -> dict[str, dict[str, Corruption]]:
    facts = tomllib.loads(Path(__file__).with_name("table.toml").read_text(encoding="utf-8"))
    return {
        family: {
            name: Corruption(
                name,
                getattr(functions, record.get("function", name)),
                tuple(map(tuple, record["constants"])),
                record["meaning"],
                table["provenance"],
                record.get("random", True),
                record.get("approximation"),
            )
            for name, record in table["types"].items()
        }
        for family, table in facts.items()
    }


FAMILIES: dict[str, dict[str, Corruption]] = _read_facts()
"""Name of a family -> its corruptions."""

CORRUPTIONS_CIFAR = FAMILIES["cifar10"]
"""Name of a type -> its record, in the order of the paper: the 15 of the benchmark, then 4 more."""

CORRUPTIONS_MNIST = FAMILIES["mnist"]
"""Name of a type -> its record; `identity`, the clean images, is not among them."""
