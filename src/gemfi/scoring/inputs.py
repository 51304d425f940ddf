"""Files as inputs of a model: images, folders of them, arrays and tables, a piece at a time."""

from __future__ import annotations

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
from gemfi.data.readers.folder import image_files, is_image
from gemfi.data.readers.streams import (
    Piece,
    stream_array,
    stream_csv,
    stream_images,
    stream_parquet,
)
from gemfi.errors import InputError

Reader = Callable[[Path, Bundle], Iterator[Piece]]


def find_inputs(paths: Sequence[Path | str]) -> list[Path]:
    """The files to read, folders replaced by the images below them; nothing is opened yet."""
    found: list[Path] = []
    for each in map(Path, paths):
        if each.is_dir():
            images = image_files(each)
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


def stream_inputs(files: Sequence[Path], bundle: Bundle) -> Iterator[tuple[Piece, Tensor]]:
    """Pieces of the files in order, each with its inputs as the model takes them.

    A file that cannot be read, or not to its end, has one input with the error in its place.
    """
    for image, group in groupby(files, is_image):
        if image:
            for piece in _images(list(group), bundle):
                yield piece, _tensor(piece.x, bundle, piece.names[0])
            continue
        for file in group:
            try:
                for piece in READERS[file.suffix.lower()](file, bundle):
                    yield piece, _tensor(piece.x, bundle, str(file))
            except InputError as error:
                empty = np.zeros((1, *bundle.sample_shape), np.float32)
                yield Piece([str(file)], empty, {0: str(error)}), torch.from_numpy(empty)


def _images(files: Sequence[Path], bundle: Bundle) -> Iterator[Piece]:
    if bundle.kind != "image":
        raise InputError(
            f"{files[0]} is an image, but {bundle.name} takes inputs of shape {bundle.sample_shape}"
        )
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
        return read(file, bundle.info.feature_names, shape[0])

    return rows


def _array(file: Path, bundle: Bundle) -> Iterator[Piece]:
    del bundle
    for piece in stream_array(file):
        numeric = piece.x if piece.x.dtype.kind == "f" else piece.x.astype(np.float64)
        bad = ~np.isfinite(numeric.reshape(len(numeric), -1)).all(axis=1)
        errors = {int(row): "not finite: NaN or infinity" for row in np.flatnonzero(bad)}
        yield Piece(piece.names, np.nan_to_num(piece.x) if errors else piece.x, errors)


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
    return torch.from_numpy(np.array(x, dtype=np.float32))
