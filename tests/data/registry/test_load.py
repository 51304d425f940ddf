"""From a name to a split: every published layout, the carving, and the roles."""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gemfi.data import DATA_SETS, Role, Split, load_split
from gemfi.data.readers import Pictures
from gemfi.data.registry import data_set
from gemfi.errors import InputError, MissingDataError, RoleError

MODULE = importlib.import_module("gemfi.data.registry.load")  # its function has the same name


def check(split: Split, images: Any, labels: Any, role: str, name: str) -> None:
    assert split.x.dtype == torch.uint8
    np.testing.assert_array_equal(split.x.numpy(), images)
    assert split.labels.tolist() == list(labels)
    assert split.role == role
    assert split.name == name


class TestLayouts:
    @pytest.mark.parametrize("zipped", [True, False])
    @pytest.mark.parametrize(
        ("name", "folder"),
        [
            ("mnist", "mnist"),
            ("mnist", "MNIST/raw"),
            ("fashion-mnist", "fashion-mnist"),
            ("fashion-mnist", "FashionMNIST/raw"),
            ("kmnist", "kmnist"),
            ("kmnist", "KMNIST/raw"),
        ],
    )
    def test_pairs_of_idx(
        self, shelf: Any, shrink: Any, name: str, folder: str, zipped: bool
    ) -> None:
        shrink(name, {"train": 40, "test": 20}, held_out=10)
        images, labels = shelf.idx(folder, "t10k", 20, zipped=zipped)
        check(load_split(name, "test"), images, labels, "test", f"{name}/test")
        images, _ = shelf.idx(folder, "train", 40, zipped=zipped)
        train = load_split(name, "train")
        assert len(train) == 20
        rows = {image.tobytes() for image in images}
        assert {image.tobytes() for image in train.x.numpy()} < rows
        assert train.class_names == DATA_SETS[name].class_names

    def test_the_first_folder_is_read_where_there_are_two(self, shelf: Any, shrink: Any) -> None:
        shrink("mnist", {"test": 20})
        shelf.idx("MNIST/raw", "t10k", 20)
        shelf.idx("mnist", "t10k", 20, zipped=False)
        images, labels = shelf.idx("mnist", "t10k", 20)
        check(load_split("mnist", "test"), images, labels, "test", "mnist/test")

    def test_a_pair_needs_both(self, shelf: Any) -> None:
        shelf.idx("mnist", "t10k")
        (shelf.root / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
        with pytest.raises(MissingDataError, match=r"no .*t10k-labels-idx1-ubyte\.gz; run: gemfi"):
            load_split("mnist", "test")

    def test_notmnist(self, shelf: Any, shrink: Any) -> None:
        shrink("notmnist", {"sample": 20})
        images, labels = shelf.idx("notmnist", "t10k", 20)
        split = load_split("notmnist", "sample")
        check(split, images, labels, "ood-validation", "notmnist/sample")

    def test_cifar10(self, shelf: Any, shrink: Any) -> None:
        shrink("cifar10", {"train": 50, "test": 10}, held_out=10)
        some = ("data_batch_2", "data_batch_1", "data_batch_5", "data_batch_3")
        made = [(batch, self.cifar10(shelf, batch)) for batch in some]
        with pytest.raises(MissingDataError, match=r"no .*cifar-10-batches-bin/data_batch_"):
            load_split("cifar10", "train")  # one is missing yet
        made.append(("data_batch_4", self.cifar10(shelf, "data_batch_4")))
        images = np.concatenate([pixels for _, (pixels, _) in sorted(made, key=lambda m: m[0])])
        numbers = [number_of(images, image) for image in load_split("cifar10", "train").x.numpy()]
        assert len(numbers) == 30
        assert numbers == sorted(numbers)  # the order of the batches by number
        pixels, (labels,) = self.cifar10(shelf, "test_batch")
        check(load_split("cifar10", "test"), pixels, labels, "test", "cifar10/test")

    @staticmethod
    def cifar10(shelf: Any, batch: str) -> Any:
        return shelf.cifar_binary(f"cifar-10-batches-bin/{batch}.bin", 10, 10)

    def test_cifar100_has_the_fine_labels(self, shelf: Any, shrink: Any) -> None:
        shrink("cifar100", {"test": 30})
        images, (_, fine) = shelf.cifar_binary("cifar-100-binary/test.bin", 30, 20, 100)
        check(load_split("cifar100", "test"), images, fine, "test", "cifar100/test")
        assert load_split("cifar100", "test").num_classes == 100

    def test_svhn_says_how_much_of_it_there_is(self, shelf: Any, shrink: Any) -> None:
        images, labels = shelf.svhn("test_first5000_32x32.mat", 12)
        check(load_split("svhn", "test"), images, labels, "test", "svhn/test, first 5,000")
        images, labels = shelf.svhn("test_32x32.mat", 3)  # it goes before the other
        check(load_split("svhn", "test"), images, labels, "test", "svhn/test, 3 of 26,032")
        shrink("svhn", {"test": 3})
        assert load_split("svhn", "test", role="ood-test").name == "svhn/test"

    def test_a_carved_part_says_so_too(self, shelf: Any, shrink: Any) -> None:
        shrink("mnist", held_out=10)
        shelf.mnist()
        assert load_split("mnist", "train").name == "mnist/train, from 60 of 60,000"
        assert load_split("mnist", "validation").name == "mnist/validation, from 60 of 60,000"
        shrink("mnist", {"train": 60})
        assert load_split("mnist", "validation").name == "mnist/validation"

    def test_tiny_imagenet(self, shelf: Any, shrink: Any) -> None:
        shrink("tiny-imagenet", {"val": 3}, num_classes=2)
        shelf.write("tiny-imagenet-200/wnids.txt", b"n02\nn01\n")
        lines = [f"val_{i}.JPEG\tn0{1 + i % 2}\t0\t0\t63\t63\n" for i in range(3)]
        folder = "tiny-imagenet-200/val"
        shelf.write(f"{folder}/val_annotations.txt", "".join(lines).encode())
        for i in range(3):
            pixels = np.full((64, 64, 3), 80 * i, np.uint8)
            shelf.picture(f"{folder}/images/val_{i}.JPEG", pixels)
        split = load_split("tiny-imagenet", "val")
        assert split.x.shape == (3, 3, 32, 32)
        assert split.x[:, 0, 0, 0].tolist() == [0, 80, 160]
        assert split.labels.tolist() == [0, 1, 0]
        assert split.class_names == ("n01", "n02")
        assert (split.role, split.name) == (Role.OOD_TEST, "tiny-imagenet/val")

    def test_tiny_imagenet_has_a_set_to_tune_and_a_set_to_report(
        self, shelf: Any, shrink: Any
    ) -> None:
        """By the WordNet id of an image, in `val_annotations.txt`: a tabby is in neither."""
        shrink("tiny-imagenet-20", {"tuning": 1}, num_classes=1)
        shrink("tiny-imagenet-158", {"val": 1}, num_classes=1)
        tabby, slug, other = "n02123045", "n01945685", "n02124076"
        shelf.write("tiny-imagenet-200/wnids.txt", f"{tabby}\n{other}\n{slug}\n".encode())
        folder = "tiny-imagenet-200/val"
        lines = [
            f"val_{i}.JPEG\t{wnid}\t0\t0\t9\t9\n" for i, wnid in enumerate((tabby, other, slug))
        ]
        shelf.write(f"{folder}/val_annotations.txt", "".join(lines).encode())
        for i in range(3):
            shelf.picture(f"{folder}/images/val_{i}.JPEG", np.full((64, 64, 3), 80 * i, np.uint8))
        split = load_split("tiny-imagenet-158", "val")
        assert split.x[:, 0, 0, 0].tolist() == [80]
        assert split.class_names == (other,)
        assert (split.role, split.name) == (Role.OOD_TEST, "tiny-imagenet-158/val")
        split = load_split("tiny-imagenet-20", "tuning")
        assert split.x[:, 0, 0, 0].tolist() == [160]
        assert split.class_names == (slug,)
        assert (split.role, split.name) == (Role.OOD_VALIDATION, "tiny-imagenet-20/tuning")

    def test_dtd_is_cropped_and_has_no_labels(self, shelf: Any, shrink: Any) -> None:
        shrink("dtd", {"textures": 2})
        wide = np.zeros((64, 128, 3), np.uint8)
        wide[:, 32:96] = 200  # the square in the middle
        shelf.picture("dtd/images/banded/banded_1.png", wide)
        shelf.picture("dtd/images/dotted/dotted_1.jpg", np.full((96, 64, 3), 90, np.uint8))
        split = load_split("dtd", "textures")
        assert split.x.shape == (2, 3, 32, 32)
        assert (split.x[0] == 200).all()
        assert (split.x[1] == 90).all()
        assert split.y is None
        assert (split.role, split.name) == (Role.OOD_VALIDATION, "dtd/textures")

    def test_ten_classes_of_dtd(self, shelf: Any) -> None:
        images, _ = shelf.draw(4, (32, 32, 3))
        (shelf.root / "dtd32").mkdir()
        np.savez(shelf.root / "dtd32" / "dtd10_32.npz", images=images)
        split = load_split("dtd", "textures")
        np.testing.assert_array_equal(split.x.numpy(), images.transpose(0, 3, 1, 2))
        assert split.name == "dtd/textures, 10 of 47 classes"

    def test_images_of_another_shape(self, shelf: Any) -> None:
        images, _ = shelf.draw(4, (16, 16, 3))
        (shelf.root / "dtd32").mkdir()
        file = shelf.root / "dtd32" / "dtd10_32.npz"
        np.savez(file, images=images)
        with pytest.raises(InputError, match=r"DTD has images \(3, 32, 32\), found \(3, 16") as e:
            load_split("dtd", "textures")
        assert str(file) in str(e.value)


def number_of(images: Any, image: Any) -> int:
    return int(np.flatnonzero((images == image).all(axis=(1, 2, 3)))[0])


class TestCarving:
    @pytest.fixture
    def rows(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Load a carved part of MNIST whose pixels are the row numbers; gives these and labels."""
        labels = np.repeat(np.arange(10), range(1_500, 11_500, 1_000))  # 60,000
        labels = labels[np.arange(60_000) * 7_919 % 60_000]  # in no order
        images = np.arange(len(labels), dtype=">u4").view(np.uint8).reshape(-1, 4, 1, 1)
        entry = DATA_SETS["mnist"]
        found = entry.parts["train"].forms[0], Pictures(images, labels)
        monkeypatch.setattr(MODULE, "read_part", lambda *_: found)

        def chosen(name: str) -> Any:
            split = load_split("mnist", name)
            numbers = split.x.numpy().reshape(-1, 4).copy().view(">u4")[:, 0].astype(np.int64)
            np.testing.assert_array_equal(split.labels.numpy(), labels[numbers])
            return numbers

        return chosen, labels

    def test_disjoint_and_nothing_is_lost(self, rows: Any) -> None:
        chosen, _ = rows
        parts = [chosen(name) for name in ("train", "validation", "calibration")]
        assert [len(part) for part in parts] == [50_000, 5_000, 5_000]
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(60_000))
        assert all((np.diff(part) > 0).all() for part in parts)  # in the order of the files

    def test_each_class_in_proportion(self, rows: Any) -> None:
        chosen, labels = rows
        for name, size in (("train", 50_000), ("validation", 5_000), ("calibration", 5_000)):
            counts = np.bincount(labels[chosen(name)], minlength=10)
            assert np.abs(counts - size * np.bincount(labels) / 60_000).max() < 1.5

    def test_the_same_on_every_machine(self, rows: Any) -> None:
        """Pinned: another digest means that no number can be compared with earlier ones."""
        chosen, _ = rows
        digests = {
            name: hashlib.sha256(chosen(name).astype("<i8").tobytes()).hexdigest()[:16]
            for name in ("train", "validation", "calibration")
        }
        assert digests == {
            "train": "c763d3d9a1193ab6",
            "validation": "b594432f5f8d0237",
            "calibration": "8c74bb4e9dad5a81",
        }

    def test_global_generators_play_no_part(self, rows: Any) -> None:
        chosen, _ = rows
        first = chosen("validation")
        torch.manual_seed(77)
        np.random.seed(77)  # noqa: NPY002 - the global one is meant
        before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
        np.testing.assert_array_equal(chosen("validation"), first)
        assert torch.equal(torch.get_rng_state(), before[0])
        assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002

    def test_training_images_without_labels(self, monkeypatch: pytest.MonkeyPatch) -> None:
        form = DATA_SETS["mnist"].parts["train"].forms[0]
        pictures = Pictures(np.zeros((9, 1, 28, 28), np.uint8))
        monkeypatch.setattr(MODULE, "read_part", lambda *_: (form, pictures))
        with pytest.raises(InputError, match="MNIST: its training images have no labels"):
            load_split("mnist", "train")

    def test_too_few_images_to_carve(self, shelf: Any) -> None:
        shelf.mnist()
        with pytest.raises(InputError, match="cannot draw 5000 of 60 samples"):
            load_split("mnist", "train")


class TestRoles:
    @pytest.fixture
    def anything(self, monkeypatch: pytest.MonkeyPatch, shrink: Any) -> None:
        """Every part of every set is there, with six images of each class."""

        def read(entry: Any, part: str, root: Path) -> Any:
            form = entry.parts[part].forms[0]
            labels = np.arange(6 * entry.num_classes) % entry.num_classes
            images = np.zeros((len(labels), *entry.shape), np.uint8)
            return form, Pictures(images, None if entry.name == "dtd" else labels)

        for name, entry in DATA_SETS.items():
            if entry.held_out:
                shrink(name, held_out=entry.num_classes)
        monkeypatch.setattr(MODULE, "read_part", read)

    @pytest.mark.parametrize("name", DATA_SETS)
    def test_every_part_gives_the_role_asked_for_or_refuses(self, anything: Any, name: str) -> None:
        entry, given = DATA_SETS[name], 0
        for part, record in entry.parts.items():
            assert load_split(name, part).role == record.roles[0]
            for role in Role:
                if role in record.roles:
                    assert load_split(name, part, role=role).role is role
                    given += 1
                    continue
                with pytest.raises(RoleError) as caught:
                    load_split(name, part, role=role)
                allowed = " or ".join(record.roles)
                start = f"{name}/{part} may be used as {allowed}, not as {role}: "
                assert str(caught.value).startswith(start)
                assert len(str(caught.value)) > len(start) + 20  # a reason
        assert given == sum(len(record.roles) for record in entry.parts.values())

    @pytest.mark.parametrize("name", [n for n, entry in DATA_SETS.items() if entry.held_out])
    @pytest.mark.parametrize("part", ["validation", "calibration"])
    def test_carved_parts_have_one_role(self, anything: Any, name: str, part: str) -> None:
        assert load_split(name, part).role == part
        for role in Role:
            if role == part:
                assert load_split(name, part, role=role).role == part
                continue
            message = f"{name}/{part} is carved out of train to be {part} data, not {role}"
            with pytest.raises(RoleError, match=message):
                load_split(name, part, role=role)

    @pytest.mark.parametrize("role", ["train", "validation", "calibration", "auxiliary"])
    def test_a_test_split_is_refused_before_a_file_is_opened(
        self, tmp_path: Path, role: str
    ) -> None:
        for name in ("mnist", "cifar10", "svhn"):
            with pytest.raises(RoleError, match="looked at to report, and never learnt from; vali"):
                load_split(name, "test", role=role, root=tmp_path / "nothing")
        with pytest.raises(RoleError, match="looked at to report"):
            load_split("mnist-c", "fog", role=role, root=tmp_path / "nothing")

    def test_the_reasons_differ(self, tmp_path: Path) -> None:
        with pytest.raises(RoleError, match="what options are tuned on, so it can judge nothing"):
            load_split("dtd", "textures", role="ood-test", root=tmp_path)
        with pytest.raises(RoleError, match="its images are what models learn from"):
            load_split("mnist", "train", role="test", root=tmp_path)

    def test_names_that_are_not_known(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"unknown role 'fun'; expected one of train, "):
            load_split("mnist", "test", role="fun", root=tmp_path)
        with pytest.raises(InputError, match=r"unknown data set 'mnits'; known: mnist, fashion-"):
            data_set("mnits")
        message = r"mnist has no split 'val'; it has: train, test, validation, calibration"
        with pytest.raises(InputError, match=message):
            load_split("mnist", "val", root=tmp_path)
        with pytest.raises(InputError, match=r"dtd has no split 'validation'; it has: textures$"):
            load_split("dtd", "validation", root=tmp_path)


class TestMissing:
    def test_names_the_file_the_folder_and_the_command(self, tmp_path: Path) -> None:
        with pytest.raises(MissingDataError) as caught:
            load_split("cifar100", "train", root=tmp_path)
        text = str(caught.value)
        assert text == (
            f"CIFAR-100 (train) is not here: no {tmp_path}/cifar-100-binary/train.bin; run: gemfi "
            "data fetch cifar100, or set GEMFI_DATA to the folder that holds it"
        )

    def test_the_folder_is_an_argument_or_the_variable(self, shelf: Any, tmp_path: Path) -> None:
        shelf.idx("mnist", "t10k", 20)
        assert len(load_split("mnist", "test")) == 20
        assert len(load_split("mnist", "test", root=str(shelf.root))) == 20
        with pytest.raises(MissingDataError):
            load_split("mnist", "test", root=tmp_path)
