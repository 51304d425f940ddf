"""MNIST-C's own corruptions against formulas and slow loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor

from gemfi_bench.corruptions import (
    corrupt,
    functions,
)
from gemfi_bench.corruptions.fields import canny


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
        line = functions._stroke(28, *ends)[0]
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
        y = functions.zigzag(x, [Fixed()], 2.0, 2.0)[0, 0]  # type: ignore[list-item]
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
