"""Corrupted sets in the published layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from gemfi.errors import InputError
from gemfi_bench.corruptions import (
    CORRUPTIONS_CIFAR,
    CORRUPTIONS_MNIST,
    SEVERITIES,
    Corruption,
    corrupt,
    write_published_layout,
)


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
        monkeypatch.setattr("gemfi_bench.corruptions.apply._PART", 3)
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
        with pytest.raises(InputError, match=r"corruption of cifar10 must be one of .* got 'rain'"):
            write_published_layout(colour[:2], y, tmp_path, names=["contrast", "rain"])
        with pytest.raises(InputError, match="family must be one of cifar10, mnist"):
            write_published_layout(colour[:2], y, tmp_path, family="svhn")
        assert not list(tmp_path.iterdir())
