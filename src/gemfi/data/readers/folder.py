"""Folders of images, read with pillow: PNG, JPEG, BMP and WEBP, and no other decoder.

Pixels are taken as stored: EXIF orientation is not applied and transparency is dropped. Resizing
stretches an image to the size asked for, unless it is cropped to its shape first; both filters look
at every pixel (no aliasing):

- `lanczos`: windowed sinc, the sharper one, and the default;
- `box`: the mean of the pixels under each new one, so that 64 to 32 is the mean of 2×2 blocks.
"""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from gemfi._files import require_module
from gemfi.data.readers import base
from gemfi.errors import InputError

Mode = Literal["RGB", "L"]
Filter = Literal["lanczos", "box"]

MAX_PIXELS: Final = 50_000_000
"""An image with more pixels than this is refused before it is unpacked."""

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
    IndexError,
    KeyError,
    EOFError,
    OverflowError,
    MemoryError,
    struct.error,
    zlib.error,
)


@dataclass(frozen=True)
class _Recipe:
    mode: Mode
    size: tuple[int, int] | None  # H, W
    resample: Filter
    max_pixels: int
    crop: bool = False

    def __post_init__(self) -> None:
        if self.mode not in {"RGB", "L"}:
            raise InputError(f"mode must be RGB or L, got {self.mode!r}")
        if self.resample not in {"lanczos", "box"}:
            raise InputError(f"resample must be lanczos or box, got {self.resample!r}")
        if self.size is not None and (len(self.size) != 2 or min(self.size) < 1):
            raise InputError(f"size must be two positive numbers (H, W), got {self.size}")
        if self.crop and self.size is None:
            raise InputError("crop cuts to the shape of size: give size= as well")


def read_image_folder(
    path: base.PathLike,
    *,
    size: int | tuple[int, int] | None = None,
    mode: Mode = "RGB",
    resample: Filter = "lanczos",
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
        resample: the filter that resizes.
        crop: cut each image, in its middle, to the proportions of `size` before it is resized,
            where it would be stretched otherwise.
        max_pixels: an image with more is refused.
    """
    folder = base.require_folder(path)
    size = (size, size) if isinstance(size, int) else size
    recipe = _Recipe(mode, size, resample, max_pixels, crop)
    entries = [entry for entry in sorted(folder.iterdir()) if not entry.name.startswith(".")]
    classes = [entry for entry in entries if entry.is_dir()]
    loose = _images_among(entry for entry in entries if entry.is_file())
    if not classes:
        if not loose:
            raise InputError(f"{folder} holds no images ({', '.join(sorted(_SUFFIXES))})")
        return base.Pictures(_read_all(loose, recipe))
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
    images = _read_all(files, recipe)
    return base.Pictures(images, np.array(labels, np.int64), tuple(entry.name for entry in classes))


def read_image(
    path: base.PathLike | IO[bytes],
    *,
    size: tuple[int, int] | None = None,
    mode: Mode = "RGB",
    crop: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> npt.NDArray[np.uint8]:
    """One image, (C, H, W); arguments as in `read_image_folder`."""
    require_module("PIL.Image", "reading images")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _read(path, _Recipe(mode, size, "lanczos", max_pixels, crop))


def is_image(path: base.PathLike) -> bool:
    """Whether a file is an image by its name."""
    return Path(path).suffix.lower() in _SUFFIXES | _OTHER_IMAGES


def read_tiny_imagenet_val(
    path: base.PathLike,
    *,
    size: int = 32,
    resample: Filter = "lanczos",
    wanted: Callable[[str], bool] = lambda _wnid: True,
) -> base.Pictures:
    """Read the validation images of TinyImageNet in the order of `val_annotations.txt`.

    Args:
        path: the folder `tiny-imagenet-200`, with `wnids.txt` and `val/images`.
        size: of the result; the images are 64×64.
        resample: the filter that resizes.
        wanted: whether to read the images of a class, by its WordNet id.

    Returns:
        Labels count the WordNet ids of `wnids.txt` that are wanted in sorted order, which are
        `class_names`.
    """
    root = base.require_folder(path)
    known = frozenset(_lines(root / "wnids.txt"))
    wnids = tuple(sorted(filter(wanted, known)))
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    annotations = root / "val" / "val_annotations.txt"
    folder = base.require_folder(root / "val" / "images")
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
    images = _read_all(files, _Recipe("RGB", (size, size), resample, MAX_PIXELS))
    return base.Pictures(images, np.array(labels, np.int64), wnids)


def _lines(path: Path) -> list[str]:
    try:
        lines = base.read_bytes(path).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text: offset {error.start} is not UTF-8") from error
    return [line for line in lines if line.strip()]


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


def _read_all(files: Sequence[Path], recipe: _Recipe) -> npt.NDArray[np.uint8]:
    """(N, C, H, W) of the files in that order."""
    require_module("PIL.Image", "reading images")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pillow's, on sizes and metadata: sizes are checked here
        return _stacked(files, recipe)


def _stacked(files: Sequence[Path], recipe: _Recipe) -> npt.NDArray[np.uint8]:
    first = _read(files[0], recipe)
    images = np.empty((len(files), *first.shape), np.uint8)
    images[0] = first
    for index, file in enumerate(files[1:], start=1):
        image = _read(file, recipe)
        if image.shape != first.shape:
            sizes = [f"{shape[2]}×{shape[1]}" for shape in (first.shape, image.shape)]
            raise InputError(
                f"images differ in size: {files[0]} is {sizes[0]}, {file} is {sizes[1]} (width × "
                "height); give size= to resize them"
            )
        images[index] = image
    return images


def _read(file: base.PathLike | IO[bytes], recipe: _Recipe) -> npt.NDArray[np.uint8]:
    """(C, H, W) of one image."""
    from PIL import Image  # noqa: PLC0415 - optional

    try:
        with Image.open(file, formats=_FORMATS) as image:
            _check(image, file, recipe.max_pixels)
            pixels = _converted(image, recipe)
    except InputError:
        raise
    except (*_BROKEN, Image.DecompressionBombError) as error:
        raise InputError(f"{file} is not a whole image: {error}") from error
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _check(image: Any, file: base.PathLike | IO[bytes], max_pixels: int) -> None:
    """From the header alone: nothing is unpacked yet."""
    width, height = image.size
    if width * height > max_pixels:
        raise InputError(
            f"{file}: {width}×{height} is {width * height:,} pixels, more than the {max_pixels:,} "
            "allowed (max_pixels=)"
        )
    if image.mode not in _EIGHT_BITS:
        raise InputError(f"{file} has pixels of kind {image.mode}; convert it to 8 bits a channel")


def _converted(image: Any, recipe: _Recipe) -> npt.NDArray[np.uint8]:
    from PIL import Image  # noqa: PLC0415 - optional

    image = image.convert(recipe.mode)
    if recipe.size is not None:
        height, width = recipe.size
        if recipe.crop:
            image = image.crop(_middle(image.size, width, height))
        filters = {"lanczos": Image.Resampling.LANCZOS, "box": Image.Resampling.BOX}
        image = image.resize((width, height), filters[recipe.resample])
    return np.asarray(image, np.uint8)


def _middle(size: tuple[int, int], width: int, height: int) -> tuple[int, int, int, int]:
    """The largest box in the middle of an image with the proportions of width × height."""
    scale = min(size[0] / width, size[1] / height)
    wide, tall = max(1, round(scale * width)), max(1, round(scale * height))
    left, top = (size[0] - wide) // 2, (size[1] - tall) // 2
    return left, top, left + wide, top + tall
