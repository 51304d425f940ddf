"""Is what is here what was published? Every answer, from files made for it."""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemfi.data import DATA_SETS, DataSet
from gemfi.data.registry.entries import RemoteFile
from gemfi.data.registry.load import read_part
from gemfi_bench.data_sets.archives import unpack
from gemfi_bench.data_sets.verify import Check, State, check_file, is_fetched, verify

IMAGES, LABELS = "mnist/t10k-images-idx3-ubyte.gz", "mnist/t10k-labels-idx1-ubyte.gz"


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def published(shelf: Any, shrink: Any) -> DataSet:
    """MNIST's test part alone, as if the small files at hand were the published ones."""
    shelf.idx("mnist", "t10k", 20)
    shrink("mnist", {"test": 20})
    entry = DATA_SETS["mnist"]
    data = {name: (shelf.root / name).read_bytes() for name in (IMAGES, LABELS)}
    contents = {name: sha256(gzip.decompress(each)) for name, each in data.items()}
    form = replace(entry.parts["test"].forms[0], contents=contents)
    files = tuple(
        RemoteFile(name, f"http://a/{name}", sha256(each), len(each)) for name, each in data.items()
    )
    part = replace(entry.parts["test"], count=20, forms=(form,))
    return replace(entry, files=files, parts={"test": part})


@pytest.fixture
def entry(shelf: Any, shrink: Any) -> DataSet:
    return published(shelf, shrink)


def states(checks: list[Check]) -> dict[str, str]:
    return {check.what: check.state.value for check in checks}


def only(entry: DataSet, root: Path, file: str = IMAGES) -> Check:
    return check_file(entry, entry.parts["test"].forms[0], file, root)


def test_as_published(shelf: Any, entry: DataSet) -> None:
    found = verify(entry, shelf.root)
    assert states(found) == {IMAGES: "ok", LABELS: "ok", "mnist/test": "ok"}
    assert [check.detail for check in found] == ["sha256 as published"] * 2 + ["20 images"]
    assert all(is_fetched(entry, remote, shelf.root) for remote in entry.files)


def test_compressed_anew(shelf: Any, entry: DataSet) -> None:
    path = shelf.root / IMAGES
    data = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(data, compresslevel=1, mtime=7))
    check = only(entry, shelf.root)
    assert check.state is State.OK
    assert check.detail == "sha256 of its contents as published; compressed anew"
    assert is_fetched(entry, entry.files[0], shelf.root)


def test_unpacked_by_a_browser_that_kept_the_name(shelf: Any, entry: DataSet) -> None:
    path = shelf.root / IMAGES
    path.write_bytes(gzip.decompress(path.read_bytes()))
    assert only(entry, shelf.root).state is State.OK
    assert states(verify(entry, shelf.root))["mnist/test"] == "ok"


def test_other_contents(shelf: Any, entry: DataSet) -> None:
    shelf.idx("mnist", "t10k", 20)  # other images, the same labels
    check = only(entry, shelf.root)
    assert check.state is State.DIFFERS
    digits = hashlib.sha256(gzip.decompress((shelf.root / IMAGES).read_bytes())).hexdigest()
    expected = entry.parts["test"].forms[0].contents[IMAGES].removeprefix("sha256:")
    assert check.detail == f"sha256 {digits}, published {expected}"
    assert only(entry, shelf.root, LABELS).state is State.OK
    assert [is_fetched(entry, remote, shelf.root) for remote in entry.files] == [False, True]


def test_contents_that_no_one_published_a_checksum_of(shelf: Any, entry: DataSet) -> None:
    form = replace(entry.parts["test"].forms[0], contents={})
    path = shelf.root / IMAGES
    assert check_file(entry, form, IMAGES, shelf.root).state is State.OK
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), mtime=7))
    check = check_file(entry, form, IMAGES, shelf.root)
    assert check.state is State.DIFFERS
    assert "no published checksum of its contents was found" in check.detail


def test_nothing_to_compare_with(shelf: Any, entry: DataSet) -> None:
    form = replace(entry.parts["test"].forms[0], contents={})
    bare = replace(entry, files=())
    check = check_file(bare, form, IMAGES, shelf.root)
    assert (check.state, check.detail) == (State.UNKNOWN, "no published checksum")


@pytest.mark.parametrize("keep", [0.5, 0.99])
def test_truncated(shelf: Any, entry: DataSet, keep: float) -> None:
    path = shelf.root / IMAGES
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data))])
    found = verify(entry, shelf.root)
    assert states(found) == {IMAGES: "BROKEN", LABELS: "ok", "mnist/test": "BROKEN"}
    assert found[0].detail.startswith("cannot be unpacked: ")
    assert str(path) in found[-1].detail
    assert not is_fetched(entry, entry.files[0], shelf.root)


def test_a_flipped_byte(shelf: Any, entry: DataSet) -> None:
    path = shelf.root / IMAGES
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    assert only(entry, shelf.root).state in {State.BROKEN, State.DIFFERS}


def test_missing(shelf: Any, entry: DataSet) -> None:
    (shelf.root / IMAGES).unlink()
    (check,) = verify(entry, shelf.root)
    assert (check.what, check.state, check.detail) == ("mnist/test", State.MISSING, "not here")
    assert not is_fetched(entry, entry.files[0], shelf.root)


def test_a_part_of_the_published_images(shelf: Any, shrink: Any) -> None:
    shelf.svhn("test_first5000_32x32.mat", 12)
    found = verify(DATA_SETS["svhn"], shelf.root)
    assert states(found) == {
        "svhn/test_first5000_32x32.mat": "unknown",
        "svhn/train": "missing",
        "svhn/test, first 5,000": "unknown",
    }
    assert found[-1].detail == "12 images, a part of the 26,032 published"


def test_a_folder_of_images(shelf: Any) -> None:
    shelf.picture("dtd/images/banded/a.png", np.zeros((40, 40, 3), np.uint8))
    shelf.picture("dtd/images/banded/b.png", np.zeros((40, 40, 3), np.uint8))
    first, second = verify(DATA_SETS["dtd"], shelf.root)
    assert (first.what, first.state, first.detail) == (
        "dtd/images",
        State.UNKNOWN,
        "a folder of 2 files",
    )
    assert second.detail == "2 images, a part of the 5,640 published"


def test_our_own_corruptions_are_passed_over(shelf: Any) -> None:
    for name in DATA_SETS["mnist-c"].parts:
        folder = f"generated/mnist_c/{name}"
        shelf.array(f"{folder}/test_images.npy", np.zeros((3, 28, 28, 1), np.uint8))
        shelf.array(f"{folder}/test_labels.npy", np.zeros(3, np.int64))
    assert verify(DATA_SETS["mnist-c"], shelf.root) == []
    shelf.array("mnist_c/fog/test_images.npy", np.zeros((3, 28, 28, 1), np.uint8))
    shelf.array("mnist_c/fog/test_labels.npy", np.zeros(3, np.int64))
    assert states(verify(DATA_SETS["mnist-c"], shelf.root)) == {
        "mnist_c/fog/test_images.npy": "unknown",
        "mnist_c/fog/test_labels.npy": "unknown",
        "mnist-c/fog": "unknown",
    }


def test_the_checksums_of_cifar10_c(shelf: Any) -> None:
    shelf.array("CIFAR-10-C/fog.npy", np.zeros((5, 32, 32, 3), np.uint8))
    shelf.array("CIFAR-10-C/labels.npy", np.zeros(5, np.uint8))
    found = {check.what: check for check in verify(DATA_SETS["cifar10-c"], shelf.root)}
    fog, labels = found["CIFAR-10-C/fog.npy"], found["CIFAR-10-C/labels.npy"]
    assert (fog.state, labels.state) == (State.DIFFERS, State.DIFFERS)
    assert fog.detail.endswith(", published 7b397314b5670f825465fbcd1f6e9ccd")
    assert labels.detail.endswith(", published c439b113295ed5254878798ffe28fd54")


def test_the_cache_is_not_asked(shelf: Any, entry: DataSet) -> None:
    """Files that cannot be read are found, also when their pictures are in the cache."""
    read_part(entry, "test", shelf.root)
    path = shelf.root / IMAGES
    before = path.stat()
    path.write_bytes(b"x" * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    read_part(entry, "test", shelf.root)  # by its size and its time, it is the same file
    assert states(verify(entry, shelf.root))["mnist/test"] == "BROKEN"


class TestIncomplete:
    """A folder that an archive unpacks to, but not all that is read from it."""

    def test_a_file_that_is_read_is_missing(self, shelf: Any) -> None:
        entry = DATA_SETS["cifar10"]
        (remote,) = entry.files
        shelf.write("cifar-10-batches-bin/test_batch.bin", b"")
        assert not is_fetched(entry, remote, shelf.root)
        for number in range(1, 6):
            shelf.write(f"cifar-10-batches-bin/data_batch_{number}.bin", b"")
        assert is_fetched(entry, remote, shelf.root)

    def test_what_is_needed(self) -> None:
        """Published files below the members; not what our own corruptions are made from."""
        entry = DATA_SETS["cifar10-c"]
        needs = entry.needs(entry.files[0])
        assert len(needs) == 20
        assert all(file.startswith("CIFAR-10-C/") for file in needs)
        entry = DATA_SETS["cifar100"]
        assert entry.needs(entry.files[0]) == (
            "cifar-100-binary/train.bin",
            "cifar-100-binary/test.bin",
        )


class TestUnpacked:
    @pytest.fixture
    def entry(self, shelf: Any) -> DataSet:
        """CIFAR-100's test part, out of an archive that `fetch` would have unpacked."""
        shelf.cifar_binary("cifar-100-binary/test.bin", 5, 20, 100)
        file = shelf.root / "cifar-100-binary" / "test.bin"
        archive = shelf.root / "cifar-100-binary.tar.gz"
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(file.parent, "cifar-100-binary")
        file.unlink()
        file.parent.rmdir()
        unpack(archive, shelf.root, ("cifar-100-binary",))
        archive.unlink()
        whole = DATA_SETS["cifar100"]
        form = replace(whole.parts["test"].forms[0], contents={})
        return replace(whole, parts={"test": replace(whole.parts["test"], count=5, forms=(form,))})

    def test_as_unpacked(self, shelf: Any, entry: DataSet) -> None:
        found = verify(entry, shelf.root)
        assert states(found) == {
            "cifar-100-binary/test.bin": "unknown",
            "cifar-100-binary.tar.gz": "ok",
            "cifar100/test": "ok",
        }
        assert found[1].detail == "1 files as unpacked"
        assert is_fetched(entry, entry.files[0], shelf.root)

    def test_changed_since(self, shelf: Any, entry: DataSet) -> None:
        file = shelf.root / "cifar-100-binary" / "test.bin"
        before = file.stat()
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(bytes(data))
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        found = verify(entry, shelf.root)
        assert states(found)["cifar-100-binary.tar.gz"] == "DIFFERS"
        assert found[1].detail.startswith("cifar-100-binary/test.bin has the sha256 ")

    def test_deleted_since(self, shelf: Any, entry: DataSet) -> None:
        (shelf.root / "cifar-100-binary" / "test.bin").unlink()
        (shelf.root / "cifar-100-binary").rmdir()
        assert states(verify(entry, shelf.root)) == {
            "cifar-100-binary.tar.gz": "DIFFERS",
            "cifar100/test": "missing",
        }
        assert not is_fetched(entry, entry.files[0], shelf.root)
