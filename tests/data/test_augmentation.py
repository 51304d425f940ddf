"""Augmentation: each operation against a slow loop with the same draws, and what holds for all."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor

from gemfi.data.augmentation import AUGMENTATIONS, Augmentation, crop_flip, erase, jitter, rotate
from gemfi.errors import InputError

DTYPES = [torch.uint8, torch.float32, torch.float64]
RANDOM = [name for name in AUGMENTATIONS if name != "none"]


def images(count: int = 8, channels: int = 3, dtype: torch.dtype = torch.uint8) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(256, (count, channels, 32, 30), generator=generator, dtype=torch.uint8)
    return x if dtype == torch.uint8 else x.to(dtype) / 255


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class TestCropFlip:
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_is_numpy_pad_and_slice(self, dtype: torch.dtype) -> None:
        x = images(40, dtype=dtype)
        top = torch.randint(9, (40,), generator=seeded(1))
        left = torch.randint(9, (40,), generator=seeded(2))
        flipped = torch.rand(40, generator=seeded(3)) < 0.5
        y = crop_flip(x, top, left, flipped, 4)
        for i in range(40):
            padded = np.pad(x[i].numpy(), ((0, 0), (4, 4), (4, 4)), mode="reflect")
            window = padded[:, top[i] : top[i] + 32, left[i] : left[i] + 30]
            expected = window[:, :, ::-1] if flipped[i] else window
            assert (y[i].numpy() == expected).all()

    def test_the_middle_window_is_the_image(self) -> None:
        x = images()
        middle, still = torch.full((8,), 4), torch.zeros(8, dtype=torch.bool)
        assert torch.equal(crop_flip(x, middle, middle, still, 4), x)

    def test_the_preset_uses_all_windows_and_both_sides_evenly(self) -> None:
        # A single bright pixel in the middle says which window was cut.
        x = torch.zeros(20_000, 1, 21, 21, dtype=torch.uint8)
        x[:, :, 10, 8] = 1  # two left of the middle: its side tells the flip
        y = Augmentation(crop=2, flip=0.25)(x, seeded())
        where = y.flatten(1).argmax(1)
        rows, columns = where // 21, where % 21
        counts = torch.bincount(rows)[8:13].double() / 20_000
        assert counts.tolist() == pytest.approx([0.2] * 5, abs=0.015)
        # Unflipped columns are 6..10, flipped ones 10..14.
        assert (columns > 10).double().mean().item() == pytest.approx(0.25 * 0.8, abs=0.015)


class TestRotate:
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_is_an_affine_map_about_the_centre(self, dtype: torch.dtype) -> None:
        x = images(dtype=dtype)
        degrees = torch.tensor([-15.0, -7.3, -1.0, 0.0, 2.5, 8.0, 15.0, 90.0])
        y = rotate(x, degrees)
        for i, angle in enumerate(np.deg2rad(degrees.double().numpy())):
            cos, sin = math.cos(angle), math.sin(angle)
            matrix = np.array([[cos, sin], [-sin, cos]])  # (row, column) of the source
            centre = np.array([15.5, 14.5])
            for c in range(3):
                expected = ndimage.affine_transform(
                    x[i, c].double().numpy(),
                    matrix,
                    centre - matrix @ centre,
                    order=1,
                    mode="grid-constant",
                )
                if dtype == torch.uint8:  # a tie may round either way
                    assert np.abs(y[i, c].numpy() - expected).max() < 0.51
                else:
                    tolerance = 1e-4 if dtype == torch.float32 else 1e-5
                    np.testing.assert_allclose(y[i, c].numpy(), expected, atol=tolerance)

    def test_zero_degrees_is_the_image(self) -> None:
        x = images()
        assert torch.equal(rotate(x, torch.zeros(8)), x)

    def test_turns_counter_clockwise(self) -> None:
        x = torch.zeros(1, 1, 9, 9)
        x[0, 0, 4, 8] = 1  # at the right
        y = rotate(x, torch.tensor([90.0]))
        assert y[0, 0, 0, 4].item() == pytest.approx(1, abs=1e-5)  # at the top

    def test_the_preset_stays_within_its_angle(self) -> None:
        x = torch.zeros(500, 1, 33, 33)
        x[:, :, 16, 16:] = 1  # a hand that points to the right
        y = Augmentation(rotation=15)(x, seeded())
        rows, columns = torch.meshgrid(
            torch.arange(33.0) - 16, torch.arange(33.0) - 16, indexing="ij"
        )
        angle = torch.atan2(-(y * rows).sum((1, 2, 3)), (y * columns).sum((1, 2, 3))).rad2deg()
        assert angle.abs().max() < 15.5
        assert angle.min() < -13
        assert angle.max() > 13
        assert angle.mean().abs() < 1.5


class TestJitter:
    @pytest.mark.parametrize("channels", [1, 3, 4])
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_is_three_steps(self, channels: int, dtype: torch.dtype) -> None:
        x = images(channels=channels, dtype=dtype)
        b, c, s = (torch.rand(8, generator=seeded(i)) + 0.5 for i in range(3))
        y = jitter(x, b, c, s)
        luma = np.array([0.299, 0.587, 0.114])
        for i in range(8):
            image = x[i].double().numpy() * b[i].item()
            grey = np.tensordot(luma, image, 1) if channels == 3 else image.mean(0)
            image = grey.mean() + c[i].item() * (image - grey.mean())
            if channels == 3:
                grey = np.tensordot(luma, image, 1)
                image = grey + s[i].item() * (image - grey)
            if dtype == torch.uint8:
                assert np.abs(y[i].numpy() - np.clip(image, 0, 255)).max() < 0.51
            else:
                np.testing.assert_allclose(y[i].numpy(), image, atol=1e-5)

    def test_factors_of_one_change_nothing(self) -> None:
        x = images()
        one = torch.ones(8)
        assert torch.equal(jitter(x, one, one, one), x)


class TestErase:
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_is_a_filled_rectangle(self, dtype: torch.dtype) -> None:
        x = images(dtype=dtype)
        top, left = torch.arange(8), 2 * torch.arange(8)
        tall, wide = torch.tensor([1, 3, 0, 9, 20, 5, 2, 25]), torch.arange(8) + 1
        y = erase(x, top, left, tall, wide)
        for i in range(8):
            expected = x[i].clone()
            mean = x[i].double().mean((1, 2))
            mean = mean.round() if dtype == torch.uint8 else mean
            rows = slice(int(top[i]), int(top[i] + tall[i]))
            columns = slice(int(left[i]), int(left[i] + wide[i]))
            for c in range(3):
                expected[c, rows, columns] = mean[c].to(dtype)
            assert (y[i].double() - expected.double()).abs().max() < 1e-6

    def test_share_and_area_of_the_preset(self) -> None:
        x = torch.zeros(4000, 1, 32, 32)
        x[:, :, ::2] = 1  # no pixel is the mean, so that the hole shows
        y = Augmentation(erase=0.5, erase_area=(0.1, 0.2))(x, seeded())
        area = (y != x).double().mean((1, 2, 3))
        erased = area > 0
        assert erased.double().mean().item() == pytest.approx(0.5, abs=0.03)
        assert area[erased].min() > 0.08
        assert area[erased].max() < 0.22
        assert area[erased].mean().item() == pytest.approx(0.15, abs=0.005)
        everywhere = (y != x).any(0)
        assert everywhere.all()


class TestAll:
    @pytest.mark.parametrize("name", AUGMENTATIONS)
    @pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16])
    @pytest.mark.parametrize("channels", [1, 3])
    def test_shape_type_and_repetition(self, name: str, dtype: torch.dtype, channels: int) -> None:
        x = images(channels=channels, dtype=dtype)
        before = x.clone()
        y = AUGMENTATIONS[name](x, seeded())
        assert y.shape == x.shape
        assert y.dtype == dtype
        assert torch.equal(x, before)
        assert torch.equal(y, AUGMENTATIONS[name](x, seeded()))
        assert AUGMENTATIONS[name](x[:0], seeded()).shape == (0, channels, 32, 30)

    def test_none_is_the_identity(self) -> None:
        x, generator = images(), seeded()
        state = generator.get_state()
        assert torch.equal(AUGMENTATIONS["none"](x, generator), x)
        assert torch.equal(generator.get_state(), state)

    def test_is_nothing_says_whether_images_change(self) -> None:
        assert [name for name, each in AUGMENTATIONS.items() if each.is_nothing] == ["none"]
        assert Augmentation(erase_area=(0.1, 0.2), erase_aspect=2.0).is_nothing
        for field in ("crop", "flip", "rotation", "jitter", "erase"):
            assert not Augmentation(**{field: 1}).is_nothing  # type: ignore[arg-type]

    @pytest.mark.parametrize("name", RANDOM)
    def test_each_image_has_its_own_draws(self, name: str) -> None:
        same = images(1).repeat(32, 1, 1, 1)
        y = AUGMENTATIONS[name](same, seeded())
        assert len(y.unique(dim=0)) > 24  # of 162 windows or more: few coincide
        assert not torch.equal(y, AUGMENTATIONS[name](same, seeded(1)))

    @pytest.mark.parametrize("name", RANDOM)
    def test_an_image_does_not_depend_on_its_neighbours(self, name: str) -> None:
        x = images()
        y = AUGMENTATIONS[name](x, seeded())
        other = x.clone()
        other[1:] = 255 - other[1:]
        assert torch.equal(AUGMENTATIONS[name](other, seeded())[0], y[0])

    def test_the_global_generator_is_left_alone(self) -> None:
        state = torch.get_rng_state()
        AUGMENTATIONS["strong"](images(), seeded())
        assert torch.equal(torch.get_rng_state(), state)

    def test_the_generator_moves_on(self) -> None:
        x, generator = images(), seeded()
        first = AUGMENTATIONS["standard"](x, generator)
        assert not torch.equal(first, AUGMENTATIONS["standard"](x, generator))

    def test_non_contiguous_images(self) -> None:
        x = images().permute(0, 1, 3, 2)
        for augment in AUGMENTATIONS.values():
            assert torch.equal(augment(x, seeded()), augment(x.contiguous(), seeded()))


class TestErrors:
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"crop": -1}, "crop"),
            ({"crop": 1.5}, "crop"),
            ({"flip": 1.1}, "flip"),
            ({"rotation": -1.0}, "rotation"),
            ({"jitter": 2.0}, "jitter"),
            ({"erase": math.nan}, "erase"),
            ({"erase_area": (0.0, 0.5)}, "erase_area"),
            ({"erase_area": (0.5, 0.2)}, "erase_area"),
            ({"erase_aspect": 0.5}, "erase_aspect"),
            ({"erase_aspect": math.nan}, "erase_aspect"),
            ({"erase_aspect": math.inf}, "erase_aspect"),
        ],
    )
    def test_fields(self, fields: dict[str, object], message: str) -> None:
        with pytest.raises(InputError, match=message):
            Augmentation(**fields)  # type: ignore[arg-type]

    def test_images_and_generator(self) -> None:
        with pytest.raises(InputError, match=r"\(B, C, H, W\)"):
            AUGMENTATIONS["standard"](torch.zeros(3, 32, 32), seeded())
        with pytest.raises(InputError, match="uint8 or floating"):
            AUGMENTATIONS["standard"](torch.zeros(1, 3, 32, 32, dtype=torch.int64), seeded())
        with pytest.raises(InputError, match="smaller than the image"):
            AUGMENTATIONS["standard"](torch.zeros(1, 3, 4, 4), seeded())
        with pytest.raises(InputError, match=r"torch\.Generator"):
            AUGMENTATIONS["standard"](images(), 0)  # type: ignore[arg-type]
