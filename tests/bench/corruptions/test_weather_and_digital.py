"""Weather and digital corruptions against formulas and slow loops."""

from __future__ import annotations

import colorsys
import io

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from torch import Tensor

from gemfi_bench.corruptions import (
    CORRUPTIONS_CIFAR,
    SEVERITIES,
    corrupt,
    fields,
    functions,
)
from support.corruptions import rngs


class TestWeather:
    def test_plasma_is_diamond_square(self) -> None:
        decay = 1.7
        made = fields.plasma(rngs(2), decay)
        for field, rng in zip(made, rngs(2), strict=True):
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
        y = functions.fog(x, rngs(4), 1.5, 1.75)
        clouds = fields.plasma(rngs(4), 1.75)
        for image, cloud, found in zip(x, clouds, y, strict=True):
            peak = image.max()
            np.testing.assert_allclose(found, (image + 1.5 * cloud) * peak / (peak + 1.5))
            assert found.max() <= peak + 1e-12

    def test_frost_adds_ice_by_its_shares(self, colour: Tensor) -> None:
        x = colour[:4].numpy() / 255
        pane = fields.ice(rngs(4))
        assert pane.min() >= 0
        assert pane.max() <= 1
        y = functions.frost(x, rngs(4), 0.75, 0.45)
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
        y = functions._equalised(x)
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
        rows, columns = functions._affine(rngs(5), 32, 2.56)
        corners = np.array([[26, 26], [26, 6], [6, 6]])
        for rng, r, c in zip(rngs(5), rows, columns, strict=True):
            moved = corners + rng.uniform(-2.56, 2.56, (3, 2))
            # The map is affine: reading it between pixels is exact.
            for (x, y), (u, v) in zip(corners, moved, strict=True):
                read = [ndimage.map_coordinates(f, [[v], [u]], order=1)[0] for f in (c, r)]
                assert read == pytest.approx([x, y], abs=1e-9)
