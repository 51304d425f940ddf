"""What a model takes, as pydantic types that check requests and describe them in OpenAPI."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final

from pydantic import ConfigDict, FailFast, Field, TypeAdapter, WithJsonSchema
from pydantic import create_model as create_pydantic_model

from gemfi.backbones import Tokens
from gemfi.bundle import Bundle, Kind
from gemfi.data.columns import Columns
from gemfi.serve.settings import Settings

MANY: Final = {"inputs": "input", "images": "image"}
"""The field of several inputs -> the field of one."""

_FLOAT32: Final = 3.4028234663852886e38  # the largest
_LONGEST: Final = len("-1.7976931348623157e+308")
_COMMA: Final = len(", ")
_CELL: Final = 256  # bytes of a category and what is around it
_SOME_BYTES: Final = 2**16
_MANY_BYTES: Final = 2**24
_MOST_NUMBERS: Final = 64  # of an example
_PIXEL: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGM4AQAAygDJmcpdfgAAAABJRU5ErkJggg=="
)


@dataclass(frozen=True)
class InputFormat:
    """What a model takes.

    Attributes:
        kind: image, row of numbers, text as token ids, or any other array.
        shape: of one input; of a text, its greatest length.
        dtype: `uint8`, `float32`, `float64` or `int64`.
        tokens: how texts become token ids; None for other inputs.
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
        known = bundle.info.sample_dtype
        dtype = known if known in {"uint8", "float64"} else "float32"
        return cls(bundle.kind, bundle.sample_shape, dtype, columns=bundle.columns)

    @property
    def is_integer(self) -> bool:
        """Whether only whole numbers are taken: bytes and token ids."""
        return self.dtype in {"uint8", "int64"}

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest number that is taken."""
        if self.tokens is not None:
            return 0, self.tokens.vocabulary - 1
        return (0, 255) if self.dtype == "uint8" else (-_FLOAT32, _FLOAT32)

    def words(self) -> str:
        """What an input is, for messages."""
        if self.tokens is not None:
            return f"1 to {self.shape[0]} token ids from 0 to {self.tokens.vocabulary - 1}"
        numbers = "whole numbers from 0 to 255" if self.dtype == "uint8" else "numbers"
        return f"{'×'.join(map(str, self.shape))} {numbers}"

    # -- limits ------------------------------------------------------------------------------------

    @property
    def numbers(self) -> int:
        """How many numbers an input has, at most."""
        return math.prod(self.shape)

    @property
    def lists(self) -> int:
        """How many arrays of JSON an input has, at most."""
        return sum(math.prod(self.shape[:depth]) for depth in range(len(self.shape)))

    def max_bytes(self, max_inputs: int) -> int:
        """Bytes of a body: what that many inputs take, but one input and 64 KiB always fit.

        16 MiB is enough otherwise, and what images need, since a file may be larger than what the
        model sees of it.
        """
        longest = len(str(int(self.bounds[1]))) if self.is_integer else _LONGEST
        one = self.numbers * (longest + _COMMA) + self.lists * (len("[]") + _COMMA)
        if self.columns is not None:  # an object by the names of the columns
            one += sum(len(json.dumps(name)) + _CELL for name in self.columns.names)
        many = _MANY_BYTES if self.kind == "image" else min(max_inputs * one, _MANY_BYTES)
        return max(one, many, _SOME_BYTES)

    # -- pydantic types ----------------------------------------------------------------------------

    @property
    def number(self) -> Any:
        """One number of an input; that integers are whole is not checked here."""
        low, high = self.bounds
        number = Annotated[float, Field(strict=True, ge=low, le=high)]
        if not self.is_integer:
            return number
        schema = {"type": "integer", "minimum": low, "maximum": high}
        return Annotated[number, WithJsonSchema(schema)]

    @cached_property
    def samples(self) -> TypeAdapter[list[Any]]:
        """Inputs as nested arrays."""
        sample = self.number
        for length in reversed(self.shape):
            least = 1 if self.tokens is not None else length
            sample = Annotated[_checked(sample), Field(min_length=least, max_length=length)]
        return TypeAdapter(_checked(sample))

    @cached_property
    def rows(self) -> TypeAdapter[list[Any]]:
        """Rows as objects by the names of the columns."""
        cells: dict[str, Any] = {}
        for index, column in enumerate(self.columns.columns if self.columns else ()):
            cell: Any = str | int | float | bool | None
            if column.kind == "number":
                cell = self.number | bool | None if column.missing else self.number | bool
            cells[f"column_{index}"] = cell, Field(alias=column.name)
        strict = ConfigDict(extra="forbid", strict=True)
        return TypeAdapter(_checked(create_pydantic_model("Row", __config__=strict, **cells)))

    # -- OpenAPI -----------------------------------------------------------------------------------

    def contents(self, max_inputs: int) -> dict[str, Any]:
        """Every body that is taken, by its Content-Type, as OpenAPI describes it."""
        is_image = self.kind == "image"

        def several(schema: Any) -> dict[str, Any]:
            return {"type": "array", "items": schema, "minItems": 1, "maxItems": max_inputs}

        kinds = [("inputs", self.samples.json_schema()["items"])]
        if self.columns is not None:
            kinds.append(("inputs", self.rows.json_schema()["$defs"]["Row"]))
        if is_image:
            text = "Base64 of a PNG, JPEG, BMP or WEBP file, or a data: URL of it."
            kinds.append(("images", {"type": "string", "description": text}))
        choices = [
            _only(name, value)
            for many, schema in kinds
            for name, value in ((many, several(schema)), (MANY[many], schema))
        ]
        json_body = {"schema": {"oneOf": choices}, "examples": self._examples()}
        file = {"type": "string", "format": "binary"}
        form = {"multipart/form-data": {"schema": _only("file", several(file))}}
        return {"application/json": json_body} | (form if is_image else {})

    def _examples(self) -> dict[str, Any]:
        """Bodies to copy: an image, or numbers if they are few."""
        examples: dict[str, Any] = {}
        if self.kind == "image":
            examples["image"] = {"summary": "A file (of one pixel)", "value": {"image": _PIXEL}}
        shape = self.shape if self.tokens is None else (3,)
        if math.prod(shape) <= _MOST_NUMBERS:
            one: Any = 1
            for length in reversed(shape):
                one = [one] * length
            examples["one"] = {"summary": "One input", "value": {"input": one}}
            examples["two"] = {"summary": "Two inputs", "value": {"inputs": [one, one]}}
        return examples


def _checked(item: Any) -> Any:
    """A list that is refused at its first flaw, so that a body of flaws takes no memory."""
    return Annotated[list[item], FailFast()]


def _only(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: schema},
        "required": [name],
        "additionalProperties": False,
    }
