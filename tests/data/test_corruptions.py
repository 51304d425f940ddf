"""Corruptions: what all types share, each type against a formula or a slow loop, and the files."""

from __future__ import annotations

import colorsys
import gzip
import io
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from torch import Tensor

from gemfi.data.corruptions import (
    CORRUPTIONS_CIFAR,
    CORRUPTIONS_MNIST,
    FAMILIES,
    SEVERITIES,
    Corruption,
    blur,
    corrupt,
    digital,
    mnist,
    plasma,
    sampling,
    weather,
    write_published_layout,
)
from gemfi.data.corruptions.edges import canny
from gemfi.errors import InputError

ALL = [
    *(("cifar10", name, severity) for name in CORRUPTIONS_CIFAR for severity in (1, 3, 5)),
    *(("mnist", name, None) for name in CORRUPTIONS_MNIST),
]
# Types that, with the published constants, do not raise the distance from the clean image at each
# step; each has a test of its own below that says what rises instead.
NOT_BY_DISTANCE = {
    "glass_blur",
    "motion_blur",
    "frost",
    "elastic_transform",
    "spatter",
    "saturate",
}


def rngs(count: int, seed: int = 0) -> list[np.random.Generator]:
    return [np.random.default_rng([seed, i]) for i in range(count)]


@pytest.fixture(scope="module")
def colour() -> Tensor:
    """(48, 3, 32, 32): smooth waves with a coloured box, no two alike."""
    rng = np.random.default_rng(0)
    grid = np.arange(32) / 32
    images = np.zeros((48, 3, 32, 32))
    for image in images:
        for c in range(3):
            for _ in range(4):
                a, b = rng.uniform(-4, 4, 2)
                wave = np.cos(2 * np.pi * (a * grid[:, None] + b * grid + rng.random()))
                image[c] += 0.1 * wave
            image[c] += rng.uniform(0.35, 0.6)
        top, left = rng.integers(4, 18, 2)
        image[:, top : top + 9, left : left + 9] = rng.random((3, 1, 1))
    return torch.from_numpy((np.clip(images, 0, 1) * 255).astype(np.uint8))


@pytest.fixture(scope="module")
def digits() -> Tensor:
    """(48, 1, 28, 28): scikit-learn's digits, enlarged to 20×20 in a black frame."""
    from sklearn.datasets import load_digits  # noqa: PLC0415

    small = load_digits().images[:48] / 16
    large = np.clip(ndimage.zoom(small, (1, 2.5, 2.5), order=1), 0, 1)
    framed = np.pad(large, ((0, 0), (4, 4), (4, 4)))[:, None]
    return torch.from_numpy((framed * 255).astype(np.uint8))


def pick(family: str, colour: Tensor, digits: Tensor, count: int = 12) -> Tensor:
    return (colour if family == "cifar10" else digits)[:count]


def distance(a: Tensor, b: Tensor) -> float:
    return (a.float() - b.float()).abs().mean().item()


def unlikeness(a: Tensor, b: Tensor) -> float:
    """1 − correlation, mean over images: blind to brightness and contrast."""
    a, b = a.flatten(1).double(), b.flatten(1).double()
    a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
    return (1 - (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))).mean().item()


def by_severity(name: str, images: Tensor) -> list[float]:
    return [distance(corrupt(images, name, severity), images) for severity in SEVERITIES]


def rises(values: list[float]) -> bool:
    return all(a < b for a, b in itertools.pairwise(values))


class TestEveryType:
    def test_the_published_types(self) -> None:
        assert len(CORRUPTIONS_CIFAR) == 19
        assert len(CORRUPTIONS_MNIST) == 15
        assert "identity" not in CORRUPTIONS_MNIST
        for family in FAMILIES.values():
            for name, record in family.items():
                assert record.name == name
                assert record.provenance
                assert record.meaning
                assert record.is_approximate == (record.approximation is not None)
                assert len({len(c) for c in record.constants}) == 1
        assert all(len(record.constants) == 5 for record in CORRUPTIONS_CIFAR.values())
        assert "procedural" in str(CORRUPTIONS_CIFAR["frost"].approximation)

    def test_the_page_has_each_type_with_its_constants(self) -> None:
        page = (Path(__file__).parents[2] / "docs" / "corruptions.md").read_text(encoding="utf-8")
        lines = page.split("## MNIST-C")
        for part, family in zip(lines, FAMILIES.values(), strict=True):
            for name, record in family.items():
                row = next(line for line in part.splitlines() if line.startswith(f"| `{name}` |"))
                numbers = re.findall(r"[\d./]+", row.split("|")[2])
                found = [1 / 0.7 if n == "1/0.7" else float(n) for n in numbers]
                assert found == pytest.approx([v for c in record.constants for v in c])
                assert (record.approximation or "| no |") in row

    @pytest.mark.parametrize(("family", "name", "severity"), ALL)
    def test_range_type_and_determinism(
        self, family: str, name: str, severity: int | None, colour: Tensor, digits: Tensor
    ) -> None:
        x = pick(family, colour, digits)
        before = x.clone()
        y = corrupt(x, name, severity, seed=3, family=family)
        assert y.dtype == torch.uint8
        assert y.shape == x.shape
        assert torch.equal(x, before)
        assert not torch.equal(y, x)
        assert torch.equal(y, corrupt(x, name, severity, seed=3, family=family))

    @pytest.mark.parametrize(("family", "name", "severity"), ALL)
    def test_batch_size_does_not_matter(
        self,
        family: str,
        name: str,
        severity: int | None,
        colour: Tensor,
        digits: Tensor,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        x = pick(family, colour, digits)
        whole = corrupt(x, name, severity, family=family)
        parts = [
            corrupt(x[a:b], name, severity, family=family, first=a)
            for a, b in ((0, 1), (1, 6), (6, 12))
        ]
        assert torch.equal(whole, torch.cat(parts))
        monkeypatch.setattr("gemfi.data.corruptions.apply.CHUNK", 5)
        assert torch.equal(whole, corrupt(x, name, severity, family=family))

    @pytest.mark.parametrize(("family", "name", "severity"), ALL)
    def test_seeds_and_images_draw_on_their_own(
        self, family: str, name: str, severity: int | None, colour: Tensor, digits: Tensor
    ) -> None:
        x = pick(family, colour, digits)
        same = x[:1].repeat(12, 1, 1, 1)
        y = corrupt(same, name, severity, family=family)
        others = corrupt(same, name, severity, seed=1, family=family)
        # A sign has two values and some drops miss: not each pair differs, but the sets do.
        if FAMILIES[family][name].random:
            assert not torch.equal(y, others)
            assert len(y.unique(dim=0)) > 1
        else:
            assert torch.equal(y, others)
            assert len(y.unique(dim=0)) == 1

    @pytest.mark.parametrize("family", FAMILIES)
    @pytest.mark.parametrize("level", [0, 255])
    def test_flat_and_empty_images(self, family: str, level: int) -> None:
        shape = (3, 32, 32) if family == "cifar10" else (1, 28, 28)
        for name in FAMILIES[family]:
            severity = 3 if family == "cifar10" else None
            x = torch.full((2, *shape), level, dtype=torch.uint8)
            assert corrupt(x, name, severity, family=family).shape == x.shape
            assert corrupt(x[:0], name, severity, family=family).shape == (0, *shape)


class TestSeverity:
    @pytest.mark.parametrize("name", sorted(set(CORRUPTIONS_CIFAR) - NOT_BY_DISTANCE))
    def test_raises_the_distance(self, name: str, colour: Tensor) -> None:
        assert rises(by_severity(name, colour))

    def test_motion_blur_stands_still_once(self, colour: Tensor) -> None:
        # 3 and 4 have the same σ; only the weights beyond three of it are cut elsewhere.
        steps = by_severity("motion_blur", colour)
        assert rises([*steps[:3], steps[4]])
        assert steps[3] == pytest.approx(steps[2], rel=0.1)

    def test_glass_blur_rises_with_the_rounds(self, colour: Tensor) -> None:
        steps = by_severity("glass_blur", colour)
        assert min(steps[3:]) > max(steps[:3])

    def test_frost_hides_more_and_more(self, colour: Tensor) -> None:
        # Ice brightens what the share of the image darkens: the distance says little.
        hidden = [unlikeness(corrupt(colour, "frost", s), colour) for s in SEVERITIES]
        assert rises(hidden)

    def test_spatter_rises_in_water_and_in_mud(self, colour: Tensor) -> None:
        steps = by_severity("spatter", colour)
        assert rises(steps[:3])
        assert rises(steps[3:])

    def test_saturate_rises_below_and_above_one(self, colour: Tensor) -> None:
        steps = by_severity("saturate", colour)
        assert rises(steps[:2])
        assert rises(steps[2:])

    def test_elastic_transform_bends_more_and_more(self) -> None:
        # The affine part shrinks from step to step and the bending grows. On an image of its own
        # coordinates, the bending is what no affine map explains.
        grid = np.arange(32) / 31
        x = np.zeros((64, 3, 32, 32)) + np.stack([np.tile(grid, (32, 1))] * 3)
        inner = slice(10, 22)
        rows, columns = np.meshgrid(grid[inner], grid[inner], indexing="ij")
        basis = np.stack([rows.ravel(), columns.ravel(), np.ones(rows.size)], axis=1)
        bent = []
        for constants in CORRUPTIONS_CIFAR["elastic_transform"].constants:
            y = digital.elastic_transform(x, rngs(64), constants)[:, 0, inner, inner]
            flat = y.reshape(64, -1).T
            rest = flat - basis @ np.linalg.lstsq(basis, flat, rcond=None)[0]
            bent.append(float(np.abs(rest).mean()))
        assert rises(bent)
        assert bent[0] < 1e-12


class TestNoise:
    GREY = torch.full((8, 3, 32, 32), 128, dtype=torch.uint8)

    def change(self, name: str, severity: int) -> tuple[float, float]:
        y = corrupt(self.GREY, name, severity).double() / 255
        return y.mean().item(), y.std().item()

    @pytest.mark.parametrize("severity", SEVERITIES)
    def test_gaussian_noise_has_the_published_deviation(self, severity: int) -> None:
        (sd,) = CORRUPTIONS_CIFAR["gaussian_noise"].constants[severity - 1]
        mean, found = self.change("gaussian_noise", severity)
        assert found == pytest.approx(sd, rel=0.02)
        assert mean == pytest.approx((128 - 0.5) / 255, abs=0.003)  # rounded down

    @pytest.mark.parametrize("severity", SEVERITIES)
    def test_shot_noise_has_the_variance_of_counts(self, severity: int) -> None:
        (photons,) = CORRUPTIONS_CIFAR["shot_noise"].constants[severity - 1]
        _, found = self.change("shot_noise", severity)
        assert found == pytest.approx((128 / 255 / photons) ** 0.5, rel=0.02)

    @pytest.mark.parametrize("severity", SEVERITIES)
    def test_speckle_noise_is_in_proportion(self, severity: int) -> None:
        (sd,) = CORRUPTIONS_CIFAR["speckle_noise"].constants[severity - 1]
        _, found = self.change("speckle_noise", severity)
        assert found == pytest.approx(sd * 128 / 255, rel=0.02)

    @pytest.mark.parametrize("severity", SEVERITIES)
    def test_impulse_noise_is_salt_and_pepper(self, severity: int) -> None:
        (amount,) = CORRUPTIONS_CIFAR["impulse_noise"].constants[severity - 1]
        y = corrupt(self.GREY, "impulse_noise", severity)
        assert set(y.unique().tolist()) == {0, 128, 255}
        for level in (0, 255):
            assert (y == level).double().mean().item() == pytest.approx(amount / 2, rel=0.2)


class TestBlur:
    @pytest.mark.parametrize("severity", SEVERITIES)
    @pytest.mark.parametrize(
        "name",
        ["gaussian_blur", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"],
    )
    def test_a_flat_image_stays(self, name: str, severity: int) -> None:
        x = torch.full((2, 3, 32, 32), 77, dtype=torch.uint8)
        assert torch.equal(corrupt(x, name, severity), x)

    def test_gaussian_blur_of_a_point_is_the_bell(self) -> None:
        x = np.zeros((1, 1, 31, 31))
        x[0, 0, 15, 15] = 1
        y = blur.gaussian_blur(x, [], (1.0,))[0, 0]
        taps = np.exp(-(np.arange(-4, 5) ** 2) / 2)
        taps /= taps.sum()
        np.testing.assert_allclose(y[11:20, 11:20], np.outer(taps, taps), atol=1e-12)

    def test_disk(self) -> None:
        assert blur.disk(0.3, 0.4).sum() == pytest.approx(1)
        plus = blur.disk(1, 0.05)  # hardly softened: a pixel and its four neighbours
        assert plus[3, 3] == pytest.approx(0.2)
        assert plus[2, 3] == pytest.approx(0.2)
        assert plus[2, 2] == pytest.approx(0, abs=1e-12)
        assert (blur.disk(1.5, 0.1) > 0.1).sum() == 9

    def test_motion_blur_is_a_weighted_tail(self) -> None:
        x = np.random.default_rng(0).random((3, 2, 9, 9))
        angles = np.array([0.0, 30.0, -45.0])
        y = sampling.motion_blurred(x, 3, 1.5, angles)
        weights = np.exp(-(np.arange(7) ** 2) / (2 * 1.5**2))
        weights /= weights.sum()
        for b, angle in enumerate(np.deg2rad(angles)):
            for r, c in np.ndindex(9, 9):
                total = np.zeros(2)
                for i, weight in enumerate(weights):
                    row = min(max(r + int(np.ceil(i * np.sin(angle) - 0.5)), 0), 8)
                    column = min(max(c + int(np.ceil(i * np.cos(angle) - 0.5)), 0), 8)
                    total += weight * x[b, :, row, column]
                np.testing.assert_allclose(y[b, :, r, c], total, atol=1e-12)

    def test_zoom_is_a_resized_crop(self) -> None:
        x = np.random.default_rng(0).random((2, 3, 32, 32))
        for factor in (1.0, 1.03, 1.11, 1.25, 1.75, 2.25):
            crop = int(np.ceil(32 / factor))
            top = (32 - crop) // 2
            part = x[:, :, top : top + crop, top : top + crop]
            large = ndimage.zoom(part, (1, 1, factor, factor), order=1)
            trim = (large.shape[2] - 32) // 2
            expected = large[:, :, trim : trim + 32, trim : trim + 32]
            np.testing.assert_allclose(sampling.zoomed(x, factor), expected, atol=1e-9)

    def test_zoom_blur_counts_its_factors(self) -> None:
        x = np.random.default_rng(0).random((1, 3, 32, 32))
        factors = np.arange(1, 1.06, 0.01)  # as published: rounding lets the end in
        assert len(factors) == 7
        parts = [x, *(sampling.zoomed(x, factor) for factor in factors)]
        np.testing.assert_allclose(
            blur.zoom_blur(x, [], CORRUPTIONS_CIFAR["zoom_blur"].constants[0]),
            np.mean(parts, axis=0),
        )

    @pytest.mark.parametrize("channels", [1, 3])
    def test_glass_blur_moves_pixels_one_by_one(self, channels: int) -> None:
        x = np.random.default_rng(0).integers(0, 256, (2, channels, 12, 12)) / 255
        function = blur.glass_blur if channels == 3 else blur.glass_blur_grey
        y = function(x, rngs(2), (1e-3, 2, 2))  # a filter that does nothing
        for image, rng, found in zip(x.copy(), rngs(2), y, strict=True):
            moves = rng.integers(-2, 2, (2, 8, 8, 2))
            taken = rng.random((2, 8, 8)) < 0.5 if channels == 1 else np.ones((2, 8, 8))
            for each, i, j in np.ndindex(2, 8, 8):
                if taken[each, i, j]:
                    r, c = 10 - i, 10 - j
                    other = r + moves[each, i, j, 0], c + moves[each, i, j, 1]
                    kept = image[:, r, c].copy()
                    image[:, r, c] = image[:, other[0], other[1]]
                    if channels == 1:
                        image[:, other[0], other[1]] = kept
            np.testing.assert_allclose(found, image, atol=1e-12)


class TestSampling:
    @pytest.mark.parametrize(
        ("border", "mode"),
        [("zero", "grid-constant"), ("mirror", "mirror"), ("reflect", "reflect")],
    )
    def test_bilinear_is_map_coordinates(self, border: str, mode: str) -> None:
        rng = np.random.default_rng(0)
        x = rng.random((2, 3, 8, 8))
        rows, columns = rng.uniform(-9, 16, (2, 2, 6, 6))
        y = sampling.bilinear(x, rows, columns, border)
        for b, c in np.ndindex(2, 3):
            expected = ndimage.map_coordinates(x[b, c], [rows[b], columns[b]], order=1, mode=mode)
            np.testing.assert_allclose(y[b, c], expected, atol=1e-12)


class TestWeather:
    def test_plasma_is_diamond_square(self) -> None:
        decay = 1.7
        fields = plasma.plasma(rngs(2), decay)
        for field, rng in zip(fields, rngs(2), strict=True):
            draws = iter(rng.uniform(-1, 1, 1023))
            f = np.zeros((32, 32))
            step, amplitude = 32, 1e4
            while step >= 2:
                h = step // 2
                places = [(r, c) for r in range(0, 32, step) for c in range(0, 32, step)]

                def at(r: int, c: int, f: np.ndarray = f) -> float:
                    return float(f[r % 32, c % 32])

                for r, c in places:
                    mean = (
                        at(r, c) + at(r, c + step) + at(r + step, c) + at(r + step, c + step)
                    ) / 4
                    f[r + h, c + h] = mean + amplitude * next(draws)
                for r, c in places:
                    near = at(r, c) + at(r + step, c) + at(r + h, c + h) + at(r + h, c - h)
                    f[r + h, c] = near / 4 + amplitude * next(draws)
                for r, c in places:
                    near = at(r, c) + at(r, c + step) + at(r + h, c + h) + at(r - h, c + h)
                    f[r, c + h] = near / 4 + amplitude * next(draws)
                step, amplitude = h, amplitude / decay**2
            f -= f.min()
            np.testing.assert_allclose(field, f / f.max(), atol=1e-9)

    def test_fog_keeps_the_peak_at_most(self, colour: Tensor) -> None:
        x = colour[:4].numpy() / 255
        y = weather.fog(x, rngs(4), (1.5, 1.75))
        clouds = plasma.plasma(rngs(4), 1.75)
        for image, cloud, found in zip(x, clouds, y, strict=True):
            peak = image.max()
            np.testing.assert_allclose(found, (image + 1.5 * cloud) * peak / (peak + 1.5))
            assert found.max() <= peak + 1e-12

    def test_frost_adds_ice_by_its_shares(self, colour: Tensor) -> None:
        x = colour[:4].numpy() / 255
        pane = plasma.ice(rngs(4))
        assert pane.min() >= 0
        assert pane.max() <= 1
        y = weather.frost(x, rngs(4), (0.75, 0.45))
        np.testing.assert_allclose(y, 0.75 * x + 0.45 * pane)

    def test_snow_only_brightens(self, colour: Tensor) -> None:
        y = corrupt(colour, "snow", 5)
        assert (y >= colour).all()
        black = torch.zeros_like(colour)
        flakes = corrupt(black, "snow", 3).float()
        # 10 % of the way to one half, and flakes that come in pairs, half a turn apart.
        assert flakes.min() == int(0.1 * 0.5 * 255)
        assert torch.equal(flakes, flakes.flip(2, 3))

    def test_mud_is_mud_or_nothing(self, colour: Tensor) -> None:
        y = corrupt(colour, "spatter", 5)
        white = corrupt(torch.full_like(colour, 255), "spatter", 5)
        clean = (white == 255).all(1, keepdim=True).expand_as(y)
        assert torch.equal(y[clean], colour[clean])
        assert 0.005 < 1 - clean.float().mean().item() < 0.4
        darkest = white.flatten(2).min(2).values.min(0).values
        assert (darkest - torch.tensor([63, 42, 20])).abs().max() <= 2

    def test_water_is_turquoise_light(self) -> None:
        y = corrupt(torch.zeros(16, 3, 32, 32, dtype=torch.uint8), "spatter", 3).double()
        wet = y[:, 1] > 20
        assert 0.02 < wet.double().mean().item() < 0.6
        ratio = (y[:, 0][wet] / y[:, 1][wet]).mean().item()
        assert ratio == pytest.approx(175 / 238, abs=0.02)
        assert y.amax(dim=(1, 2, 3)).max().item() == int(0.5 * 238 + 1e-6)

    def test_equalised_spreads_the_levels(self) -> None:
        x = np.random.default_rng(0).integers(3, 9, (3, 6, 6)).astype(np.uint8)
        x[2] = 5
        y = weather._equalised(x)
        assert (y[2] == 5).all()
        for image, found in zip(x[:2], y[:2], strict=True):
            lowest = (image == image.min()).sum()
            for level in np.unique(image):
                share = ((image <= level).sum() - lowest) / (image.size - lowest)
                assert (found[image == level] == round(float(share) * 255)).all()


class TestDigital:
    def hsv(self, x: Tensor, factor: float, add_s: float, add_v: float) -> np.ndarray:
        result = np.empty(x.shape)
        for b, r, c in np.ndindex(len(x), 32, 32):
            h, s, v = colorsys.rgb_to_hsv(*(x[b, :, r, c].double() / 255).tolist())
            s, v = min(max(factor * s + add_s, 0), 1), min(v + add_v, 1)
            result[b, :, r, c] = colorsys.hsv_to_rgb(h, s, v)
        return np.floor(result * 255 + 1e-6)

    @pytest.mark.parametrize("severity", [1, 5])
    def test_brightness_is_value_in_hsv(self, severity: int, colour: Tensor) -> None:
        x = colour[:2].clone()
        x[0, :, :4] = 0  # black
        x[0, :, 4:8] = 255
        (add,) = CORRUPTIONS_CIFAR["brightness"].constants[severity - 1]
        y = corrupt(x, "brightness", severity).numpy()
        assert np.abs(y - self.hsv(x, 1, 0, add)).max() <= 1
        assert (y == self.hsv(x, 1, 0, add)).mean() > 0.999

    @pytest.mark.parametrize("severity", SEVERITIES)
    def test_saturate_is_saturation_in_hsv(self, severity: int, colour: Tensor) -> None:
        x = colour[:2].clone()
        x[0, :, :4] = 90  # grey
        x[0, :, 4:6] = 0
        factor, add = CORRUPTIONS_CIFAR["saturate"].constants[severity - 1]
        expected = self.hsv(x, factor, add, 0)
        y = corrupt(x, "saturate", severity).numpy()
        assert np.abs(y - expected).max() <= 1
        assert (y == expected).mean() > 0.999

    @pytest.mark.parametrize("severity", SEVERITIES)
    def test_contrast_is_about_the_mean(self, severity: int, colour: Tensor) -> None:
        (factor,) = CORRUPTIONS_CIFAR["contrast"].constants[severity - 1]
        x = colour.double() / 255
        mean = x.mean(dim=(2, 3), keepdim=True)
        expected = (((x - mean) * factor + mean) * 255 + 1e-6).floor()
        y = corrupt(colour, "contrast", severity).double()
        assert (y - expected).abs().max() <= 1
        assert (y == expected).double().mean() > 0.999

    @pytest.mark.parametrize("severity", SEVERITIES)
    def test_pixelate_has_blocks(self, severity: int, colour: Tensor) -> None:
        (share,) = CORRUPTIONS_CIFAR["pixelate"].constants[severity - 1]
        y = corrupt(colour[:4], "pixelate", severity)
        side = int(32 * share)
        for image, found in zip(colour[:4], y, strict=True):
            small = Image.fromarray(image.permute(1, 2, 0).numpy())
            small = small.resize((side, side), Image.Resampling.BOX)
            large = np.asarray(small.resize((32, 32), Image.Resampling.BOX))
            assert (found.permute(1, 2, 0).numpy() == large).all()
        if severity == 5:  # 20 of 32: twelve rows of a ramp repeat or blend
            ramp = torch.arange(32, dtype=torch.uint8).mul(8).expand(1, 3, 32, 32).contiguous()
            assert len(corrupt(ramp, "pixelate", 5)[0, 0, 0].unique()) < 32

    @pytest.mark.parametrize("severity", SEVERITIES)
    def test_jpeg_is_pillow(self, severity: int, colour: Tensor) -> None:
        quality = (80, 65, 58, 50, 40)[severity - 1]
        y = corrupt(colour[:4], "jpeg_compression", severity)
        for image, found in zip(colour[:4], y, strict=True):
            file = io.BytesIO()
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(file, "JPEG", quality=quality)
            assert (found.permute(1, 2, 0).numpy() == np.asarray(Image.open(file))).all()

    def test_elastic_transform_maps_its_three_points(self) -> None:
        rows, columns = digital._affine(rngs(5), 32, 2.56)
        corners = np.array([[26, 26], [26, 6], [6, 6]])
        for rng, r, c in zip(rngs(5), rows, columns, strict=True):
            moved = corners + rng.uniform(-2.56, 2.56, (3, 2))
            # The map is affine: reading it between pixels is exact.
            for (x, y), (u, v) in zip(corners, moved, strict=True):
                read = [ndimage.map_coordinates(f, [[v], [u]], order=1)[0] for f in (c, r)]
                assert read == pytest.approx([x, y], abs=1e-9)


class TestMnist:
    def test_stripe_inverts_both_sides(self, digits: Tensor) -> None:
        y = corrupt(digits, "stripe", family="mnist")
        assert torch.equal(y[..., 7:21], digits[..., 7:21])
        assert torch.equal(y[..., :7], 255 - digits[..., :7])
        assert torch.equal(y[..., 21:], 255 - digits[..., 21:])

    def test_brightness_adds_a_half(self, digits: Tensor) -> None:
        y = corrupt(digits, "brightness", family="mnist")
        expected = (digits.double() + 127.5 + 1e-6).floor().clamp(max=255)
        assert torch.equal(y.double(), expected)

    def test_translate_is_a_shift_by_three(self, digits: Tensor) -> None:
        y = corrupt(digits, "translate", family="mnist")
        seen = set()
        for before, after in zip(digits[:, 0], y[:, 0], strict=True):
            padded = np.pad(before.numpy(), 3)
            found = [
                (r, c)
                for r in (0, 6)
                for c in (0, 6)
                if (padded[r : r + 28, c : c + 28] == after.numpy()).all()
            ]
            assert len(found) == 1
            seen.add(found[0])
        assert len(seen) == 4

    @pytest.mark.parametrize("name", ["rotate", "shear", "scale"])
    def test_affine_maps_against_scipy(self, name: str, digits: Tensor) -> None:
        cos, sin = np.cos(0.4), np.sin(0.4)
        matrices = {  # in (row, column), from the new image to the old
            "rotate": [np.array([[cos, s * sin], [-s * sin, cos]]) for s in (-1, 1)],
            "shear": [np.array([[cos, 0], [-s * sin, 1]]) for s in (-1, 1)],
            "scale": [np.eye(2) / 0.7],
        }[name]
        y = corrupt(digits, name, family="mnist").numpy()
        used = set()
        for before, after in zip(digits[:, 0].numpy(), y[:, 0], strict=True):
            errors = []
            for matrix in matrices:
                offset = 13.5 - matrix @ [13.5, 13.5]
                expected = ndimage.affine_transform(
                    before.astype(float), matrix, offset, order=1, mode="grid-constant"
                )
                errors.append(np.abs(after - np.floor(expected + 1e-6)).max())
            assert min(errors) <= 1
            used.add(int(np.argmin(errors)))
        assert len(used) == len(matrices)

    @pytest.mark.parametrize("name", ["dotted_line", "zigzag"])
    def test_strokes_only_add(self, name: str, digits: Tensor) -> None:
        y = corrupt(digits, name, family="mnist")
        assert (y >= digits).all()
        drawn = corrupt(torch.zeros_like(digits), name, family="mnist")
        columns = (drawn > 0).any(dim=2)[:, 0]  # (N, 28)
        if name == "dotted_line":
            on = torch.arange(28) // 2 % 2 == 1
            on[27] = False
            assert torch.equal(columns, on.expand_as(columns))
        else:
            assert columns[:, 4:22].float().mean() > 0.95  # it may leave by the top or bottom
            assert not columns[:, 26:].any()
        assert (drawn.amax(dim=(1, 2, 3)) > 200).all()

    def test_stroke_fades_with_the_distance_in_rows(self) -> None:
        ends = [np.array([value]) for value in (0.0, 3.0, 27.0, 9.0)]
        line = mnist._stroke(28, *ends)[0]
        for row, column in np.ndindex(28, 28):
            gap = abs(row - (3 + column * 6 / 27))
            level = 1 + np.log(1 - gap / 2.3) if gap < 2.3 else 0.0
            expected = max(level, 0.0) if column < 27 else 0.0
            assert line[row, column] == pytest.approx(expected, abs=1e-9)

    def test_zigzag_passes_its_teeth(self) -> None:
        class Fixed:
            """Row 12, no slope."""

            def __init__(self) -> None:
                self.answers = iter([12, 0])

            def integers(self, low: int, high: int) -> int:
                return next(self.answers)

        x = np.zeros((1, 1, 28, 28))
        y = mnist.zigzag(x, [Fixed()], (2.0, 2.0))[0, 0]  # type: ignore[list-item]
        for tooth in range(6):
            row, column = 12 + (2 if tooth % 2 == 0 else -2), 2 + (2 * tooth + 1) * 2
            assert y[row, column] == pytest.approx(1)
        assert not y[:, 25:].any()

    def test_canny_edges_are_outlines(self, digits: Tensor) -> None:
        y = corrupt(digits, "canny_edges", family="mnist")
        assert set(y.unique().tolist()) == {0, 255}
        square = torch.zeros(1, 1, 28, 28, dtype=torch.uint8)
        square[..., 8:20, 8:20] = 255
        found = corrupt(square, "canny_edges", family="mnist")[0, 0] > 0
        assert not found[11:17, 11:17].any()
        assert not found[:6].any()
        groups, count = ndimage.label(~found.numpy(), np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]]))
        assert count == 2  # closed: inside and outside
        assert groups[14, 14] != groups[0, 0]

    def test_canny_keeps_weak_edges_that_touch_strong_ones(self) -> None:
        # A step whose height falls from 1 to 0.02 along its length, and a faint step on its own.
        x = np.zeros((2, 20, 20))
        x[0, :, 10:] = np.linspace(1, 0.02, 20)[:, None]
        x[1, :, 10:] = 0.1
        edges = canny(x, 0.3, 2.0, norm="length", border="nearest")
        assert edges[0, 2:15].any(axis=1).all()
        assert not edges[1].any()


class TestErrors:
    IMAGES = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)

    @pytest.mark.parametrize("severity", [None, 0, 6, -1, 2.0, True, "3"])
    def test_severity(self, severity: object) -> None:
        with pytest.raises(InputError, match="from 1 to 5"):
            corrupt(self.IMAGES, "fog", severity)  # type: ignore[arg-type]

    def test_mnist_has_no_severity(self) -> None:
        x = torch.zeros(2, 1, 28, 28, dtype=torch.uint8)
        with pytest.raises(InputError, match="one fixed severity"):
            corrupt(x, "fog", 3, family="mnist")

    def test_names(self) -> None:
        with pytest.raises(InputError, match=r"unknown corruption 'rain'.*gaussian_noise"):
            corrupt(self.IMAGES, "rain", 1)
        with pytest.raises(InputError, match="unknown corruption 'frost' of mnist"):
            corrupt(self.IMAGES, "frost", family="mnist")
        with pytest.raises(InputError, match=r"unknown family 'svhn'.*cifar10, mnist"):
            corrupt(self.IMAGES, "fog", 1, family="svhn")

    @pytest.mark.parametrize(
        "images",
        [
            torch.zeros(2, 3, 32, 32),
            torch.zeros(3, 32, 32, dtype=torch.uint8),
            torch.zeros(2, 32, 32, 3, dtype=torch.uint8),
            torch.zeros(2, 1, 28, 28, dtype=torch.uint8),
            np.zeros((2, 3, 32, 32), dtype=np.uint8),
        ],
    )
    def test_images(self, images: object) -> None:
        with pytest.raises(InputError, match=r"uint8 tensor of shape \(N, 3, 32, 32\)"):
            corrupt(images, "fog", 1)  # type: ignore[arg-type]

    def test_seed_and_first(self) -> None:
        with pytest.raises(InputError, match="seed"):
            corrupt(self.IMAGES, "fog", 1, seed=-1)
        with pytest.raises(InputError, match="first"):
            corrupt(self.IMAGES, "fog", 1, first=-1)


class TestWriter:
    def test_cifar_layout(self, tmp_path: Path, colour: Tensor) -> None:
        x, y = colour[:5], torch.tensor([3, 1, 4, 1, 5])
        names = ["contrast", "fog"]
        files = write_published_layout(x, y, tmp_path / "c", names=names, seed=2, progress=False)
        assert [f.name for f in files] == ["labels.npy", "contrast.npy", "fog.npy"]
        assert sorted(f.name for f in (tmp_path / "c").iterdir()) == sorted(f.name for f in files)
        labels = np.load(tmp_path / "c" / "labels.npy", allow_pickle=False)
        assert labels.tolist() == y.tolist() * 5
        for name in names:
            images = np.load(tmp_path / "c" / f"{name}.npy", allow_pickle=False)
            assert images.shape == (25, 32, 32, 3)
            assert images.dtype == np.uint8
            for severity in SEVERITIES:
                part = torch.from_numpy(images[5 * severity - 5 : 5 * severity]).permute(0, 3, 1, 2)
                assert torch.equal(part, corrupt(x, name, severity, seed=2))

    def test_mnist_layout(
        self, tmp_path: Path, digits: Tensor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gemfi.data.corruptions.writer.PART", 3)
        x, y = digits[:7], torch.arange(7)
        files = write_published_layout(x, y, tmp_path, family="mnist", progress=False)
        assert len(files) == 30
        assert sorted(f.name for f in tmp_path.iterdir()) == sorted(CORRUPTIONS_MNIST)
        for name in CORRUPTIONS_MNIST:
            images = np.load(tmp_path / name / "test_images.npy", allow_pickle=False)
            assert images.shape == (7, 28, 28, 1)
            expected = corrupt(x, name, family="mnist").permute(0, 2, 3, 1)
            assert (images == expected.numpy()).all()
            labels = np.load(tmp_path / name / "test_labels.npy", allow_pickle=False)
            assert labels.tolist() == y.tolist()

    def test_a_crash_leaves_no_half_file(
        self, tmp_path: Path, colour: Tensor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        record = CORRUPTIONS_CIFAR["fog"]

        def broken(*_: object) -> np.ndarray:
            raise KeyboardInterrupt

        fog = Corruption("fog", broken, record.constants, "", "")
        monkeypatch.setitem(CORRUPTIONS_CIFAR, "fog", fog)
        with pytest.raises(KeyboardInterrupt):
            write_published_layout(
                colour[:2],
                torch.tensor([0, 1]),
                tmp_path,
                names=["contrast", "fog"],
                progress=False,
            )
        assert sorted(f.name for f in tmp_path.iterdir()) == ["contrast.npy", "labels.npy"]

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            (torch.tensor([0, 1, 2]), "one for each image"),
            (torch.tensor([0.0, 1.0]), "integers"),
            (torch.tensor([0, 256]), r"0\.\.255"),
            ([0, 1], "integers"),
        ],
    )
    def test_bad_labels(self, labels: object, message: str, tmp_path: Path, colour: Tensor) -> None:
        with pytest.raises(InputError, match=message):
            write_published_layout(colour[:2], labels, tmp_path)  # type: ignore[arg-type]
        assert not list(tmp_path.iterdir())

    def test_bad_names_before_any_work(self, tmp_path: Path, colour: Tensor) -> None:
        y = torch.tensor([0, 1])
        with pytest.raises(InputError, match="unknown corruption"):
            write_published_layout(colour[:2], y, tmp_path, names=["contrast", "rain"])
        with pytest.raises(InputError, match="unknown family"):
            write_published_layout(colour[:2], y, tmp_path, family="svhn")
        assert not list(tmp_path.iterdir())


class TestRealImages:
    def test_cifar(self, data_dir: Path) -> None:
        raw = (data_dir / "cifar-10-batches-bin" / "test_batch.bin").read_bytes()[: 100 * 3073]
        pixels = np.frombuffer(raw, np.uint8).reshape(100, 3073)[:, 1:].copy()
        x = torch.from_numpy(pixels).reshape(100, 3, 32, 32)
        for name in set(CORRUPTIONS_CIFAR) - NOT_BY_DISTANCE:
            assert rises(by_severity(name, x)), name
        assert rises([unlikeness(corrupt(x, "frost", s), x) for s in SEVERITIES])
        for name in NOT_BY_DISTANCE:
            assert min(by_severity(name, x)) > 0.5, name

    def test_mnist(self, data_dir: Path) -> None:
        packed = (data_dir / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes()
        pixels = np.frombuffer(gzip.decompress(packed), np.uint8, offset=16)[: 200 * 784].copy()
        x = torch.from_numpy(pixels).reshape(200, 1, 28, 28)
        for name in CORRUPTIONS_MNIST:
            y = corrupt(x, name, family="mnist")
            assert 3 < distance(y, x) < 160, name
            assert len(y.unique(dim=0)) == 200, name
