"""Images in requests: decoded as `gemfi predict` does it, after a look at what they claim to be."""

from __future__ import annotations

import base64
import binascii
import io
import re
import warnings
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gemfi.data.readers.images import read_image
from gemfi.errors import InputError
from gemfi.serve.formats import InputFormat
from gemfi.serve.problems import too_large, unusable
from gemfi.serve.settings import Settings

TOGETHER: Final = 4
"""The images of one request may have this many times the pixels of one image."""

_FORMATS: Final = ("PNG", "JPEG", "BMP", "WEBP")
_DATA_URL: Final = re.compile(r"data:[^,]{0,100};base64,", re.ASCII | re.IGNORECASE)
_SPACE: Final = str.maketrans("", "", " \t\r\n")


class _NamedBytes(io.BytesIO):
    """Bytes that errors call by their place in the request."""

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(data)
        self._name = name

    def __repr__(self) -> str:
        return self._name


def from_base64(texts: Any, field: str, max_inputs: int) -> list[bytes]:
    """The files of `images`, or [the value] of `image`.

    Args:
        texts: base64, or data: URLs with it.
        field: which of the two.
        max_inputs: how many there may be.
    """
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


def place(field: str, index: int) -> str:
    """An input by its place in the request."""
    return field if field in {"image", "input"} else f"{field}[{index}]"


def decode(
    files: Sequence[bytes], field: str, form: InputFormat, settings: Settings
) -> npt.NDArray[Any]:
    """Images (N, C, H, W) as the model takes them.

    Args:
        files: PNG, JPEG, BMP or WEBP.
        field: what the request calls them, for messages.
        form: what the model takes.
        settings: how many pixels there may be.
    """
    if form.kind != "image":
        message = f"this model does not take images; an input is {form.words()}"
        raise unusable("wrong_kind", message, field)
    names = [place(field, index) for index in range(len(files))]
    left = TOGETHER * settings.max_pixels
    for data, name in zip(files, names, strict=True):
        left -= _pixels(data, name, settings.max_pixels)
        if left < 0:
            raise too_large(
                f"the images of a request may have {TOGETHER * settings.max_pixels:,} pixels "
                "together",
                field,
            )
    images = np.stack([_read(*each, form, settings) for each in zip(files, names, strict=True)])
    if form.dtype == "uint8":
        return images
    return (images.astype(np.float32) / np.float32(255)).astype(form.dtype)


def _pixels(data: bytes, name: str, limit: int) -> int:
    """The pixels that a header claims; nothing is unpacked."""
    from PIL import Image  # noqa: PLC0415 - optional

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of many pixels, which are counted here
        try:
            with Image.open(_NamedBytes(data, name), formats=_FORMATS) as image:
                width, height = image.size
        except Image.DecompressionBombError:
            raise too_large(f"more than the {limit:,} pixels allowed", name) from None
        except (OSError, SyntaxError, ValueError, TypeError, IndexError, OverflowError):
            return 0  # `read_image` says what is wrong with it
    if width * height > limit:
        raise too_large(
            f"{width}×{height} is {width * height:,} pixels, more than the {limit:,} allowed", name
        )
    return int(width * height)


def _read(data: bytes, name: str, form: InputFormat, settings: Settings) -> npt.NDArray[np.uint8]:
    channels, height, width = form.shape
    try:
        return read_image(
            _NamedBytes(data, name),
            size=(height, width),
            mode="L" if channels == 1 else "RGB",
            crop=True,
            max_pixels=settings.max_pixels,
        )
    except InputError as error:
        raise unusable("unreadable_image", f"{error}; give PNG, JPEG, BMP or WEBP", name) from None
