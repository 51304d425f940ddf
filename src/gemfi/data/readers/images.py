"""Images, read with pillow: PNG, JPEG, BMP and WEBP, and no other decoder.

Pixels are taken as stored: EXIF orientation is not applied and transparency is dropped. Resizing
stretches an image to the size asked for, unless it is cropped to its shape first. The filter is
Lanczos, which looks at every pixel (no aliasing).
"""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from gemfi._files import require_module
from gemfi.data.readers import base
from gemfi.data.readers.remote import File, RemoteFile
from gemfi.errors import InputError

Mode = Literal["RGB", "L"]

MAX_PIXELS: Final = 50_000_000
"""An image with more pixels than this is refused before it is unpacked."""

IMAGES: Final = 256
"""Images of a piece."""

_SUFFIXES: Final = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp"})
_OTHER_IMAGES: Final = frozenset(
    {".gif", ".tif", ".tiff", ".heic", ".avif", ".ppm", ".pgm", ".jp2", ".jxl", ".tga"}
)
_FORMATS: Final = ("PNG", "JPEG", "BMP", "WEBP")
_EIGHT_BITS: Final = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"})
_BROKEN: Final = (  # what pillow's decoders raise
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    OverflowError,
    MemoryError,
    struct.error,
    zlib.error,
)


def read_image_folder(
    path: base.PathLike,
    *,
    size: int | tuple[int, int] | None = None,
    mode: Mode = "RGB",
    crop: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> base.Pictures:
    """Read a folder with a sub-folder for each class, or a flat one, which has no labels.

    Classes are the sub-folders in sorted order, images the files below each (at any depth) in
    sorted order. Hidden files and files that are not images are passed over; images of a format
    that is not read are an error.

    Args:
        path: the folder.
        size: (H, W), or one number for both; None keeps the size, which all must then share.
        mode: `RGB` for three channels, `L` for one (luma, ITU-R 601).
        crop: cut each image, in its middle, to the proportions of `size` before it is resized,
            where it would be stretched otherwise.
        max_pixels: an image with more is refused.
    """
    folder = _require_folder(path)
    size = (size, size) if isinstance(size, int) else size
    read = partial(read_image, size=size, mode=mode, crop=crop, max_pixels=max_pixels)
    entries = [entry for entry in sorted(folder.iterdir()) if not entry.name.startswith(".")]
    classes = [entry for entry in entries if entry.is_dir()]
    loose = _images_among(entry for entry in entries if entry.is_file())
    if not classes:
        if not loose:
            raise InputError(f"{folder} holds no images ({', '.join(sorted(_SUFFIXES))})")
        return base.Pictures(_read_all(loose, read))
    if loose:
        raise InputError(
            f"{folder} holds both sub-folders ({classes[0].name}) and images ({loose[0].name}); "
            "expected a sub-folder for each class, or images alone"
        )
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        members = _images_among(sorted(file for file in name.rglob("*") if file.is_file()))
        if not members:
            raise InputError(f"{name} holds no images, but each sub-folder is a class")
        files += members
        labels += [label] * len(members)
    images = _read_all(files, read)
    return base.Pictures(images, np.array(labels, np.int64), tuple(entry.name for entry in classes))


def read_image(
    path: base.PathLike | RemoteFile | IO[bytes],
    *,
    size: tuple[int, int] | None = None,
    mode: Mode = "RGB",
    crop: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> npt.NDArray[np.uint8]:
    """One image, (C, H, W); arguments as in `read_image_folder`."""
    if mode not in {"RGB", "L"}:
        raise InputError(f"mode must be RGB or L, got {mode!r}")
    if size is not None and (len(size) != 2 or min(size) < 1):
        raise InputError(f"size must be two positive numbers (H, W), got {size}")
    if crop and size is None:
        raise InputError("crop cuts to the shape of size: give size= as well")
    pillow = require_module("PIL.Image", "reading images")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on sizes and metadata: sizes are checked here
            source = path.fetched() if isinstance(path, RemoteFile) else path
            with pillow.open(source, formats=_FORMATS) as file:
                _check(file, path, max_pixels)
                image = file.convert(mode)
                if size is not None:
                    height, width = size
                    if crop:
                        image = image.crop(_middle(image.size, width, height))
                    image = image.resize((width, height), pillow.Resampling.LANCZOS)
                pixels = np.asarray(image, np.uint8)
    except InputError:
        raise
    except pillow.UnidentifiedImageError as error:
        raise InputError(f"{path} is not a whole image: cannot identify its format") from error
    except (*_BROKEN, pillow.DecompressionBombError) as error:
        raise InputError(f"{path} is not a whole image: {error}") from error
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def stream_images(
    files: Sequence[File], *, size: tuple[int, int], mode: Mode
) -> Iterator[base.Piece]:
    """Images in pieces, in this order, cropped in their middle and resized to (H, W), as uint8."""
    channels = 3 if mode == "RGB" else 1
    for start in range(0, len(files), IMAGES):
        part = files[start : start + IMAGES]
        x, errors = np.zeros((len(part), channels, *size), np.uint8), {}
        for row, file in enumerate(part):
            try:
                x[row] = read_image(file, size=size, mode=mode, crop=True)
            except InputError as error:
                errors[row] = str(error)
        yield base.Piece([str(file) for file in part], x, errors)


def is_image(path: base.PathLike | File) -> bool:
    """Whether a file is an image by its name."""
    return Path(str(path)).suffix.lower() in _SUFFIXES | _OTHER_IMAGES


def read_tiny_imagenet_val(
    path: base.PathLike,
    *,
    size: int = 32,
    only: frozenset[str] | None = None,
    without: frozenset[str] = frozenset(),
) -> base.Pictures:
    """Read the validation images of TinyImageNet in the order of `val_annotations.txt`.

    Labels count the WordNet ids of `wnids.txt` in sorted order, which are `class_names`.

    Args:
        path: the folder `tiny-imagenet-200`, with `wnids.txt` and `val/images`.
        size: of the result; the images are 64×64.
        only: WordNet ids of the classes to read; None for all.
        without: WordNet ids of classes to leave out.
    """
    root = _require_folder(path)
    known = frozenset(_lines(root / "wnids.txt"))
    wnids = tuple(sorted((known if only is None else known & only) - without))
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    annotations = root / "val" / "val_annotations.txt"
    folder = _require_folder(root / "val" / "images")
    present = {file.name: file for file in _images_among(sorted(folder.iterdir()))}
    files: list[Path] = []
    labels: list[int] = []
    for number, line in enumerate(_lines(annotations), start=1):
        name, wnid = [*line.split("\t"), ""][:2]
        if wnid not in known:
            raise InputError(f"{annotations}, line {number}: {wnid!r} is not in wnids.txt")
        if name not in present:  # each name once; and a path such as ../x is never followed
            raise InputError(f"{annotations}, line {number}: no image {name!r} left in {folder}")
        file = present.pop(name)
        if wnid in label_of:
            files.append(file)
            labels.append(label_of[wnid])
    if present:
        raise InputError(
            f"{annotations} does not name {len(present)} of the images, {min(present)} among them"
        )
    images = _read_all(files, partial(read_image, size=(size, size)))
    return base.Pictures(images, np.array(labels, np.int64), wnids)


def _require_folder(path: base.PathLike) -> Path:
    path = Path(path)
    if not path.is_dir():
        what = "is a file, not a folder" if path.exists() else "does not exist"
        raise InputError(f"{path} {what}")
    return path


def _lines(path: Path) -> list[str]:
    return [line for line in base.read_text(path).splitlines() if line.strip()]


def _images_among(files: Iterable[Path]) -> list[Path]:
    images = []
    for file in files:
        suffix = file.suffix.lower()
        if file.name.startswith("."):
            continue
        if suffix in _OTHER_IMAGES:
            raise InputError(
                f"{file}: {suffix} is not read; convert it to PNG, JPEG, BMP or WEBP, or remove it"
            )
        if suffix in _SUFFIXES:
            images.append(file)
    return images


def _read_all(
    files: Sequence[Path], read: Callable[[Path], npt.NDArray[np.uint8]]
) -> npt.NDArray[np.uint8]:
    """(N, C, H, W) of the files in that order."""
    first = read(files[0])
    images = np.empty((len(files), *first.shape), np.uint8)
    for index, file in enumerate(files):
        image = read(file) if index else first
        if image.shape != images.shape[1:]:
            sizes = [f"{shape[2]}×{shape[1]}" for shape in (images.shape[1:], image.shape)]
            raise InputError(
                f"images differ in size: {files[0]} is {sizes[0]}, {file} is {sizes[1]} (width × "
                "height); give size= to resize them"
            )
        images[index] = image
    return images


def _check(image: Any, file: base.PathLike | RemoteFile | IO[bytes], max_pixels: int) -> None:
    """From the header alone: nothing is unpacked yet."""
    width, height = image.size
    if width * height > max_pixels:
        raise InputError(
            f"{file}: {width}×{height} is {width * height:,} pixels, more than the {max_pixels:,} "
            "allowed (max_pixels=)"
        )
    if image.mode not in _EIGHT_BITS:
        raise InputError(f"{file} has pixels of kind {image.mode}; convert it to 8 bits a channel")


def _middle(size: tuple[int, int], width: int, height: int) -> tuple[int, int, int, int]:
    """The largest box in the middle of an image with the proportions of width × height."""
    scale = min(size[0] / width, size[1] / height)
    wide, tall = max(1, round(scale * width)), max(1, round(scale * height))
    left, top = (size[0] - wide) // 2, (size[1] - tall) // 2
    return left, top, left + wide, top + tall
