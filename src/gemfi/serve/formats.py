"""What a model takes, as the server checks it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Final

from gemfi.backbones import Tokens
from gemfi.bundle import Bundle, Kind
from gemfi.data.columns import Columns
from gemfi.serve.settings import Settings

_FLOAT32: Final = 3.4028234663852886e38  # the largest
_LONGEST: Final = len("-1.7976931348623157e+308")
_CELL: Final = 256  # bytes of a category and what is around it
_SOME_BYTES: Final = 2**16
_MANY_BYTES: Final = 2**24


@dataclass(frozen=True)
class InputFormat:
    """What a model takes.

    Attributes:
        kind: image, row of numbers, text as token ids, or any other array.
        shape: of one input; of a text, its greatest length.
        dtype: `uint8`, `float32`, `float64` or `int64`.
        tokens: of a text.
        columns: of a table, whose rows may come as objects by name.
    """

    kind: Kind
    shape: tuple[int, ...]
    dtype: str
    tokens: Tokens | None = None
    columns: Columns | None = None

    @classmethod
    def of(cls, bundle: Bundle, settings: Settings) -> InputFormat:
        """The format of a bundle's model."""
        tokens = bundle.model.tokens
        if tokens is not None:
            return cls("text", (settings.max_tokens,), "int64", tokens)
        return cls(bundle.kind, bundle.sample_shape, _dtype(bundle), columns=bundle.columns)

    @property
    def is_whole(self) -> bool:
        """Whether only whole numbers are taken: bytes and token ids."""
        return self.dtype in {"uint8", "int64"}

    def bounds(self) -> tuple[float, float]:
        """The least and the greatest number that is taken."""
        if self.tokens is not None:
            return 0, self.tokens.vocabulary - 1
        return (0, 255) if self.dtype == "uint8" else (-_FLOAT32, _FLOAT32)

    def schema(self) -> dict[str, Any]:
        """One input as a JSON schema."""
        low, high = self.bounds()
        found: dict[str, Any] = {
            "type": "integer" if self.is_whole else "number",
            "minimum": low,
            "maximum": high,
        }
        for length in reversed(self.shape):
            least = 1 if self.tokens is not None else length
            found = {"type": "array", "items": found, "minItems": least, "maxItems": length}
        return found

    @property
    def numbers(self) -> int:
        """How many numbers an input has, at most."""
        return math.prod(self.shape)

    @property
    def lists(self) -> int:
        """How many arrays of JSON an input has, at most."""
        return sum(math.prod(self.shape[:depth]) for depth in range(len(self.shape)))

    def max_bytes(self, max_inputs: int) -> int:
        """Of a body: what that many inputs take, but one input and 64 KiB always fit.

        16 MiB is enough otherwise, and what images need, since a file may be larger than what the
        model sees of it.
        """
        longest = len(str(int(self.bounds()[1]))) if self.is_whole else _LONGEST
        comma = len(", ")
        one = self.numbers * (longest + comma) + self.lists * (len("[]") + comma)
        if self.columns is not None:  # an object by the names of the columns
            one += sum(len(json.dumps(name)) + _CELL for name in self.columns.names)
        many = _MANY_BYTES if self.kind == "image" else min(max_inputs * one, _MANY_BYTES)
        return max(one, many, _SOME_BYTES)

    def words(self) -> str:
        """What an input is, for messages."""
        size = "×".join(map(str, self.shape))
        if self.tokens is not None:
            return f"1 to {self.shape[0]} token ids from 0 to {self.tokens.vocabulary - 1}"
        numbers = "whole numbers from 0 to 255" if self.dtype == "uint8" else "numbers"
        return f"{size} {numbers}"


def _dtype(bundle: Bundle) -> str:
    known = bundle.info.sample_dtype
    return known if known in {"uint8", "float64"} else "float32"
