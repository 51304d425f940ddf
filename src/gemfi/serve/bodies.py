"""From the body of a request to inputs of the model: read, checked, decoded.

Reading is bounded in bytes and time. Checking JSON is `formats.py`'s; here its flaws become answers
that name the place. Images are decoded as `gemfi predict` does it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import json
import re
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from gemfi.data.readers.images import read_image
from gemfi.errors import InputError
from gemfi.serve.formats import MANY, InputFormat
from gemfi.serve.problems import ProblemError, malformed, too_large, unusable
from gemfi.serve.settings import Settings

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Inputs = npt.NDArray[Any]

TOGETHER: Final = 4
"""The images of one request may have this many times the pixels of one image."""

_DRAINED: Final = 8  # times the limit that is read and dropped, so that the sender hears of it
_FEW: Final = 1 << 16  # arrays or commas that are read in no time
_SHOWN: Final = 40  # characters of a name or a value in a message
_FORMATS: Final = ("PNG", "JPEG", "BMP", "WEBP")
_DATA_URL: Final = re.compile(r"data:[^,]{0,100};base64,", re.ASCII | re.IGNORECASE)
_SPACE: Final = str.maketrans("", "", " \t\r\n")
_CLOSE: Final = {"Connection": "close"}


class DisconnectedError(Exception):
    """The client has gone; there is nobody to answer."""


# -- reading ---------------------------------------------------------------------------------------


async def read_body(receive: Receive, limit: int, seconds: float) -> bytes:
    """The whole body; 413 beyond `limit` bytes, 408 if it takes more than `seconds`."""
    parts: list[bytes] = []
    size = 0
    too_long = f"the body has more than the {limit:,} bytes allowed"
    try:
        async with asyncio.timeout(seconds):
            async for part in _parts(receive):
                size += len(part)
                if size > _DRAINED * limit:
                    raise ProblemError(413, "too_large", too_long, headers=_CLOSE)
                if size > limit:
                    parts.clear()
                else:
                    parts.append(part)
    except TimeoutError:
        message = f"the body did not come within {seconds:g} s"
        raise ProblemError(408, "slow_body", message, headers=_CLOSE) from None
    if size > limit:
        raise too_large(too_long)
    return b"".join(parts)


async def _parts(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        yield message.get("body", b"")
        more = message.get("more_body", False)


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
            raise too_large(
                f"{count:,} {words}, more than {max_inputs} inputs of {form.words()} have"
            )


# -- JSON ------------------------------------------------------------------------------------------


def inputs_of_json(body: bytes, form: InputFormat, settings: Settings) -> tuple[Inputs, str]:
    """The inputs of a body (N, ...) as the model takes them, and the field that held them."""
    given = _parse_object(body)
    fields = (*MANY, *MANY.values())
    if len(given) != 1 or not given.keys() <= set(fields):
        one_of = ", ".join(name for pair in MANY.items() for name in pair)
        raise malformed(f"the body must have exactly one of {one_of}")
    ((field, value),) = given.items()
    values = value if field in MANY else [value]
    if field in {"images", "image"}:
        files = _files_of_base64(values, field, settings.max_inputs)
        return decode_images(files, field, form, settings), field
    return to_inputs(values, field, form, settings.max_inputs), field


def _parse_object(body: bytes) -> dict[str, Any]:
    """The object that a body holds, strictly as JSON says."""
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise malformed(f"the body is not UTF-8: byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise malformed(f"the body is not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise malformed("the body is nested too deeply") from None
    except ValueError:  # Python refuses to read integers of thousands of digits
        raise malformed("the body holds a number with too many digits") from None
    if not isinstance(value, dict):
        raise malformed('the body must be an object, such as {"inputs": [...]}')
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise unusable("not_finite", f"the body holds {name}, which is no number of JSON")


def to_inputs(values: Any, field: str, form: InputFormat, max_inputs: int) -> Inputs:
    """Nested arrays, or objects by the names of columns, as a batch (N, ...).

    Args:
        values: the value of `inputs`, or [the value] of `input`.
        field: `inputs` or `input`.
        form: what the model takes.
        max_inputs: greatest number of inputs.
    """
    if not isinstance(values, list):
        raise unusable("wrong_shape", "inputs must be an array of inputs", field)
    if not values:
        raise unusable("wrong_shape", "give at least one input", field)
    if len(values) > max_inputs:
        raise too_large(f"{len(values)} inputs, more than the {max_inputs} allowed", field)
    if any(isinstance(value, dict) for value in values):
        return _rows_by_name(values, field, form)
    try:
        batch = np.array(form.samples_adapter.validate_python(values), np.float64)
    except ValidationError as error:
        raise _array_flaw(error.errors(include_url=False)[0], field, form) from None
    except ValueError:  # texts, which are right one by one
        message = "inputs of one request must have one length"
        raise unusable("wrong_shape", message, field) from None
    if form.is_integer and (batch % 1).any():  # pydantic takes 1e-40 for a multiple of 1
        first = tuple(map(int, np.argwhere(batch % 1)[0]))
        message = f"{batch[first]} is not whole; an input is {form.words()}"
        raise unusable("out_of_range", message, _position(field, first))
    return batch.astype(form.dtype)


def _array_flaw(error: ErrorDetails, field: str, form: InputFormat) -> ProblemError:
    """What pydantic found wrong in nested arrays."""
    kind, value, location = error["type"], error["input"], error["loc"]
    code = "wrong_shape"
    if kind == "list_type":
        message = "expected an array here"
    elif kind in {"too_short", "too_long"}:
        message = f"{len(value)} entries where {form.shape[len(location) - 1]} belong"
    elif kind == "multiple_of":
        code, message = "out_of_range", f"{value} is not whole"
    elif kind != "float_type" or (isinstance(value, int) and not isinstance(value, bool)):
        code = "out_of_range" if form.is_integer else "not_finite"
        is_long = isinstance(value, int) and value.bit_length() >= 100
        message = f"{'an integer of many digits' if is_long else value} is out of range"
    else:
        is_list = isinstance(value, list)
        code = "wrong_shape" if is_list else "not_a_number"
        shown = "an array" if is_list else json.dumps(value)[:_SHOWN]
        message = f"expected a number here, got {shown}"
    return unusable(code, f"{message}; an input is {form.words()}", _position(field, location))


def _position(field: str, location: Sequence[Any]) -> str:
    """A number of an input by its place in the request."""
    return field + "".join(f"[{index}]" for index in location[0 if field in MANY else 1 :])


def _rows_by_name(values: list[Any], field: str, form: InputFormat) -> Inputs:
    columns = form.columns
    if columns is None:
        message = f"this model knows no names of columns; an input is {form.words()}"
        raise unusable("wrong_shape", message, field)
    for index, row in enumerate(values):
        if isinstance(row, dict) and len(row) > len(columns.names):  # pydantic would list them all
            unknown = next(name for name in row if name not in columns.names)
            raise _unknown_column(unknown, place(field, index))
    try:
        form.rows_adapter.validate_python(values)
    except ValidationError as error:
        raise _row_flaw(error.errors(include_url=False)[0], field, form) from None
    table = {name: [row[name] for row in values] for name in columns.names}
    return columns.encode(table)[0].astype(form.dtype)


def _row_flaw(error: ErrorDetails, field: str, form: InputFormat) -> ProblemError:
    """What pydantic found wrong in a row by names."""
    kind, cell, (index, *path) = error["type"], error["input"], error["loc"]
    where = place(field, int(index))
    if not path:
        return unusable("wrong_shape", "expected an object, as the other inputs are", where)
    name = str(path[0])
    shown = repr(name[:_SHOWN])
    if kind == "missing":
        message = f"column {shown} is not there; a missing value is null"
        return unusable("wrong_shape", message, where)
    if kind == "extra_forbidden":
        return _unknown_column(name, where)
    columns = () if form.columns is None else form.columns.columns
    is_number = any(column.name == name and column.kind == "number" for column in columns)
    wanted = "a number" if is_number else "a text"
    if cell is None:
        wanted += ", as in every row of the training data"
    nested = isinstance(cell, list | dict)
    got = "an array or an object" if nested else json.dumps(cell)[:_SHOWN]
    return unusable("not_a_number", f"column {shown}: expected {wanted}, got {got}", where)


def _unknown_column(name: str, where: str) -> ProblemError:
    return unusable("wrong_shape", f"there is no column {name[:_SHOWN]!r}", where)


def place(field: str, index: int) -> str:
    """An input by its place in the request."""
    return field if field in MANY.values() else f"{field}[{index}]"


# -- images ----------------------------------------------------------------------------------------


def _files_of_base64(texts: Any, field: str, max_inputs: int) -> list[bytes]:
    """The files of `images`, or [the value] of `image`: base64, or data: URLs with it."""
    if not isinstance(texts, list) or not texts:
        raise unusable("wrong_shape", "images must be an array of at least one text", field)
    if len(texts) > max_inputs:
        raise too_large(f"{len(texts)} images, more than the {max_inputs} allowed", field)
    files = []
    for index, text in enumerate(texts):
        where = place(field, index)
        if not isinstance(text, str):
            raise unusable("unreadable_image", "an image is a text: base64 of a file", where)
        start = _DATA_URL.match(text)
        plain = text[start.end() if start else 0 :].translate(_SPACE)
        try:
            files.append(base64.b64decode(plain, validate=True))
        except (binascii.Error, ValueError):
            raise unusable("unreadable_image", "this is not base64 of a file", where) from None
    return files


def files_of_form(body: bytes, content_type: str, most: int) -> list[bytes]:
    """The parts named `file` of a multipart form, in order; no more than `most` are read."""
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise malformed("the form has no boundary in its Content-Type")
    form = _Form(most)
    callbacks: Any = {name: getattr(form, name) for name in dir(form) if name.startswith("on_")}
    try:
        parser = MultipartParser(boundary, callbacks)
        parser.write(body)
        parser.finalize()
    except (FormParserError, ValueError):
        raise malformed("the form cannot be read as multipart/form-data") from None
    if not form.is_complete:
        raise malformed("the form ends before its last boundary")
    if not form.files:
        raise malformed("the form has no part", "file")
    return form.files


class _Form:
    """Collects the parts of a form; its methods `on_...` are the parser's callbacks."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.files: list[bytes] = []
        self.is_complete = False
        self._header, self._value, self._data = b"", b"", bytearray()
        self._name: bytes | None = None

    def on_part_begin(self) -> None:
        self._name, self._data = None, bytearray()

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._name = parse_options_header(self._value)[1].get(b"name")
        self._header = self._value = b""

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._data += data[start:end]

    def on_part_end(self) -> None:
        if self._name != b"file":
            shown = repr((self._name or b"").decode("utf-8", "replace")[:_SHOWN])
            raise malformed(f"the form has a part {shown}, but images are parts named 'file'")
        if len(self.files) == self.most:
            raise too_large(f"more than the {self.most} images allowed", "file")
        self.files.append(bytes(self._data))

    def on_end(self) -> None:
        self.is_complete = True


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
        raise unusable("wrong_kind", message, field)
    named = [_NamedBytes(data, place(field, index)) for index, data in enumerate(files)]
    left = TOGETHER * settings.max_pixels
    for file in named:
        left -= _count_pixels(file, settings.max_pixels)
        if left < 0:
            most = TOGETHER * settings.max_pixels
            raise too_large(f"the images of a request may have {most:,} pixels together", field)
    images = np.stack([_read_image(file, form, settings) for file in named])
    if form.dtype == "uint8":
        return images
    return (images.astype(np.float32) / np.float32(255)).astype(form.dtype)


def _count_pixels(file: _NamedBytes, limit: int) -> int:
    """The pixels that a header claims; nothing is unpacked."""
    from PIL import Image  # noqa: PLC0415 - optional

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of many pixels, which are counted here
        try:
            with Image.open(file, formats=_FORMATS) as image:
                width, height = image.size
        except Image.DecompressionBombError:
            raise too_large(f"more than the {limit:,} pixels allowed", repr(file)) from None
        except (OSError, SyntaxError, ValueError, TypeError, IndexError, OverflowError):
            return 0  # `read_image` says what is wrong with it
    pixels = int(width * height)
    if pixels > limit:
        message = f"{width}×{height} is {pixels:,} pixels, more than the {limit:,} allowed"
        raise too_large(message, repr(file))
    return pixels


def _read_image(file: _NamedBytes, form: InputFormat, settings: Settings) -> npt.NDArray[np.uint8]:
    channels, *size = form.shape
    file.seek(0)
    try:
        return read_image(
            file,
            size=(size[0], size[1]),
            mode="L" if channels == 1 else "RGB",
            crop=True,
            max_pixels=settings.max_pixels,
        )
    except InputError as error:
        message = f"{error}; give PNG, JPEG, BMP or WEBP"
        raise unusable("unreadable_image", message, repr(file)) from None
