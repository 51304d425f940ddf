"""Image folders: order, labels, conversion, and a bad image named by its path."""

from __future__ import annotations

import io
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from gemfi.data.readers import read_image_folder, read_tiny_imagenet_val
from gemfi.errors import InputError

RNG = np.random.default_rng(0)


def picture(height: int = 6, width: int = 4, value: int | None = None) -> np.ndarray[Any, Any]:
    if value is not None:
        return np.full((height, width, 3), value, np.uint8)
    return RNG.integers(0, 256, (height, width, 3), np.uint8)


def save(path: Path, pixels: np.ndarray[Any, Any], **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return path


def fails(folder: Path, message: str, *named: Path, **options: Any) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_image_folder(folder, **options)
    for path in named:
        assert str(path) in str(caught.value)


def resized(image: Any, height: int, width: int) -> Any:
    """(C, H, W), by pillow itself."""
    made = Image.fromarray(image).resize((width, height), Image.Resampling.LANCZOS)
    return np.asarray(made).transpose(2, 0, 1)


class TestLayout:
    def test_a_folder_for_each_class(self, tmp_path: Path) -> None:
        pixels = {
            name: picture()
            for name in ("dog/10.png", "dog/9.PNG", "Cat/a.bmp", "ant/deep/er/z.webp", "ant/y.png")
        }
        for name, image in pixels.items():
            options = {"lossless": True} if name.endswith("webp") else {}
            save(tmp_path / name, image, **options)
        (tmp_path / ".DS_Store").write_bytes(b"x")
        (tmp_path / ".git").mkdir()
        (tmp_path / "dog" / "notes.txt").write_text("not an image")
        (tmp_path / "dog" / "._9.PNG").write_text("not an image")
        read = read_image_folder(tmp_path)
        assert read.class_names == ("Cat", "ant", "dog")
        assert read.labels is not None
        assert read.labels.dtype == np.int64
        assert read.labels.tolist() == [0, 1, 1, 2, 2]
        order = ["Cat/a.bmp", "ant/deep/er/z.webp", "ant/y.png", "dog/10.png", "dog/9.PNG"]
        expected = np.stack([pixels[name].transpose(2, 0, 1) for name in order])
        np.testing.assert_array_equal(read.images, expected)
        torch.from_numpy(read.images)[0] = 0  # writable: no warning

    def test_a_flat_folder_has_no_labels(self, tmp_path: Path) -> None:
        for index in (2, 0, 1):
            save(tmp_path / f"{index}.png", picture(value=index))
        read = read_image_folder(tmp_path)
        assert read.labels is None
        assert read.class_names is None
        assert read.images[:, 0, 0, 0].tolist() == [0, 1, 2]

    def test_bad_layouts(self, tmp_path: Path) -> None:
        fails(tmp_path / "none", "does not exist")
        fails(tmp_path, "holds no images")
        save(tmp_path / "a" / "x.png", picture())
        fails(tmp_path / "a" / "x.png", "is a file, not a folder")
        loose = save(tmp_path / "x.png", picture())
        fails(tmp_path, r"both sub-folders \(a\) and images \(x\.png\)")
        loose.unlink()
        (tmp_path / "b").mkdir()
        fails(tmp_path, "b holds no images, but each sub-folder is a class", tmp_path / "b")

    def test_a_format_that_is_not_read_is_not_passed_over(self, tmp_path: Path) -> None:
        save(tmp_path / "a.png", picture())
        fails(tmp_path, r"\.gif is not read", save(tmp_path / "b.gif", picture()))


class TestConversion:
    def test_grey(self, tmp_path: Path) -> None:
        image = picture()
        save(tmp_path / "a.png", image)
        read = read_image_folder(tmp_path, mode="L")
        luma = image.astype(float) @ [0.299, 0.587, 0.114]
        assert read.images.shape == (1, 1, 6, 4)
        assert np.abs(read.images[0, 0] - luma).max() <= 1

    def test_kinds_of_pixels(self, tmp_path: Path) -> None:
        grey = picture()[..., 0]
        alpha = np.dstack([picture(value=9), grey])
        save(tmp_path / "a-grey.png", grey)
        save(tmp_path / "b-alpha.png", alpha)
        Image.fromarray(grey > 99).save(tmp_path / "c-bits.png")
        Image.fromarray(grey).convert("P").save(tmp_path / "d.png", transparency=bytes(range(256)))
        read = read_image_folder(tmp_path).images
        np.testing.assert_array_equal(read[0], np.stack([grey] * 3))
        assert (read[1] == 9).all()  # transparency is dropped
        np.testing.assert_array_equal(read[2, 0], (grey > 99) * np.uint8(255))
        np.testing.assert_array_equal(read[3, 0], grey)

    def test_sixteen_bits_are_refused(self, tmp_path: Path) -> None:
        path = save(tmp_path / "deep.png", np.full((4, 4), 40000, np.uint16))
        fails(tmp_path, "has pixels of kind I.*8 bits a channel", path)

    def test_lanczos(self, tmp_path: Path) -> None:
        image = picture(8, 12)
        save(tmp_path / "a.png", image)
        read = read_image_folder(tmp_path, size=(4, 6)).images[0]
        np.testing.assert_array_equal(read, resized(image, 4, 6))

    def test_the_size_it_has_changes_nothing(self, tmp_path: Path) -> None:
        image = picture()
        save(tmp_path / "a.png", image)
        read = read_image_folder(tmp_path, size=(6, 4)).images[0]
        np.testing.assert_array_equal(read, image.transpose(2, 0, 1))

    def test_crop_keeps_the_middle(self, tmp_path: Path) -> None:
        """Wide, tall and square pictures: what is left has the proportions of the size."""
        wide, tall, square = picture(4, 10), picture(12, 4), picture(4, 4)
        for name, image in (("a", wide), ("b", tall), ("c", square)):
            save(tmp_path / f"{name}.png", image)
        read = read_image_folder(tmp_path, size=4, crop=True).images  # no resizing is left to do
        expected = [wide[:, 3:7], tall[4:8], square]
        np.testing.assert_array_equal(read, np.stack(expected).transpose(0, 3, 1, 2))

    def test_crop_to_a_size_that_is_not_square(self, tmp_path: Path) -> None:
        image = picture(8, 8)
        save(tmp_path / "a.png", image)
        read = read_image_folder(tmp_path, size=(4, 8), crop=True).images[0]
        np.testing.assert_array_equal(read, image[2:6].transpose(2, 0, 1))

    @pytest.mark.parametrize(("side", "start"), [(7, 1), (8, 2)])
    def test_crop_of_an_uneven_rest(self, tmp_path: Path, side: int, start: int) -> None:
        """The odd pixel is lost at the end."""
        image = picture(4, side)
        save(tmp_path / "a.png", image)
        read = read_image_folder(tmp_path, size=4, crop=True).images[0]
        np.testing.assert_array_equal(read, image[:, start : start + 4].transpose(2, 0, 1))

    def test_crop_then_resize(self, tmp_path: Path) -> None:
        image = picture(8, 20)
        save(tmp_path / "a.png", image)
        read = read_image_folder(tmp_path, size=4, crop=True).images[0]
        np.testing.assert_array_equal(read, resized(image[:, 6:14], 4, 4))
        stretched = read_image_folder(tmp_path, size=4).images[0]
        assert (stretched != read).any()  # which is the default

    def test_crop_of_a_picture_that_is_thinner_than_a_pixel_of_the_size(
        self, tmp_path: Path
    ) -> None:
        save(tmp_path / "a.png", picture(1, 300, value=77))
        read = read_image_folder(tmp_path, size=(64, 16), crop=True).images
        assert read.shape == (1, 3, 64, 16)
        assert (read == 77).all()

    def test_crop_needs_a_size(self, tmp_path: Path) -> None:
        save(tmp_path / "a.png", picture())
        fails(tmp_path, "crop cuts to the shape of size: give size= as well", crop=True)

    def test_sizes_that_differ(self, tmp_path: Path) -> None:
        first, other = save(tmp_path / "a.png", picture()), save(tmp_path / "b.png", picture(4, 6))
        fails(tmp_path, r"a\.png is 4×6, .*b\.png is 6×4 \(width × height\).*size=", first, other)
        assert read_image_folder(tmp_path, size=5).images.shape == (2, 3, 5, 5)

    def test_arguments(self, tmp_path: Path) -> None:
        save(tmp_path / "a.png", picture())
        fails(tmp_path, "mode must be RGB or L, got 'CMYK'", mode="CMYK")
        fails(tmp_path, r"two positive numbers \(H, W\), got \(0, 0\)", size=0)


class TestBadImages:
    @pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "webp"])
    def test_truncated(self, tmp_path: Path, suffix: str) -> None:
        save(tmp_path / f"a.{suffix}", picture(64, 64))
        broken = save(tmp_path / f"b.{suffix}", picture(64, 64))
        whole = broken.read_bytes()
        for end in (0, 1, 20, len(whole) // 2):
            broken.write_bytes(whole[:end])
            fails(tmp_path, "is not a whole image", broken)

    def test_a_broken_png(self, tmp_path: Path) -> None:
        broken = save(tmp_path / "x" / "b.png", picture(64, 64))
        data = bytearray(broken.read_bytes())
        data[60] ^= 0xFF
        broken.write_bytes(bytes(data))
        fails(tmp_path, "is not a whole image", broken)

    def test_other_decoders_are_never_tried(self, tmp_path: Path) -> None:
        """A TIFF by the name of a PNG, and PostScript, which pillow would hand to ghostscript."""
        file = io.BytesIO()
        Image.fromarray(picture()).save(file, "TIFF")
        path = tmp_path / "x.png"
        for data in (file.getvalue(), b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"):
            path.write_bytes(data)
            fails(tmp_path, "is not a whole image: cannot identify", path)

    @pytest.mark.parametrize("side", [8_000, 12_000, 60_000])
    def test_a_bomb_is_refused_by_its_header(self, tmp_path: Path, side: int) -> None:
        """Below, between and above pillow's own limits, which warn first."""
        path = tmp_path / "bomb.png"
        header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
        chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b"")]
        body = b"".join(
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in chunks
        )
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
        fails(tmp_path, "pixels", path)

    def test_the_limit_can_be_set(self, tmp_path: Path) -> None:
        path = save(tmp_path / "a.png", picture(10, 10))
        fails(tmp_path, r"10×10 is 100 pixels, more than the 99 allowed", path, max_pixels=99)
        assert len(read_image_folder(tmp_path, max_pixels=100)) == 1


class TestTinyImageNet:
    WNIDS = ("n02", "n01", "n03")  # not sorted, as published

    def make(self, root: Path) -> Path:
        (root / "wnids.txt").parent.mkdir(parents=True, exist_ok=True)
        (root / "wnids.txt").write_text("\n".join(self.WNIDS) + "\n")
        lines = []
        for index in (0, 1, 2, 10):
            save(root / f"val/images/val_{index}.JPEG", picture(64, 64, 20 * index))
            lines.append(f"val_{index}.JPEG\t{self.WNIDS[index % 3]}\t0\t32\t44\t62")
        (root / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
        return root

    def test_layout(self, tmp_path: Path) -> None:
        read = read_tiny_imagenet_val(self.make(tmp_path / "tiny"))
        assert read.images.shape == (4, 3, 32, 32)
        assert read.images[:, 0, 0, 0].tolist() == [0, 20, 40, 200]  # the order of annotations
        assert read.class_names == ("n01", "n02", "n03")
        assert read.labels is not None
        assert read.labels.tolist() == [1, 0, 2, 0]
        assert read_tiny_imagenet_val(tmp_path / "tiny", size=64).images.shape[-1] == 64

    def test_some_classes(self, tmp_path: Path) -> None:
        root = self.make(tmp_path / "tiny")
        read = read_tiny_imagenet_val(root, without=frozenset({"n01"}))
        assert read.images[:, 0, 0, 0].tolist() == [0, 40]
        assert read.class_names == ("n02", "n03")
        assert read.labels is not None
        assert read.labels.tolist() == [0, 1]

    @pytest.mark.parametrize(
        ("file", "old", "new", "message"),
        [
            ("wnids.txt", "n03", "n04", r"val_annotations\.txt, line 3: 'n03' is not in wnids"),
            ("val/val_annotations.txt", "val_1.", "val_7.", r"line 2: no image 'val_7\.JPEG'"),
            ("val/val_annotations.txt", "val_1.", "val_0.", r"line 2: no image 'val_0\.JPEG' left"),
            ("val/val_annotations.txt", "val_1.", "../../x/val_1.", "line 2: no image"),
            ("val/val_annotations.txt", "\tn01", "", r"line 2: '0' is not in wnids"),
            ("val/val_annotations.txt", "val_0", "\udcff", "offset 0 is not UTF-8"),
        ],
    )
    def test_bad_text(self, tmp_path: Path, file: str, old: str, new: str, message: str) -> None:
        root = self.make(tmp_path)
        text = (root / file).read_text().replace(old, new)
        (root / file).write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(InputError, match=message):
            read_tiny_imagenet_val(root)

    def test_images_without_annotation_and_missing_files(self, tmp_path: Path) -> None:
        root = self.make(tmp_path)
        extra = save(root / "val/images/val_99.JPEG", picture(64, 64))
        with pytest.raises(InputError, match=r"does not name 1 of the images, val_99\.JPEG"):
            read_tiny_imagenet_val(root)
        extra.write_bytes(b"")
        (root / "wnids.txt").unlink()
        with pytest.raises(InputError, match=r"cannot read .*wnids\.txt"):
            read_tiny_imagenet_val(root)
        with pytest.raises(InputError, match="does not exist"):
            read_tiny_imagenet_val(root / "nothing")

    def test_a_broken_image(self, tmp_path: Path) -> None:
        root = self.make(tmp_path)
        broken = root / "val/images/val_2.JPEG"
        broken.write_bytes(broken.read_bytes()[:300])
        with pytest.raises(InputError, match=r"val_2\.JPEG is not a whole image"):
            read_tiny_imagenet_val(root)


def test_without_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "a.png", picture())
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    fails(tmp_path, r"reading images needs pillow: pip install '\.\[data\]' in the clone")
