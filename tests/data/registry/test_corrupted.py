"""MNIST-C and CIFAR-10-C: published where they are here, else written, else made; and named so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gemfi.data import DATA_SETS, Role, load_split
from gemfi.data.corruptions import corrupt, write_published_layout
from gemfi.data.registry.cache import FOLDER
from gemfi.data.registry.sets import MADE_VERSION
from gemfi.errors import InputError, MissingDataError


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
    """Three places in turn, told apart by their pixels and their names."""

    def test_mnist_c(self, shelf: Any, shrink: Any) -> None:
        shrink("mnist-c", {"fog": 20})
        with pytest.raises(
            MissingDataError, match=r"no .*mnist_c/fog/test_images\.npy; run: gemfi"
        ):
            load_split("mnist-c", "fog")
        images, labels = shelf.idx("mnist", "t10k", 20)
        made = load_split("mnist-c", "fog")
        expected = corrupt(torch.from_numpy(images), "fog", seed=0, family="mnist")
        assert torch.equal(made.x, expected)
        assert made.labels.tolist() == labels.tolist()
        assert (made.name, made.role) == ("mnist-c/fog, generated", Role.TEST)

        for folder, value in (("generated/mnist_c", 1), ("mnist_c", 2)):
            shelf.array(f"{folder}/fog/test_images.npy", np.full((20, 28, 28, 1), value, np.uint8))
            shelf.array(f"{folder}/fog/test_labels.npy", labels)
            found = load_split("mnist-c", "fog")
            assert (found.x == value).all()
        assert found.name == "mnist-c/fog"
        assert load_split("mnist-c", "shear").name == "mnist-c/shear, generated, 20 of 10,000"

    def test_cifar10_c(self, shelf: Any, shrink: Any) -> None:
        shrink("cifar10-c", {"fog-2": 6, "fog-4": 6})
        images, (labels,) = shelf.cifar_binary("cifar-10-batches-bin/test_batch.bin", 6, 10)
        made = load_split("cifar10-c", "fog-2")
        clean = torch.from_numpy(images)
        assert torch.equal(made.x, corrupt(clean, "fog", 2, seed=0, family="cifar10"))
        assert made.labels.tolist() == labels.tolist()
        assert made.name == "cifar10-c/fog-2, generated"
        assert not torch.equal(load_split("cifar10-c", "fog-4").x, made.x)
        values = np.repeat(np.arange(1, 6, dtype=np.uint8), 6)[:, None, None, None]
        shelf.array("CIFAR-10-C/fog.npy", values + np.zeros((30, 32, 32, 3), np.uint8))
        shelf.array("CIFAR-10-C/labels.npy", np.tile(labels.astype(np.uint8), 5))
        found = load_split("cifar10-c", "fog-4")
        assert (found.x == 4).all()
        assert found.name == "cifar10-c/fog-4"


class TestMade:
    def test_what_is_made_equals_what_is_written(self, shelf: Any, shrink: Any) -> None:
        """In memory, and through `gemfi data corrupt`'s files: the same pixels and labels."""
        shrink("mnist", {"test": 7})
        shelf.idx("mnist", "t10k", 7)
        shelf.cifar_binary("cifar-10-batches-bin/test_batch.bin", 4, 10)
        parts = [("mnist-c", "spatter"), ("mnist-c", "zigzag")]
        parts += [("cifar10-c", f"snow-{severity}") for severity in (1, 3, 5)]
        made = {part: load_split(*part) for part in parts}
        for clean, folder, names in (
            ("mnist", "mnist_c", ["spatter", "zigzag"]),
            ("cifar10", "CIFAR-10-C", ["snow"]),
        ):
            test = load_split(clean, "test")
            out = shelf.root / "generated" / folder
            write_published_layout(test.x, test.labels, out, family=clean, names=names, seed=0)
        for file in (shelf.root / FOLDER).iterdir():
            file.unlink()  # so that it cannot come from there
        (shelf.root / "mnist" / "t10k-images-idx3-ubyte.gz").write_bytes(b"gone")
        (shelf.root / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(b"gone")
        for part, split in made.items():
            written = load_split(*part)
            assert torch.equal(written.x, split.x)
            assert torch.equal(written.labels, split.labels)
            assert written.name == split.name
            assert "generated" in written.name

    def test_what_is_made_is_kept(self, shelf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = []

        def counted(images: Any, name: str, *arguments: Any, **options: Any) -> Any:
            calls.append(name)
            return corrupt(images, name, *arguments, **options)

        monkeypatch.setattr("gemfi.data.corruptions.corrupt", counted)
        shelf.idx("mnist", "t10k", 5)
        first, second = load_split("mnist-c", "shear"), load_split("mnist-c", "shear")
        load_split("mnist-c", "scale")
        assert calls == ["shear", "scale"]
        assert torch.equal(first.x, second.x)
        shelf.idx("mnist", "t10k", 6)  # other test images: made anew
        assert len(load_split("mnist-c", "shear")) == 6
        assert calls == ["shear", "scale", "shear"]

    @pytest.mark.parametrize("name", ["mnist-c", "cifar10-c"])
    def test_what_is_kept_has_the_version_of_the_corruptions(self, name: str) -> None:
        for part in DATA_SETS[name].parts.values():
            kept = [form for form in part.forms if form.slow]
            assert kept
            assert {form.version for form in kept} == {MADE_VERSION}

    def test_it_is_made_from_whichever_form_the_test_images_have(self, shelf: Any) -> None:
        images, _ = shelf.idx("MNIST/raw", "t10k", 3, zipped=False)
        made = load_split("mnist-c", "shear")
        expected = corrupt(torch.from_numpy(images), "shear", seed=0, family="mnist")
        assert torch.equal(made.x, expected)

    def test_a_part_of_the_test_images_is_named(self, shelf: Any) -> None:
        shelf.idx("mnist", "t10k", 3)
        assert load_split("mnist-c", "shear").name == "mnist-c/shear, generated, 3 of 10,000"
