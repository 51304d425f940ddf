"""Bundles that somebody with bad intent would write: any header, with a checksum that is right."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

GOLDEN = Path(__file__).parents[1] / "bundle" / "golden-2.safetensors"
STEERING = "\x1b]0;x\x07\u202e\x9b2J"
"""Renames the window of a terminal, turns the writing around, and clears the screen."""
_ZEROS = "0" * 64


def golden_header() -> dict[str, Any]:
    """What the golden bundle says of its model."""
    data = GOLDEN.read_bytes()
    outer = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    found: dict[str, Any] = json.loads(outer["__metadata__"]["gemfi"])
    return {key: value for key, value in found.items() if key not in {"checksum", "schema"}}


def forge(
    path: Path,
    header: Mapping[str, Any] | str,
    tensors: Mapping[str, Tensor] | None = None,
    schema: int = 2,
) -> Path:
    """Write a file that `gemfi.load` has to judge by what it says.

    Args:
        path: of the file.
        header: values for JSON, NaN and infinity included; or the text itself, without its braces.
        tensors: of the file; those of the golden bundle by default.
        schema: that it states.
    """
    inner = header if isinstance(header, str) else json.dumps(header)[1:-1]
    text = f'{{"checksum": "{_ZEROS}", "schema": {schema}, {inner}}}'
    given = load(GOLDEN.read_bytes()) if tensors is None else dict(tensors)
    data = save(given, metadata={"gemfi": text})
    digest = hashlib.sha256(data).hexdigest()
    path.write_bytes(data.replace(_ZEROS.encode(), digest.encode(), 1))
    return path
