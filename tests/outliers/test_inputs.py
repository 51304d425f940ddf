"""Scrambled inputs against numpy: patches, windows and halves looked for one by one, spectra."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gemfi import outliers
from gemfi.outliers import (
    IMAGES,
    Scramble,
    exchange,
    join,
    mix,
    scatter_phases,
    scramble,
    shuffle_patches,
    tile,
)

SIZES = [(12, 12), (13, 10), (9, 14), (4, 4), (5, 7)]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def distinct(count: int, channels: int, height: int, width: int) -> Tensor:
    """Images without two equal values, in no order, so that every pixel tells where it is from."""
    size = count * channels * height * width
    values = torch.randperm(size, generator=seeded(17)).float()
    return values.reshape(count, channels, height, width)


def ends(count: int, channels: int, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Images of zeros and images of ones."""
    zeros = torch.zeros(count, channels, height, width)
    return zeros, zeros + 1


# ---------------------------------------------------------------- patches


def cut(image: np.ndarray, side: int) -> tuple[list[bytes], list[bytes]]:
    """The patches of a (C, H, W) image, row by row, and what is left over."""
    h, w = image.shape[1] // side, image.shape[2] // side
    patches = [
        image[:, i * h : (i + 1) * h, j * w : (j + 1) * w].tobytes()
        for i in range(side)
        for j in range(side)
    ]
    return patches, [image[:, side * h :].tobytes(), image[:, :, side * w :].tobytes()]


class TestShufflePatches:
    @pytest.mark.parametrize(("height", "width"), SIZES)
    @pytest.mark.parametrize("channels", [1, 3])
    def test_is_a_permutation_of_patches(self, channels: int, height: int, width: int) -> None:
        """Channels stay together and what does not fill a patch stays in place."""
        x = distinct(60, channels, height, width)
        found = shuffle_patches(x, x.flip(0), seeded())
        sides = set()
        for before, after in zip(x.numpy(), found.numpy(), strict=True):
            fits = []
            for side in (2, 3, 4):
                (old, rest), (new, left) = cut(before, side), cut(after, side)
                if sorted(old) == sorted(new) and rest == left:
                    fits.append(side)
            assert fits
            sides.update(fits[:1])
        assert sides == {2, 3, 4}

    def test_a_patch_can_go_anywhere(self) -> None:
        x = distinct(400, 1, 8, 8)
        moves = set()
        for before, after in zip(x.numpy(), shuffle_patches(x, x, seeded()).numpy(), strict=True):
            old, new = cut(before, 2)[0], cut(after, 2)[0]
            if old != new and sorted(old) == sorted(new):
                moves.update((start, new.index(patch)) for start, patch in enumerate(old))
        assert len(moves) == 16

    def test_few_images_stay_as_they_are(self) -> None:
        x = distinct(600, 1, 8, 8)
        same = (shuffle_patches(x, x, seeded()) == x).flatten(1).all(dim=1)
        assert same.float().mean() < 0.04  # one order in 24 of a third of them


# ---------------------------------------------------------------- two images


class TestMix:
    def test_is_one_share_of_each(self) -> None:
        x = distinct(200, 3, 5, 6).double()
        other = -1 - x.flip(0)
        share = (mix(x, other, seeded()) - other) / (x - other)
        np.testing.assert_allclose(share.amin((1, 2, 3)), share.amax((1, 2, 3)), atol=1e-6)
        assert 0.35 - 1e-6 < share.min() < 0.37
        assert 0.63 < share.max() < 0.65 + 1e-6
        assert share.mean().item() == pytest.approx(0.5, abs=0.02)

    def test_bytes_are_rounded(self) -> None:
        x = torch.randint(256, (50, 1, 6, 6), generator=seeded(1), dtype=torch.uint8)
        other = x.flip(0)
        found, exact = mix(x, other, seeded()), mix(x.double(), other.double(), seeded())
        assert found.dtype == torch.uint8
        np.testing.assert_array_equal(found, np.rint(exact.numpy()))


class TestJoin:
    @pytest.mark.parametrize(("height", "width"), SIZES)
    def test_is_half_of_each(self, height: int, width: int) -> None:
        row, column = np.mgrid[:height, :width]
        upper, left = row < height // 2, column < width // 2
        halves = [half.tolist() for half in (upper, ~upper, left, ~left)]
        zeros, ones = ends(80, 2, height, width)
        found = join(zeros, ones, seeded())
        assert torch.equal(found[:, 0], found[:, 1])  # the same half of every channel
        chosen = [halves.index(image.bool().tolist()) for image in found[:, 0]]
        assert set(chosen) == {0, 1, 2, 3}

    def test_pixels_keep_their_place(self) -> None:
        x, other = distinct(20, 3, 7, 6), -distinct(20, 3, 7, 6)
        found = join(x, other, seeded())
        assert torch.equal(found.abs(), x)
        assert torch.equal((found < 0).flatten(1).any(dim=1), torch.ones(20, dtype=torch.bool))


# ---------------------------------------------------------------- windows and phases


def windows(image: np.ndarray, tiled: np.ndarray) -> list[tuple[int, int, int]]:
    """Every (size, top, left) whose window, repeated by numpy, is the tiled image."""
    _, height, width = image.shape
    found = []
    for size in range(1, min(height, width) + 1):
        for top in range(height - size + 1):
            for left in range(width - size + 1):
                window = image[:, top : top + size, left : left + size]
                repeated = np.tile(window, (1, height, width))[:, :height, :width]
                if np.array_equal(repeated, tiled):
                    found.append((size, top, left))
    return found


class TestTile:
    @pytest.mark.parametrize(
        ("height", "width", "sizes"),
        [(12, 12, {3, 4, 5, 6}), (8, 11, {2, 3, 4}), (9, 6, {2, 3}), (4, 4, {2}), (5, 7, {2})],
    )
    def test_repeats_a_window_of_the_image(self, height: int, width: int, sizes: set[int]) -> None:
        x = distinct(40, 2, height, width)
        found = tile(x, x.flip(0), seeded())
        drawn = []
        for before, after in zip(x.numpy(), found.numpy(), strict=True):
            matches = windows(before, after)
            assert len(matches) == 1
            drawn += matches
        assert {size for size, _, _ in drawn} == sizes

    def test_windows_are_anywhere(self) -> None:
        x = distinct(60, 1, 4, 6)
        found = tile(x, x, seeded()).numpy()
        corners = {windows(*pair)[0][1:] for pair in zip(x.numpy(), found, strict=True)}
        assert corners == {(top, left) for top in range(3) for left in range(5)}


def speckled(count: int, channels: int, height: int, width: int) -> Tensor:
    """Noise with one black and one white pixel: wide in range, small once phases are random."""
    x = torch.randn(count, channels, height, width, generator=seeded(3)).double()
    x[:, :, 1, 2], x[:, :, 2, 1] = 40.0, -36.0
    return x


class TestScatterPhases:
    @pytest.mark.parametrize(("height", "width"), [(16, 16), (15, 18), (18, 15), (17, 13)])
    @pytest.mark.parametrize("channels", [1, 3])
    def test_keeps_amplitudes_and_mean(self, channels: int, height: int, width: int) -> None:
        x = speckled(12, channels, height, width)
        found = scatter_phases(x, x.flip(0), seeded())
        assert found.abs().max() < 30  # nothing was clipped
        before, after = np.fft.fft2(x.numpy()), np.fft.fft2(found.numpy())
        np.testing.assert_allclose(np.abs(after), np.abs(before), rtol=1e-3, atol=1e-2)
        np.testing.assert_allclose(found.mean((2, 3)), x.mean((2, 3)), atol=1e-5)

    def test_phases_are_those_of_noise(self) -> None:
        """Turned by angles that are even on the circle, and alike for the channels of an image."""
        x = speckled(12, 3, 16, 16)
        after = np.fft.fft2(scatter_phases(x, x, seeded()).numpy())
        turn = after / np.fft.fft2(x.numpy())
        inside = turn[:, :, 1:, 1:8]  # neither the mean nor the mirrored half
        assert np.abs(inside.mean((2, 3))).max() < 0.35
        assert np.abs(inside.mean()) < 0.05
        angles = np.angle(inside / inside[:, :1])
        assert np.abs(angles).max() < 0.05
        apart = np.angle(inside[:1] / inside[1:])  # each image has its own
        assert np.abs(apart).mean() > 1.4

    @pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
    @pytest.mark.parametrize("channels", [1, 3])
    def test_stays_within_the_range_of_the_image(self, channels: int, dtype: torch.dtype) -> None:
        x = (100 + 100 * (distinct(40, channels, 11, 8) % 2)).to(dtype)
        x[::2] = x[::2] // 2  # a range of its own for every other image
        found = scatter_phases(x, x, seeded())
        assert found.dtype == dtype
        low, high = x.amin((1, 2, 3)), x.amax((1, 2, 3))
        assert torch.equal(found.amin((1, 2, 3)), low)  # these are clipped
        assert torch.equal(found.amax((1, 2, 3)), high)

    def test_a_flat_image_stays_flat(self) -> None:
        x = torch.full((3, 1, 8, 8), 0.25)
        torch.testing.assert_close(scatter_phases(x, x, seeded()), x)


# ---------------------------------------------------------------- vectors


class TestExchange:
    def test_takes_a_fifth_to_four_fifths(self) -> None:
        zeros = torch.zeros(500, 3000)
        share = exchange(zeros, zeros + 1, seeded()).mean(dim=1)
        assert 0.17 < share.min() < 0.22
        assert 0.78 < share.max() < 0.83
        assert share.mean().item() == pytest.approx(0.5, abs=0.02)

    @pytest.mark.parametrize("width", [2, 3, 5])
    def test_takes_at_least_one(self, width: int) -> None:
        zeros = torch.zeros(2000, width)
        taken = exchange(zeros, zeros + 1, seeded()).sum(dim=1)
        assert taken.min() == 1

    def test_every_coordinate_alike(self) -> None:
        zeros = torch.zeros(4000, 4)
        share = exchange(zeros, zeros + 1, seeded()).mean(dim=0)
        np.testing.assert_allclose(share, np.full(4, share.mean()), atol=0.03)

    @pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
    def test_a_single_coordinate_is_averaged(self, shape: tuple[int, ...]) -> None:
        x = torch.arange(10.0).reshape(10, *(1 for _ in shape))
        assert torch.equal(exchange(x, x + 4, seeded()), x + 2)

    @pytest.mark.parametrize("shape", [(7,), (3, 3, 3), (2, 5)])
    def test_coordinates_keep_their_place(self, shape: tuple[int, ...]) -> None:
        x = torch.randint(1, 1000, (30, *shape), generator=seeded(1))  # tokens
        found = exchange(x, -x, seeded())
        assert found.dtype == torch.int64
        assert torch.equal(found.abs(), x)
        assert (found.reshape(30, -1) < 0).any(dim=1).all()

    @pytest.mark.parametrize("width", [2, 3, 8])
    def test_never_takes_all(self, width: int) -> None:
        """Else the outlier is a training sample of the other class."""
        zeros = torch.zeros(2000, width)
        assert exchange(zeros, zeros + 1, seeded()).sum(dim=1).max() < width


# ---------------------------------------------------------------- scramble

LABELS = torch.tensor([0] * 9 + [1] * 2 + [2] * 5)


def batch(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """As many samples as labels, with values from 0 to 254."""
    return torch.randint(255, (len(LABELS), *shape), generator=seeded(8)).to(dtype)


KINDS = [
    ((12,), torch.float32),
    ((12,), torch.float64),
    ((20,), torch.int64),
    ((2, 16), torch.float32),
    ((1, 28, 28), torch.float32),
    ((1, 28, 28), torch.uint8),
    ((3, 13, 10), torch.float32),
    ((3, 13, 10), torch.uint8),
    ((3, 13, 10), torch.float16),
    ((1, 4, 4), torch.uint8),
    ((3, 3, 9), torch.float32),
    ((1, 1, 1), torch.uint8),
]


class TestScramble:
    @pytest.mark.parametrize(("shape", "dtype"), KINDS)
    @pytest.mark.parametrize("count", [1, 5, 40])
    def test_shape_type_and_range(self, shape: Any, dtype: torch.dtype, count: int) -> None:
        x = batch(*shape, dtype=dtype)
        found = scramble(x, LABELS, count, seeded())
        assert found.shape == (count, *shape)
        assert found.dtype == dtype
        assert found.min() >= 0
        assert found.max() <= 254

    @pytest.mark.parametrize(("shape", "dtype"), KINDS)
    def test_the_generator_decides(self, shape: Any, dtype: torch.dtype) -> None:
        x = batch(*shape, dtype=dtype)
        before, labels, state = x.clone(), LABELS.clone(), torch.get_rng_state()
        first, same, other = (scramble(x, LABELS, 30, seeded(seed)) for seed in (1, 1, 2))
        assert torch.equal(first, same)
        assert not torch.equal(first, other)
        assert torch.equal(torch.get_rng_state(), state)  # the global one is never touched
        assert torch.equal(x, before)
        assert torch.equal(labels, LABELS)
        first.zero_()  # nor is the result a view of the batch
        assert torch.equal(x, before)

    @pytest.mark.parametrize("shape", [(6,), (1, 8, 8)])
    def test_none_for_a_batch_of_one_class(self, shape: tuple[int, ...]) -> None:
        x = torch.rand(5, *shape)
        assert scramble(x, torch.full((5,), 3), 4, seeded()) is None
        assert scramble(x[:1], torch.tensor([0]), 1, seeded()) is None
        assert scramble(x, torch.tensor([3, 3, 3, 3, 1]), 4, seeded()) is not None

    @pytest.mark.parametrize("shape", [(400,), (1, 3, 200), (2, 2, 200)])
    def test_vectors_and_tiny_images_exchange_with_another_class(self, shape: Any) -> None:
        rows = torch.arange(len(LABELS)).reshape(-1, *([1] * len(shape)))
        found = scramble(rows.expand(-1, *shape), LABELS, 300, seeded())
        pairs = set()
        for outlier in found:
            parents = outlier.unique()
            assert len(parents) == 2
            assert LABELS[parents[0]] != LABELS[parents[1]]
            pairs.add(tuple(parents.tolist()))
        every = {(i, j) for i in range(16) for j in range(i) if LABELS[i] != LABELS[j]}
        assert {pair[::-1] for pair in pairs} <= every
        assert len(pairs) > 0.8 * len(every)

    def test_images_meet_another_class(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two ways that give back their first and their second image, told apart by their rows."""
        ways = (lambda x, _other, _generator: x, lambda _x, other, _generator: other)
        rows = torch.arange(len(LABELS)).float().reshape(-1, 1, 1, 1).expand(-1, 1, 4, 5)
        chosen = torch.randint(len(LABELS), (200,), generator=seeded())
        monkeypatch.setattr(outliers, "IMAGES", ways[:1])
        assert torch.equal(scramble(rows, LABELS, 200, seeded())[:, 0, 0, 0].long(), chosen)
        monkeypatch.setattr(outliers, "IMAGES", ways[1:])
        partner = scramble(rows, LABELS, 200, seeded())[:, 0, 0, 0].long()
        assert (LABELS[partner] != LABELS[chosen]).all()
        assert partner.unique().numel() == len(LABELS)
        monkeypatch.setattr(outliers, "IMAGES", ways)
        found = scramble(rows, LABELS, 200, seeded())[:, 0, 0, 0].long()
        assert ((found == chosen) | (LABELS[found] != LABELS[chosen])).all()
        assert 60 < (found == chosen).sum() < 140

    def test_every_way_has_the_same_chance(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert set(IMAGES) == {shuffle_patches, mix, join, tile, scatter_phases}

        def paint(number: int) -> Scramble:
            return lambda x, _other, _generator: torch.full_like(x, number)

        monkeypatch.setattr(outliers, "IMAGES", [paint(number) for number in range(len(IMAGES))])
        found = scramble(batch(1, 4, 4), LABELS, 2000, seeded())[:, 0, 0, 0].long()
        assert torch.bincount(found).tolist() == pytest.approx([400] * 5, abs=70)

    @pytest.mark.parametrize("make", IMAGES)
    @pytest.mark.parametrize("channels", [1, 3])
    @pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
    def test_each_way_alone(self, make: Scramble, channels: int, dtype: torch.dtype) -> None:
        x = batch(channels, 9, 7, dtype=dtype)
        before = x.clone()
        first, same, other = (make(x, x.flip(0), seeded(seed)) for seed in (1, 1, 2))
        assert first.shape == x.shape
        assert first.dtype == dtype
        assert torch.equal(first, same)
        assert not torch.equal(first, other)
        changed = (first != x).flatten(1).any(dim=1)
        assert changed.float().mean() > 0.8
        first.zero_()
        assert torch.equal(x, before)

    @pytest.mark.parametrize("shape", [(1, 8, 8), (6,)])
    def test_none_wanted(self, shape: tuple[int, ...]) -> None:
        """As for a batch so small that `scrambled`·B rounds to zero."""
        assert scramble(batch(*shape), LABELS, 0, seeded()) is None
