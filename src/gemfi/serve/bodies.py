"""From the body of a request to inputs of the model: read, checked, decoded.

Reading is bounded in bytes and time. `formats.py` checks JSON; here its flaws become answers that
name the place. Images are decoded as `gemfi predict` does it.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
import warnings
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from python_multipart import FormParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, parse_options_header

from gemfi.data.readers.images import read_image
from gemfi.errors import InputError
from gemfi.serve.formats import MANY, InputFormat
from gemfi.serve.schemas import ProblemError
from gemfi.serve.settings import Settings

Inputs = npt.NDArray[Any]

FORM: Final = "multipart/form-data"

TOGETHER: Final = 4
"""The images of one request may have this many times the pixels of one image."""

_DRAINED: Final = 8  # times the limit that is read and dropped, so that the sender hears of it
_FEW: Final = 1 << 16  # arrays or commas that are read in no time
_SHOWN: Final = 40  # characters of a name or a value in a message
_FORMATS: Final = ("PNG", "JPEG", "BMP", "WEBP")
_DATA_URL: Final = re.compile(r"data:[^,]{0,100};base64,", re.ASCII | re.IGNORECASE)
_SPACE: Final = str.maketrans("", "", " \t\r\n")
_CLOSE: Final = {"Connection": "close"}


# -- reading ---------------------------------------------------------------------------------------


async def read_body(stream: AsyncIterator[bytes], limit: int, seconds: float) -> bytes:
    """The whole body; 413 beyond `limit` bytes, 408 if it takes more than `seconds`."""
    parts: list[bytes] = []
    size = 0
    too_long = f"the body has more than the {limit:,} bytes allowed"
    try:
        async with asyncio.timeout(seconds):
            async for part in stream:
                size += len(part)
                if size > _DRAINED * limit:
                    raise ProblemError(413, "too_large", too_long, headers=_CLOSE)
                parts.append(part)
                if size > limit:
                    parts.clear()
    except TimeoutError:
        message = f"the body did not come within {seconds:g} s"
        raise ProblemError(408, "slow_body", message, headers=_CLOSE) from None
    if size > limit:
        raise ProblemError(413, "too_large", too_long)
    return b"".join(parts)


def check_size(body: bytes, form: InputFormat, max_inputs: int) -> None:
    """Refuse a body with more arrays or values than any request has; it is not parsed.

    To parse JSON holds the interpreter, so that nothing else is answered meanwhile. Fifteen
    megabytes of empty arrays take seconds, as many of numbers or of an image a fraction of one.
    """
    for sign, words, most in (
        (b"[", "arrays", 1 + max_inputs * form.lists),
        (b",", "values", max_inputs * form.numbers),
    ):
        count = body.count(sign)
        if count > max(_FEW, most):
            message = f"{count:,} {words}, more than {max_inputs} inputs of {form.words()} have"
            raise ProblemError(413, "too_large", message)


# -- JSON ------------------------------------------------------------------------------------------


def inputs_of_json(body: bytes, form: InputFormat, settings: Settings) -> tuple[Inputs, str]:
    """The inputs of a body (N, ...) as the model takes them, and the field that held them."""
    given = _parse_object(body)
    fields = [name for pair in MANY.items() for name in pair]
    if len(given) != 1 or not given.keys() <= set(fields):
        message = f"the body must have exactly one of {', '.join(fields)}"
        raise ProblemError(400, "malformed", message)
    ((field, value),) = given.items()
    values = value if field in MANY else [value]
    if not isinstance(values, list) or not values:
        raise ProblemError(422, "wrong_shape", f"{field} must be an array of at least one", field)
    if len(values) > settings.max_inputs:
        message = f"{len(values)} {field}, more than the {settings.max_inputs} allowed"
        raise ProblemError(413, "too_large", message, field)
    if field in {"images", "image"}:
        files = [_from_base64(text, place(field, index)) for index, text in enumerate(values)]
        return decode_images(files, field, form, settings), field
    return to_inputs(values, field, form), field


def _parse_object(body: bytes) -> dict[str, Any]:
    """The object that a body holds, strictly as JSON says."""
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        message = f"the body is not UTF-8: byte {error.start}"
    except json.JSONDecodeError as error:
        message = f"the body is not JSON: {error.msg} at character {error.pos}"
    except RecursionError:
        message = "the body is nested too deeply"
    except ValueError:  # Python refuses to read integers of thousands of digits
        message = "the body holds a number with too many digits"
    else:
        if isinstance(value, dict):
            return value
        message = 'the body must be an object, such as {"inputs": [...]}'
    raise ProblemError(400, "malformed", message)


def _refuse_constant(name: str) -> NoReturn:
    message = f"the body holds {name}, which is no number of JSON"
    raise ProblemError(422, "not_finite", message)


def to_inputs(values: list[Any], field: str, form: InputFormat) -> Inputs:
    """Nested arrays, or objects by the names of columns, as a batch (N, ...).

    `values` is the value of `inputs`, or [the value] of `input`; `field` says which.
    """
    if any(isinstance(value, dict) for value in values):
        return _rows_by_name(values, field, form)
    try:
        batch = np.array(form.samples.validate_python(values), np.float64)
    except ValidationError as error:
        raise _array_flaw(error.errors(include_url=False)[0], field, form) from None
    except ValueError:  # texts, which are right one by one
        message = "inputs of one request must have one length"
        raise ProblemError(422, "wrong_shape", message, field) from None
    if form.is_integer and (batch % 1).any():
        first = tuple(map(int, np.argwhere(batch % 1)[0]))
        message = f"{batch[first]} is not whole; an input is {form.words()}"
        raise ProblemError(422, "out_of_range", message, place(field, *first))
    return batch.astype(form.dtype)


def _array_flaw(error: ErrorDetails, field: str, form: InputFormat) -> ProblemError:
    """What pydantic found wrong in nested arrays."""
    kind, value, location = error["type"], error["input"], error["loc"]
    shown = _shown(value)
    if kind in {"too_short", "too_long"}:
        code = "wrong_shape"
        message = f"{len(value)} entries where {form.shape[len(location) - 1]} belong"
    elif kind == "list_type":
        code, message = "wrong_shape", f"expected an array here, got {shown}"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        code = "out_of_range" if form.is_integer else "not_finite"
        message = f"{shown} is out of range"
    else:
        code = "wrong_shape" if isinstance(value, list) else "not_a_number"
        message = f"expected a number here, got {shown}"
    message = f"{message}; an input is {form.words()}"
    return ProblemError(422, code, message, place(field, *location))


def _shown(value: Any) -> str:
    """A value of JSON for a message."""
    nested = isinstance(value, list | dict)
    return "an array or an object" if nested else json.dumps(value)[:_SHOWN]


def place(field: str, *path: Any) -> str:
    """A part of the request: the number of an input, and the way inside of it."""
    inside = path[1:] if field in MANY.values() else path
    return field + "".join(f"[{index}]" for index in inside)


def _rows_by_name(values: list[Any], field: str, form: InputFormat) -> Inputs:
    columns = form.columns
    if columns is None:
        message = f"this model knows no names of columns; an input is {form.words()}"
        raise ProblemError(422, "wrong_shape", message, field)
    for index, row in enumerate(values):
        if isinstance(row, dict) and len(row) > len(columns.names):  # pydantic would list them all
            unknown = next(name for name in row if name not in columns.names)
            message = f"there is no column {unknown[:_SHOWN]!r}"
            raise ProblemError(422, "wrong_shape", message, place(field, index))
    try:
        form.rows.validate_python(values)
    except ValidationError as error:
        raise _row_flaw(error.errors(include_url=False)[0], field, form) from None
    table = {name: [row[name] for row in values] for name in columns.names}
    return columns.encode(table)[0].astype(form.dtype)


def _row_flaw(error: ErrorDetails, field: str, form: InputFormat) -> ProblemError:
    """What pydantic found wrong in a row by names."""
    kind, cell, (index, *path) = error["type"], error["input"], error["loc"]
    name = str(path[0]) if path else ""
    code, shown = "wrong_shape", repr(name[:_SHOWN])
    if not path:
        message = "expected an object, as the other inputs are"
    elif kind == "missing":
        message = f"column {shown} is not there; a missing value is null"
    elif kind == "extra_forbidden":
        message = f"there is no column {shown}"
    else:
        columns = form.columns.columns if form.columns else ()
        is_number = any(column.name == name and column.kind == "number" for column in columns)
        wanted = "a number" if is_number else "a text"
        wanted += ", as in every row of the training data" if cell is None else ""
        code, message = "not_a_number", f"column {shown}: expected {wanted}, got {_shown(cell)}"
    return ProblemError(422, code, message, place(field, index))


# -- images ----------------------------------------------------------------------------------------


def _from_base64(text: Any, where: str) -> bytes:
    """The file in base64, or in a data: URL with it."""
    try:
        start = _DATA_URL.match(text)
        plain = text[start.end() if start else 0 :].translate(_SPACE)
        return base64.b64decode(plain, validate=True)
    except (TypeError, ValueError):
        message = "an image is a text: base64 of a file"
        raise ProblemError(422, "unreadable_image", message, where) from None


def inputs_of_form(
    body: bytes, content_type: str, form: InputFormat, settings: Settings
) -> tuple[Inputs, str]:
    """The images of a multipart form, its parts named `file`, and that name."""
    most = settings.max_inputs  # no more are read
    files: list[bytes] = []
    ends: list[bool] = []

    def add(part: Any) -> None:
        if part.field_name != b"file":
            shown = repr((part.field_name or b"").decode("utf-8", "replace")[:_SHOWN])
            message = f"the form has a part {shown}, but images are parts named 'file'"
            raise ProblemError(400, "malformed", message)
        if len(files) == most:
            raise ProblemError(413, "too_large", f"more than the {most} images allowed", "file")
        data = part.value if isinstance(part, Field) else part.file_object.getvalue()
        files.append(data or b"")

    boundary = parse_options_header(content_type)[1].get(b"boundary")
    in_memory = {"MAX_MEMORY_FILE_SIZE": len(body)}
    message = "the form ends before its last boundary"
    try:
        parser = FormParser(
            FORM, add, add, lambda: ends.append(True), boundary=boundary, config=in_memory
        )
        parser.write(body)
        parser.finalize()
    except (FormParserError, ValueError):
        ends.clear()
        message = f"the form cannot be read as {FORM} with a boundary and parts named 'file'"
    if not ends:
        raise ProblemError(400, "malformed", message)
    if not files:
        raise ProblemError(400, "malformed", "the form has no part", "file")
    return decode_images(files, "file", form, settings), "file"


class _NamedBytes(io.BytesIO):
    """Bytes that errors call by their place in the request."""

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(data)
        self._name = name

    def __repr__(self) -> str:
        return self._name


def decode_images(
    files: Sequence[bytes], field: str, form: InputFormat, settings: Settings
) -> Inputs:
    """Images (N, C, H, W) as the model takes them; `field` is their name in the request."""
    if form.kind != "image":
        message = f"this model does not take images; an input is {form.words()}"
        raise ProblemError(422, "wrong_kind", message, field)
    named = [_NamedBytes(data, place(field, index)) for index, data in enumerate(files)]
    most = TOGETHER * settings.max_pixels
    if sum(_count_pixels(file, settings.max_pixels) for file in named) > most:
        message = f"the images of a request may have {most:,} pixels together"
        raise ProblemError(413, "too_large", message, field)
    channels, height, width = form.shape
    images = np.zeros((len(named), *form.shape), np.uint8)
    for row, file in enumerate(named):
        try:
            images[row] = read_image(
                file,
                size=(height, width),
                mode="L" if channels == 1 else "RGB",
                crop=True,
                max_pixels=settings.max_pixels,
            )
        except InputError as error:
            message = f"{error}; give PNG, JPEG, BMP or WEBP"
            raise ProblemError(422, "unreadable_image", message, repr(file)) from None
    if form.dtype == "uint8":
        return images
    return (images.astype(np.float32) / np.float32(255)).astype(form.dtype)


def _count_pixels(file: _NamedBytes, limit: int) -> int:
    """The pixels that a header claims; nothing is unpacked."""
    from PIL import Image  # noqa: PLC0415 - optional

    message = f"more than the {limit:,} pixels allowed"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of many pixels, which are counted here
        try:
            with Image.open(file, formats=_FORMATS) as image:
                pixels = int(image.width * image.height)
        except Image.DecompressionBombError:
            raise ProblemError(413, "too_large", message, repr(file)) from None
        except (OSError, SyntaxError, ValueError, TypeError, IndexError, OverflowError):
            return 0  # `read_image` says what is wrong with it
    if pixels > limit:
        raise ProblemError(413, "too_large", f"{pixels:,} pixels, {message}", repr(file))
    return pixels
