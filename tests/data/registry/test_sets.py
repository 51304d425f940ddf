"""The entries of the registry: complete, consistent, and with roles that keep numbers honest."""

from __future__ import annotations

import dataclasses
from urllib.parse import urlsplit

import pytest

from gemfi.data import DATA_SETS, DataSet, Role
from gemfi.data.registry import OOD_SETS, RemoteFile
from gemfi.data.registry.entries import split_checksum
from gemfi.data.registry.sets import CIFAR10_CLASSES
from gemfi.errors import InputError
from gemfi_bench.corruptions import CORRUPTIONS_CIFAR, CORRUPTIONS_MNIST, SEVERITIES

ENTRIES = [pytest.param(entry, id=name) for name, entry in DATA_SETS.items()]

COUNTS = {
    "mnist": {"train": 60_000, "test": 10_000},
    "fashion-mnist": {"train": 60_000, "test": 10_000},
    "kmnist": {"train": 60_000, "test": 10_000},
    "notmnist": {"sample": 10_000},
    "cifar10": {"train": 50_000, "test": 10_000},
    "cifar100": {"train": 50_000, "test": 10_000},
    "svhn": {"train": 73_257, "test": 26_032},
    "tiny-imagenet": {"val": 10_000},
    "tiny-imagenet-20": {"tuning": 1_000},
    "tiny-imagenet-158": {"val": 7_900},
    "dtd": {"textures": 5_640},
}


@pytest.mark.parametrize("entry", ENTRIES)
class TestEveryEntry:
    def test_its_files_can_be_fetched_and_checked(self, entry: DataSet) -> None:
        assert entry.files
        for remote in entry.files:
            parts = urlsplit(remote.url)
            assert parts.scheme in {"http", "https"}
            assert parts.hostname
            assert remote.checksum is not None
            split_checksum(remote.checksum)
            assert remote.size is not None
            assert remote.size > 1000
            assert ".." not in remote.path
            assert not remote.path.startswith("/")

    def test_it_says_where_it_comes_from(self, entry: DataSet) -> None:
        assert entry.licence
        assert entry.summary
        assert entry.title
        assert urlsplit(entry.homepage).hostname
        assert any(year in entry.citation for year in map(str, range(1998, 2026)))

    def test_its_shape_and_names(self, entry: DataSet) -> None:
        assert entry.shape in {(1, 28, 28), (3, 32, 32)}
        assert entry.num_classes >= 10
        if entry.class_names is not None:
            assert len(set(entry.class_names)) == entry.num_classes
        for constants in (entry.mean, entry.std):
            if constants is not None:
                assert len(constants) == entry.shape[0]
                assert all(0 < value < 1 for value in constants)
        assert (entry.mean is None) == (entry.std is None)
        assert (entry.mean is None) == ("no mean and std: " in entry.note)

    def test_what_is_fetched_is_what_is_read(self, entry: DataSet) -> None:
        """Each downloaded file, or a member that is unpacked, holds files of some form."""
        read = {file for part in entry.parts.values() for form in part.forms for file in form.files}
        for remote in entry.files:
            for kept in remote.unpacks or (remote.path,):
                assert any(file == kept or file.startswith(f"{kept}/") for file in read), kept

    def test_the_published_form_of_each_part_is_fetched(self, entry: DataSet) -> None:
        kept = [name for remote in entry.files for name in remote.unpacks or (remote.path,)]
        for part in entry.parts.values():
            for file in part.forms[0].files:
                assert any(file == name or file.startswith(f"{name}/") for name in kept), file

    def test_contents_are_of_files_of_their_form(self, entry: DataSet) -> None:
        for part in entry.parts.values():
            for form in part.forms:
                assert set(form.contents) <= set(form.files)
                for checksum in form.contents.values():
                    split_checksum(checksum)

    def test_what_is_held_out_leaves_enough_to_train_on(self, entry: DataSet) -> None:
        if "train" in entry.parts:
            assert entry.held_out >= 20 * min(entry.num_classes, 100)
            assert 2 * entry.held_out < 0.2 * entry.parts["train"].count
        else:
            assert entry.held_out == 0

    def test_the_paper_may_use_it_as_this(self, entry: DataSet) -> None:
        """The table of roles: what its publisher calls test is never learnt from."""
        expected: dict[str, tuple[Role, ...]] = {
            "train": (Role.TRAIN,),
            "test": (Role.TEST, Role.OOD_TEST),
            "sample": (Role.OOD_VALIDATION,),
            "textures": (Role.OOD_VALIDATION,),
            "tuning": (Role.OOD_VALIDATION,),
            "val": (Role.OOD_TEST,),
        }
        for name, part in entry.parts.items():
            roles = (Role.TEST,) if entry.name.endswith("-c") else expected[name]
            assert part.roles == roles


def test_the_strongest_checksum_that_is_published() -> None:
    (remote,) = DATA_SETS["tiny-imagenet"].files
    digits = "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821"
    assert remote.checksum == f"sha256:{digits}"


def test_counts() -> None:
    for name, counts in COUNTS.items():
        found = {part: each.count for part, each in DATA_SETS[name].parts.items()}
        assert found == counts


def test_ood_validation_sets_have_no_other_use() -> None:
    """Nothing that tunes may judge."""
    tuning = {
        name
        for name, entry in DATA_SETS.items()
        if any(Role.OOD_VALIDATION in part.roles for part in entry.parts.values())
    }
    assert tuning == {"notmnist", "dtd", "tiny-imagenet-20"}
    for against in OOD_SETS.values():
        assert set(against.validation) <= tuning
        assert not set(against.test) & tuning


def test_tasks_judge_against_sets_of_the_same_shape_and_never_against_themselves() -> None:
    for name, against in OOD_SETS.items():
        assert name not in (*against.validation, *against.test)
        for other in (*against.validation, *against.test):
            assert DATA_SETS[other].shape == DATA_SETS[name].shape


def test_no_two_files_share_a_place() -> None:
    remotes = {remote for entry in DATA_SETS.values() for remote in entry.files}
    paths = [remote.path for remote in remotes]
    kept = [name for remote in remotes for name in remote.unpacks]
    assert len(set(paths + kept)) == len(paths + kept)


def test_no_two_names_are_alike() -> None:
    assert all(name == entry.name for name, entry in DATA_SETS.items())
    assert len({entry.full_title for entry in DATA_SETS.values()}) == len(DATA_SETS)


def test_no_task_is_judged_by_classes_of_its_own() -> None:
    """TinyImageNet has 22 classes of CIFAR-10, and a set without them."""
    assert len(CIFAR10_CLASSES) == 22
    assert "22 of its 200 classes" in DATA_SETS["tiny-imagenet"].overlaps["cifar10"]
    for name, against in OOD_SETS.items():
        for other in (*against.validation, *against.test):
            assert name not in DATA_SETS[other].overlaps


def test_the_15_corruptions_of_mnist_c() -> None:
    names = """shot_noise impulse_noise glass_blur motion_blur shear scale rotate brightness
    translate stripe fog spatter dotted_line zigzag canny_edges"""
    assert set(DATA_SETS["mnist-c"].parts) == set(names.split())
    assert len(DATA_SETS["mnist-c"].parts) == 15
    assert "mnist_c/identity" not in DATA_SETS["mnist-c"].files[0].unpacks


def test_the_19_corruptions_of_cifar10_c_at_5_severities() -> None:
    names = """gaussian_noise shot_noise impulse_noise defocus_blur glass_blur motion_blur zoom_blur
    snow frost fog brightness contrast elastic_transform pixelate jpeg_compression speckle_noise
    gaussian_blur spatter saturate"""
    expected = {f"{name}-{severity}" for name in names.split() for severity in (1, 2, 3, 4, 5)}
    assert set(DATA_SETS["cifar10-c"].parts) == expected
    assert len(expected) == 95


def test_every_corruption_of_the_registry_can_be_made() -> None:
    assert set(DATA_SETS["mnist-c"].parts) == set(CORRUPTIONS_MNIST)
    made = {f"{name}-{severity}" for name in CORRUPTIONS_CIFAR for severity in SEVERITIES}
    assert set(DATA_SETS["cifar10-c"].parts) == made


def test_only_corruptions_are_made_here_and_they_say_so() -> None:
    for name, entry in DATA_SETS.items():
        for part in entry.parts.values():
            for form in part.forms:
                assert form.made == form.label.endswith(", generated")
                assert not form.made or name in {"mnist-c", "cifar10-c"}
                assert form.made == form.files[0].startswith("generated/")


def test_the_table_and_its_entries_are_read_only() -> None:
    with pytest.raises(TypeError):
        DATA_SETS["mine"] = DATA_SETS["mnist"]  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        DATA_SETS["mnist"].held_out = 0  # type: ignore[misc]


@pytest.mark.parametrize(
    "checksum", ["", "md5:", "md5:" + "0" * 31, "sha256:" + "0" * 32, "MD5:" + "0" * 32, "0" * 32]
)
def test_a_checksum_that_is_none(checksum: str) -> None:
    with pytest.raises(InputError, match="a checksum is md5:, sha1: or sha256: and its digits"):
        RemoteFile("a", "http://a", checksum, 1)
