"""What all corruptions share, severity, errors, and real images."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from gemfi.errors import InputError
from gemfi_bench.corruptions import (
    CORRUPTIONS_CIFAR,
    CORRUPTIONS_MNIST,
    FAMILIES,
    SEVERITIES,
    corrupt,
    functions,
)
from support.corruptions import (
    ALL,
    NOT_BY_DISTANCE,
    by_severity,
    distance,
    pick,
    rises,
    rngs,
    unlikeness,
)


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
                assert len({len(c) for c in record.constants}) == 1
        assert all(len(record.constants) == 5 for record in CORRUPTIONS_CIFAR.values())
        assert "procedural" in str(CORRUPTIONS_CIFAR["frost"].approximation)

    def test_the_page_has_each_type_with_its_constants(self) -> None:
        page = (Path(__file__).parents[3] / "docs" / "corruptions.md").read_text(encoding="utf-8")
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
        monkeypatch.setattr("gemfi_bench.corruptions.apply.CHUNK", 5)
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
            y = functions.elastic_transform(x, rngs(64), *constants)[:, 0, inner, inner]
            flat = y.reshape(64, -1).T
            rest = flat - basis @ np.linalg.lstsq(basis, flat, rcond=None)[0]
            bent.append(float(np.abs(rest).mean()))
        assert rises(bent)
        assert bent[0] < 1e-12


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
        with pytest.raises(InputError, match=r"one of gaussian_noise, .*got 'rain'"):
            corrupt(self.IMAGES, "rain", 1)
        with pytest.raises(InputError, match=r"corruption of mnist must be one of .* got 'frost'"):
            corrupt(self.IMAGES, "frost", family="mnist")
        with pytest.raises(InputError, match="family must be one of cifar10, mnist, got 'svhn'"):
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
