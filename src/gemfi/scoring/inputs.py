"""Files as inputs of a model: images, folders of them, arrays and tables, a piece at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gemfi.bundle import Bundle
from gemfi.data.readers import channels_first
from gemfi.data.readers.arrays import stream_array
from gemfi.data.readers.base import ROWS, Piece
from gemfi.data.readers.images import is_image, stream_images
from gemfi.data.readers.tables import stream_csv, stream_parquet
from gemfi.errors import InputError

Reader = Callable[[Path, Bundle], Iterator[Piece]]

_NUMBERS: Final = 1 << 24  # of an array that are read at a time, so that large images are few


def find_inputs(paths: Sequence[Path | str]) -> list[Path]:
    """The files to read, folders replaced by the images below them; nothing is opened yet."""
    found: list[Path] = []
    for each in map(Path, paths):
        if each.is_dir():
            images = _images_below(each)
            if not images:
                raise InputError(f"{each} holds no images")
            found += images
        elif not each.exists():
            raise InputError(f"{each} does not exist")
        elif not is_image(each) and each.suffix.lower() not in READERS:
            raise InputError(
                f"{each}: an input is an image (.png, .jpg, .bmp, .webp), a folder of images, or "
                f"{', '.join(READERS)}"
            )
        else:
            found.append(each)
    if not found:
        raise InputError("give at least one input: an image, a folder, or a file of rows")
    return found


def _images_below(folder: Path) -> list[Path]:
    """The images at any depth, in sorted order; those of a format that is not read, too."""
    files = (file for file in folder.rglob("*") if is_image(file) and file.is_file())
    return sorted(file for file in files if not file.name.startswith("."))


def stream_inputs(files: Sequence[Path], bundle: Bundle) -> Iterator[tuple[Piece, Tensor]]:
    """Pieces of the files in order, each with its inputs as the model takes them.

    A file that cannot be read, or not to its end, has one input with the error in its place.
    """
    for image, group in groupby(files, is_image):
        if image:
            yield from _tensors(_images(list(group), bundle), bundle)
            continue
        for file in group:
            try:
                yield from _tensors(READERS[file.suffix.lower()](file, bundle), bundle)
            except InputError as error:
                yield _unread([file], str(error), bundle)


def _tensors(pieces: Iterator[Piece], bundle: Bundle) -> Iterator[tuple[Piece, Tensor]]:
    """Each piece with its inputs; those which the model could not take have an error."""
    for piece in pieces:
        x = _tensor(piece.x, bundle, piece.names[0])
        errors = _unfit(x, bundle)
        if errors:
            x[list(errors)] = 0
        yield Piece(piece.names, piece.x, errors | piece.errors), x


def _unread(files: Sequence[Path], why: str, bundle: Bundle) -> tuple[Piece, Tensor]:
    """Files of which nothing is known but why they cannot be read."""
    empty = np.zeros((len(files), *bundle.sample_shape), np.float32)
    names = [str(file) for file in files]
    return Piece(names, empty, dict.fromkeys(range(len(files)), why)), torch.from_numpy(empty)


def _unfit(x: Tensor, bundle: Bundle) -> dict[int, str]:
    """Row -> why the model cannot take it: not finite, or pixels of another scale."""
    if x.dtype == torch.uint8:
        return {}
    rows = x.reshape(len(x), -1)
    found = {}
    if bundle.info.sample_dtype == "uint8":
        for row in (rows > 1).any(dim=1).nonzero().flatten().tolist():
            found[row] = f"pixels reach {rows[row].max():g}: give bytes, or numbers from 0 to 1"
    for row in (~torch.isfinite(rows).all(dim=1)).nonzero().flatten().tolist():
        found[row] = "not finite: NaN, infinity, or too large for float32"
    return found


def _images(files: Sequence[Path], bundle: Bundle) -> Iterator[Piece]:
    if bundle.kind != "image":
        shape = bundle.sample_shape
        why = f"an image, but {bundle.name} takes inputs of shape {shape}"
        return iter([_unread(files, why, bundle)[0]])
    channels, height, width = bundle.sample_shape
    return stream_images(files, size=(height, width), mode="L" if channels == 1 else "RGB")


def _table(read: Callable[..., Iterator[Piece]]) -> Reader:
    def rows(file: Path, bundle: Bundle) -> Iterator[Piece]:
        shape = bundle.sample_shape
        if len(shape) != 1:
            raise InputError(
                f"{file} is a table, but {bundle.name} takes inputs of shape {shape}: save them as "
                ".npy"
            )
        return read(file, bundle.columns, shape[0])

    return rows


def _array(file: Path, bundle: Bundle) -> Iterator[Piece]:
    rows = max(1, min(ROWS, _NUMBERS // math.prod(bundle.sample_shape)))
    columns = bundle.info.columns
    for piece in stream_array(file, rows):
        cells = piece.x.shape[1:]
        if columns is not None and cells == (len(columns.names),) and cells != bundle.sample_shape:
            x, errors = columns.encode(dict(zip(columns.names, piece.x.T, strict=True)))
            yield Piece(piece.names, x, errors)
        else:
            yield piece


READERS: Final[Mapping[str, Reader]] = {
    ".npy": _array,
    ".npz": _array,
    ".csv": _table(stream_csv),
    ".parquet": _table(stream_parquet),
}
"""Ending of a file of rows -> how it is read."""


def _tensor(x: npt.NDArray[Any], bundle: Bundle, where: str) -> Tensor:
    """Inputs of the shape and the type that the model was trained on."""
    shape, bytes_wanted = bundle.sample_shape, bundle.info.sample_dtype == "uint8"
    if bytes_wanted and x.dtype.kind in "iu" and x.size and x.min() >= 0 and x.max() <= 255:
        x = x.astype(np.uint8)  # pixels, whatever the type that holds them
    if x.dtype == np.uint8 and bundle.kind == "image" and x.ndim > 2:
        x = channels_first(x, where)
    elif x.ndim == 3 and bundle.kind == "image" and shape[0] == 1:
        x = x[:, None]
    if tuple(x.shape[1:]) != shape:
        raise InputError(
            f"{where}: inputs have shape {tuple(x.shape[1:])}, but {bundle.name} was trained on "
            f"{shape}"
        )
    if x.dtype == np.uint8:
        found = torch.from_numpy(np.array(x))
        return found if bytes_wanted else found.float() / (255 if bundle.kind == "image" else 1)
    with np.errstate(over="ignore"):  # found by `_unfit`
        return torch.from_numpy(np.array(x, dtype=np.float32))
