"""MNIST-C and CIFAR-10-C: published where they are here, else written by us, and named so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gemfi.data import Role, load_split
from gemfi.errors import InputError, MissingDataError
from gemfi_bench.corruptions import corrupt, write_published_layout


class TestPublishedCorruptions:
    def test_mnist_c(self, shelf: Any, shrink: Any) -> None:
        shrink("mnist-c", {"fog": 5})
        images, labels = shelf.draw(5, (28, 28, 1))
        shelf.array("mnist_c/fog/test_images.npy", images)
        shelf.array("mnist_c/fog/test_labels.npy", labels)
        split = load_split("mnist-c", "fog")
        np.testing.assert_array_equal(split.x.numpy(), images.transpose(0, 3, 1, 2))
        assert split.labels.tolist() == labels.tolist()
        assert (split.role, split.name) == (Role.TEST, "mnist-c/fog")

    @pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
    def test_cifar10_c_picks_the_severity(self, shelf: Any, shrink: Any, severity: int) -> None:
        name = f"fog-{severity}"
        shrink("cifar10-c", {name: 3})
        images = np.zeros((15, 32, 32, 3), np.uint8)
        images += np.repeat(np.arange(1, 6, dtype=np.uint8) * 10, 3)[:, None, None, None]
        images[1::3] += 1
        images[2::3] += 2
        shelf.array("CIFAR-10-C/fog.npy", images)
        shelf.array("CIFAR-10-C/labels.npy", np.tile(np.array([7, 8, 9], np.uint8), 5))
        split = load_split("cifar10-c", name)
        tens = 10 * severity
        assert split.x[:, 2, 31, 0].tolist() == [tens, tens + 1, tens + 2]
        assert split.labels.tolist() == [7, 8, 9]
        assert (split.role, split.name) == (Role.TEST, f"cifar10-c/{name}")

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            (np.zeros(4, np.uint8), r"labels\.npy: expected 5 integers, .*fog\.npy, got \(4,\)"),
            (np.zeros((5, 1), np.uint8), r"expected 5 integers, one .*got \(5, 1\) uint8"),
            (np.zeros(5), r"expected 5 integers.*float64"),
            (np.full(5, 10), r"labels must be in 0\.\.9, found 10\.\.10"),
        ],
    )
    def test_labels_that_do_not_fit(self, shelf: Any, labels: Any, message: str) -> None:
        shelf.array("CIFAR-10-C/fog.npy", np.zeros((5, 32, 32, 3), np.uint8))
        shelf.array("CIFAR-10-C/labels.npy", labels)
        with pytest.raises(InputError, match=message):
            load_split("cifar10-c", "fog-1")

    def test_an_array_that_is_not_five_severities(self, shelf: Any) -> None:
        shelf.array("CIFAR-10-C/fog.npy", np.zeros((6, 32, 32, 3), np.uint8))
        shelf.array("CIFAR-10-C/labels.npy", np.zeros(6, np.uint8))
        with pytest.raises(InputError, match=r"fog\.npy: 6 images are not five severities"):
            load_split("cifar10-c", "fog-1")


class TestWhichIsRead:
    """Two places in turn, told apart by their pixels and their names."""

    def test_mnist_c(self, shelf: Any, shrink: Any) -> None:
        shrink("mnist-c", {"fog": 20})
        _, labels = shelf.idx("mnist", "t10k", 20)
        with pytest.raises(
            MissingDataError,
            match=r"no .*mnist_c/fog/test_images\.npy; run: gemfi data fetch mnist-c, or, for "
            "corruptions of our own, gemfi data corrupt mnist; or set GEMFI_DATA",
        ):
            load_split("mnist-c", "fog")
        for folder, value, name in (
            ("generated/mnist_c", 1, "mnist-c/fog, generated"),
            ("mnist_c", 2, "mnist-c/fog"),
        ):
            shelf.array(f"{folder}/fog/test_images.npy", np.full((20, 28, 28, 1), value, np.uint8))
            shelf.array(f"{folder}/fog/test_labels.npy", labels)
            split = load_split("mnist-c", "fog")
            assert (split.x == value).all()
            assert (split.name, split.role) == (name, Role.TEST)

    def test_a_part_of_the_test_images_is_named(self, shelf: Any) -> None:
        shelf.array("generated/mnist_c/fog/test_images.npy", np.zeros((3, 28, 28, 1), np.uint8))
        shelf.array("generated/mnist_c/fog/test_labels.npy", np.zeros(3, np.int64))
        assert load_split("mnist-c", "fog").name == "mnist-c/fog, generated, 3 of 10,000"


@pytest.mark.parametrize(
    ("clean", "folder", "names", "parts"),
    [
        ("mnist", "mnist_c", ["spatter", "zigzag"], {"spatter": None, "zigzag": None}),
        ("cifar10", "CIFAR-10-C", ["snow"], {f"snow-{level}": level for level in (1, 3, 5)}),
    ],
)
def test_what_is_written_is_read(
    shelf: Any, clean: str, folder: str, names: list[str], parts: dict[str, int | None]
) -> None:
    """Through `gemfi data corrupt`'s files: the pixels of `corrupt`, and the labels."""
    shelf.idx("mnist", "t10k", 7)
    shelf.cifar_binary("cifar-10-batches-bin/test_batch.bin", 4, 10)
    test = load_split(clean, "test")
    out = shelf.root / "generated" / folder
    write_published_layout(test.x, test.labels, out, family=clean, names=names, seed=0)
    for part, severity in parts.items():
        written = load_split(f"{clean}-c", part)
        name = part.partition("-")[0]
        assert torch.equal(written.x, corrupt(test.x, name, severity, seed=0, family=clean))
        assert torch.equal(written.labels, test.labels)
        assert "generated" in written.name
