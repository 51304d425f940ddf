"""Noise, blur and resampling against formulas and slow loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import ndimage

from gemfi_bench.corruptions import (
    CORRUPTIONS_CIFAR,
    SEVERITIES,
    corrupt,
    fields,
    functions,
)
from support.corruptions import rngs


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
        y = functions.gaussian_blur(x, [], 1.0)[0, 0]
        taps = np.exp(-(np.arange(-4, 5) ** 2) / 2)
        taps /= taps.sum()
        np.testing.assert_allclose(y[11:20, 11:20], np.outer(taps, taps), atol=1e-12)

    def test_disk(self) -> None:
        assert functions.disk(0.3, 0.4).sum() == pytest.approx(1)
        plus = functions.disk(1, 0.05)  # hardly softened: a pixel and its four neighbours
        assert plus[3, 3] == pytest.approx(0.2)
        assert plus[2, 3] == pytest.approx(0.2)
        assert plus[2, 2] == pytest.approx(0, abs=1e-12)
        assert (functions.disk(1.5, 0.1) > 0.1).sum() == 9

    def test_motion_blur_is_a_weighted_tail(self) -> None:
        x = np.random.default_rng(0).random((3, 2, 9, 9))
        angles = np.array([0.0, 30.0, -45.0])
        y = fields.motion_blurred(x, 3, 1.5, angles)
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
            np.testing.assert_allclose(fields.zoomed(x, factor), expected, atol=1e-9)

    def test_zoom_blur_counts_its_factors(self) -> None:
        x = np.random.default_rng(0).random((1, 3, 32, 32))
        factors = np.arange(1, 1.06, 0.01)  # as published: rounding lets the end in
        assert len(factors) == 7
        parts = [x, *(fields.zoomed(x, factor) for factor in factors)]
        np.testing.assert_allclose(
            functions.zoom_blur(x, [], *CORRUPTIONS_CIFAR["zoom_blur"].constants[0]),
            np.mean(parts, axis=0),
        )

    @pytest.mark.parametrize("channels", [1, 3])
    def test_glass_blur_moves_pixels_one_by_one(self, channels: int) -> None:
        x = np.random.default_rng(0).integers(0, 256, (2, channels, 12, 12)) / 255
        function = functions.glass_blur if channels == 3 else functions.glass_blur_grey
        y = function(x, rngs(2), 1e-3, 2, 2)  # a filter that does nothing
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
    @pytest.mark.parametrize(("border", "mode"), [("mirror", "reflect"), ("reflect", "symmetric")])
    def test_bilinear_mixes_four_pixels_of_a_padded_image(self, border: str, mode: Any) -> None:
        rng = np.random.default_rng(0)
        x = rng.random((2, 3, 8, 8))
        rows, columns = rng.uniform(-9, 16, (2, 2, 6, 6))
        padded = np.pad(x, ((0, 0), (0, 0), (20, 20), (20, 20)), mode=mode)
        y = fields.bilinear(x, rows, columns, border)
        for b, i, j in np.ndindex(2, 6, 6):
            r, c = rows[b, i, j] + 20, columns[b, i, j] + 20
            top, left = int(r), int(c)
            pixels = padded[b, :, top : top + 2, left : left + 2]
            expected = [1 - r + top, r - top] @ pixels @ [1 - c + left, c - left]
            np.testing.assert_allclose(y[b, :, i, j], expected, atol=1e-12)
