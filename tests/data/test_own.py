"""A user's own files as a task: every format, OOD files, and each way to get it wrong."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from gemfi.data import Role, Task
from gemfi.data.normalisation import Normalisation
from gemfi.data.own import OwnData
from gemfi.errors import InputError

RNG = np.random.default_rng(0)
ROLES = ("train", "validation", "calibration", "test")


def sizes(task: Task) -> list[int]:
    splits = [getattr(task, role) for role in ROLES]
    assert [split.role for split in splits] == [Role(role) for role in ROLES]
    return [len(split) for split in splits]


def csv(path: Path, rows: int = 60, header: str = "width,height,kind", shift: float = 0) -> Path:
    lines = [header]
    lines += [f"{i + shift},{-i},{('cat', 'ant', 'bee')[i % 3]}" for i in range(rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def pictures(folder: Path, count: int = 10, shape: tuple[int, int] = (6, 6)) -> Path:
    """A folder of two classes: pixels of `dark` are below 100, those of `light` above 150."""
    for name, low, high in (("dark", 0, 100), ("light", 151, 256)):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = RNG.integers(low, high, (*shape, 3), np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


def archive(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def task_from_path(path: Path, **options: Any) -> Task:
    return OwnData(**options).task(path)


def refused(path: Path, message: str, **options: Any) -> None:
    with pytest.raises(InputError, match=message):
        task_from_path(path, **options)


class TestTables:
    def test_csv(self, tmp_path: Path) -> None:
        task = task_from_path(csv(tmp_path / "pets.csv"))
        assert (task.name, task.class_names) == ("pets.csv", ("ant", "bee", "cat"))
        assert sizes(task) == [36, 6, 6, 12]
        for split in task.splits():
            assert split.x.dtype == torch.float32
            # Of the i-th row: i, -i, and the class that i % 3 names.
            assert torch.equal(split.x[:, 0], -split.x[:, 1])
            expected = torch.tensor([2, 0, 1])[split.x[:, 0].long() % 3]
            assert torch.equal(split.labels, expected)
        seen = torch.cat([split.x[:, 0] for split in task.splits()])
        assert sorted(seen.tolist()) == list(range(60))

    def test_the_column_of_the_labels(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.csv"
        rows = [f"{'xy'[i % 2]},{i},{i * i}" for i in range(20)]
        path.write_text("\n".join(["width,a,b", *rows]))
        task = task_from_path(path, label="width")
        assert task.class_names == ("x", "y")
        assert task.train.x.shape[1] == 2

    def test_normalised_by_its_training_part(self, tmp_path: Path) -> None:
        task = task_from_path(csv(tmp_path / "pets.csv"))
        assert task.normalisation == Normalisation.of(task.train)
        assert task.normalisation is not None
        mean = task.train.x.double().mean(dim=0)
        assert task.normalisation.mean == pytest.approx(mean.tolist())

    def test_the_cut_is_always_the_same(self, tmp_path: Path) -> None:
        path = csv(tmp_path / "pets.csv")
        first = task_from_path(path)
        torch.manual_seed(99)
        for a, b in zip(first.splits(), task_from_path(path).splits(), strict=True):
            assert torch.equal(a.x, b.x)

    def test_ood_tables(self, tmp_path: Path) -> None:
        near = csv(tmp_path / "near.csv", 4, shift=0.5)
        far = csv(tmp_path / "far.csv", 2, shift=1000)
        task = task_from_path(
            csv(tmp_path / "pets.csv"), ood_validation=(str(near),), ood_test=(str(far),)
        )
        assert task.ood_validation["near.csv"].role is Role.OOD_VALIDATION
        assert task.ood_test["far.csv"].role is Role.OOD_TEST
        assert task.ood_test["far.csv"].x.tolist() == [[1000, 0], [1001, -1]]
        assert task.ood_test["far.csv"].y is None

    def test_ood_tables_with_columns_in_another_order(self, tmp_path: Path) -> None:
        """Read as they come, they would be features under the wrong names."""
        other = csv(tmp_path / "far.csv", header="height,width,kind")
        message = (
            r"far\.csv has other columns than the data beside the label's, which it needs too: "
            r"\('height', 'width'\), expected"
        )
        refused(csv(tmp_path / "pets.csv"), message, ood_test=(str(other),))

    def test_ood_tables_without_the_column(self, tmp_path: Path) -> None:
        other = tmp_path / "far.csv"
        other.write_text("width,height\n1,2\n")
        path = csv(tmp_path / "pets.csv")
        refused(path, r"far\.csv has no column 'kind'", label="kind", ood_test=(str(other),))

    def test_bad_tables(self, tmp_path: Path) -> None:
        path = csv(tmp_path / "pets.csv")
        refused(path, "has no column 'species'; it has: width, height, kind", label="species")
        refused(path, "has 3 columns, so there is no column 7", label=7)
        refused(csv(tmp_path / "few.csv", 12), r"class 'ant' has 4 samples; .* at least 5")
        text = path.read_text().replace("\n7,", "\n1e999,")
        (tmp_path / "far.csv").write_text(text)
        refused(tmp_path / "far.csv", r"line 9, column 'width': '1e999' is not a finite number")
        refused(tmp_path / "none.csv", r"cannot read .*none\.csv")

    def test_parquet_needs_pyarrow(self, tmp_path: Path) -> None:
        """It is not among the dependencies; with it, the file is found not to be parquet."""
        path = tmp_path / "rows.parquet"
        path.write_bytes(b"PAR1")
        is_there = importlib.util.find_spec("pyarrow") is not None
        needs = "reading parquet needs pyarrow: pip install pyarrow"
        refused(path, "as parquet" if is_there else needs)


class TestArchives:
    Y = np.arange(40) % 4

    def test_rows(self, tmp_path: Path) -> None:
        x = RNG.normal(size=(40, 3))
        task = task_from_path(archive(tmp_path / "rows.npz", x=x, y=self.Y))
        assert (task.name, task.class_names) == ("rows.npz", ("0", "1", "2", "3"))
        assert sizes(task) == [24, 4, 4, 8]
        assert task.train.x.dtype == torch.float32
        rows = {tuple(row) for row in x.astype(np.float32).tolist()}
        assert {tuple(row) for split in task.splits() for row in split.x.tolist()} == rows

    @pytest.mark.parametrize(
        ("shape", "sample"), [((40, 8, 8, 3), (3, 8, 8)), ((40, 8, 8), (1, 8, 8))]
    )
    def test_images(self, tmp_path: Path, shape: tuple[int, ...], sample: tuple[int, ...]) -> None:
        images = RNG.integers(0, 256, shape, np.uint8)
        path = archive(tmp_path / "a.npz", images=images, labels=self.Y.astype(np.uint8))
        task = task_from_path(path)
        assert task.train.x.dtype == torch.uint8
        assert tuple(task.train.x.shape[1:]) == sample
        assert task.normalisation is not None
        assert len(task.normalisation.mean) == sample[0]

    def test_sequences_go_without_a_normalisation(self, tmp_path: Path) -> None:
        x = RNG.normal(size=(40, 5, 3)).astype(np.float32)
        task = task_from_path(archive(tmp_path / "a.npz", x=x, y=self.Y))
        assert task.train.x.shape[1:] == (5, 3)
        assert task.normalisation is None

    def test_an_ood_archive_needs_no_labels(self, tmp_path: Path) -> None:
        inside = archive(tmp_path / "a.npz", x=RNG.normal(size=(40, 3)), y=self.Y)
        outside = archive(tmp_path / "b.npz", x=np.ones((2, 3)))
        task = task_from_path(inside, ood_test=(str(outside),))
        assert task.ood_test["b.npz"].x.tolist() == [[1, 1, 1]] * 2

    def test_an_ood_archive_of_another_shape(self, tmp_path: Path) -> None:
        inside = archive(tmp_path / "a.npz", x=RNG.normal(size=(40, 3)), y=self.Y)
        outside = archive(tmp_path / "b.npz", x=np.ones((2, 4)))
        message = r"'b\.npz' \(ood-test\) has samples \(4,\).*others have \(3,\)"
        refused(inside, message, ood_test=(str(outside),))

    @pytest.mark.parametrize(
        ("arrays", "message"),
        [
            ({"x": np.ones((40, 2))}, r"has no labels: an archive needs x and y, or images and"),
            ({"images": np.ones((40, 2))}, "has no labels"),
            ({"a": np.ones(3)}, r"a\.npz holds a; an archive needs x and y"),
            ({}, r"holds nothing; an archive needs"),
            ({"x": np.ones((40, 2)), "y": np.ones((40, 1), int)}, r"y must have shape \(N,\)"),
            ({"x": np.ones((40, 2)), "y": Y[:-1]}, "x has 40 samples, but y has 39 labels"),
            ({"x": np.ones((40, 2)), "y": Y / 2}, "labels must be integers, got torch.float64"),
            ({"x": np.ones((40, 2)), "y": Y - 1}, r"labels must be non-negative, found -1"),
            ({"x": np.ones((40, 2)), "y": Y + 1}, "labels up to 4, but none is 0"),
            ({"x": np.ones((40, 2), int), "y": Y}, "x must be floating point or uint8"),
            ({"x": np.full((40, 2), np.nan), "y": Y}, "x must be finite"),
            ({"x": np.ones(40), "y": Y}, "at least one feature axis"),
            ({"x": np.ones((40, 2), np.uint8), "y": Y}, r"'x': expected images of shape"),
            ({"x": np.array(["a"]), "y": Y}, "expected numbers"),
        ],
    )
    def test_bad_archives(self, tmp_path: Path, arrays: Any, message: str) -> None:
        refused(archive(tmp_path / "a.npz", **arrays), message)

    def test_numbers_that_torch_does_not_know(self, tmp_path: Path) -> None:
        x = np.ones((40, 2), np.longdouble)
        path = archive(tmp_path / "a.npz", x=x, y=self.Y)
        if x.itemsize == 8:  # on some platforms it is a double
            assert sizes(task_from_path(path)) == [24, 4, 4, 8]
        else:
            refused(path, r"a\.npz: 'x' holds float.*, which torch does not know")

    def test_a_file_that_is_no_archive(self, tmp_path: Path) -> None:
        path = tmp_path / "a.npz"
        refused(path, r"cannot read .*a\.npz")
        path.write_bytes(b"PK")
        refused(path, r"cannot read .*a\.npz \(2 bytes\) as npz")


class TestFolders:
    def test_a_sub_folder_for_each_class(self, tmp_path: Path) -> None:
        task = task_from_path(pictures(tmp_path / "photos"))
        assert (task.name, task.class_names) == ("photos", ("dark", "light"))
        assert sizes(task) == [12, 2, 2, 4]
        for split in task.splits():
            assert tuple(split.x.shape[1:]) == (3, 6, 6)
            assert torch.equal((split.x > 125).flatten(1).all(1), split.labels.bool())

    def test_grey(self, tmp_path: Path) -> None:
        task = task_from_path(pictures(tmp_path / "photos"), grey=True)
        assert tuple(task.train.x.shape[1:]) == (1, 6, 6)

    def test_size_crops_and_does_not_stretch(self, tmp_path: Path) -> None:
        folder = pictures(tmp_path / "photos", shape=(8, 8))
        wide = np.zeros((8, 24, 3), np.uint8)
        wide[:, 8:16] = 255  # all that is left of it when it is cropped
        Image.fromarray(wide).save(folder / "light" / "wide.png")
        task = task_from_path(folder, size=4)
        assert tuple(task.train.x.shape[1:]) == (3, 4, 4)
        found = torch.cat([split.x for split in task.splits()])
        assert (found == 255).flatten(1).all(1).sum() == 1

    def test_sizes_that_differ(self, tmp_path: Path) -> None:
        folder = pictures(tmp_path / "photos")
        Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(folder / "dark" / "x.png")
        refused(folder, "images differ in size: .*size=")

    def test_an_ood_folder_may_be_flat(self, tmp_path: Path) -> None:
        flat = tmp_path / "flat"
        flat.mkdir()
        Image.fromarray(np.full((9, 5, 3), 7, np.uint8)).save(flat / "a.png")
        task = task_from_path(pictures(tmp_path / "photos"), size=6, ood_test=(str(flat),))
        assert (task.ood_test["flat"].x == 7).all()
        assert task.ood_test["flat"].x.shape == (1, 3, 6, 6)

    def test_bad_folders(self, tmp_path: Path) -> None:
        flat = tmp_path / "flat"
        flat.mkdir()
        refused(flat, "holds no images")
        Image.fromarray(np.zeros((6, 6, 3), np.uint8)).save(flat / "a.png")
        refused(flat, "flat has no labels: a folder needs a sub-folder for each class")
        refused(pictures(tmp_path / "few", 4), r"'few': class 'dark' has 4 samples")


def test_what_is_neither(tmp_path: Path) -> None:
    message = r"own data is a folder with a sub-folder .*: \.npz, \.csv, \.parquet"
    refused(tmp_path / "nothing", f"nothing does not exist; {message}")
    (tmp_path / "a.txt").write_text("x")
    refused(tmp_path / "a.txt", rf"a\.txt: {message}")


def test_what_is_wrong_with_an_ood_file_is_said_too(tmp_path: Path) -> None:
    path = csv(tmp_path / "pets.csv")
    refused(path, r"gone\.csv", ood_validation=(str(tmp_path / "gone.csv"),))
    refused(path, r"does not exist", ood_test=(str(tmp_path / "gone"),))


@pytest.mark.parametrize("group", ["ood_validation", "ood_test"])
def test_the_data_themselves_are_not_unfamiliar(tmp_path: Path, group: str) -> None:
    path = csv(tmp_path / "pets.csv")
    refused(path, "one file cannot teach, tune and judge", **{group: (str(path),)})
    link = tmp_path / "link.csv"
    link.symlink_to(path)
    refused(path, "is given as the data and as --ood", **{group: (str(link),)})
    again = csv(tmp_path / "again.csv")
    refused(path, r"'again\.csv' holds the same samples as 'pets\.csv'", **{group: (str(again),)})


def test_one_file_does_not_tune_and_judge(tmp_path: Path) -> None:
    path, far = csv(tmp_path / "pets.csv"), csv(tmp_path / "far.csv", 4, shift=9)
    again = csv(tmp_path / "again.csv", 4, shift=9)
    message = "is given as --ood-validation and as --ood-test: one file cannot"
    refused(path, message, ood_validation=(str(far),), ood_test=(str(far),))
    message = r"'again\.csv' holds the same samples as 'far\.csv': one file cannot"
    refused(path, message, ood_validation=(str(far),), ood_test=(str(again),))


def test_options_are_for_files_of_their_kind(tmp_path: Path) -> None:
    rows = archive(tmp_path / "a.npz", x=RNG.normal(size=(40, 3)), y=np.arange(40) % 4)
    for path in (rows, pictures(tmp_path / "photos")):
        refused(path, r"\(--label, --drop, --keep\) are for tables", label="kind")
        refused(path, r"\(--label, --drop, --keep\) are for tables", drop=["kind"])
    for path in (rows, csv(tmp_path / "pets.csv")):
        refused(path, r"\(--size, --grey\) are for folders of images", size=8)
        refused(path, r"\(--size, --grey\) are for folders of images", grey=True)


def test_one_class_is_not_enough(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("\n".join(["a,b", *(f"{i},x" for i in range(20))]))
    refused(path, r"one\.csv has samples of one class, 'x', .* at least two")


def test_labels_that_count_nothing(tmp_path: Path) -> None:
    """To count them as they are would take terabytes."""
    x, y = RNG.normal(size=(40, 3)), np.where(np.arange(40) % 2 == 0, 0, 10**12)
    path = archive(tmp_path / "a.npz", x=x, y=y)
    refused(path, r"a\.npz has labels up to 1000000000000, but none is 1: number the classes 0")
    inside = archive(tmp_path / "b.npz", x=x + 1, y=np.arange(40) % 4)
    assert len(task_from_path(inside, ood_test=(str(path),)).ood_test["a.npz"]) == 40


def test_labels_that_leave_a_gap(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.npz", x=RNG.normal(size=(40, 3)), y=1 + np.arange(40) % 2)
    refused(path, r"a\.npz has labels up to 2, but none is 0: number the classes 0, 1, 2")


def test_files_of_one_name(tmp_path: Path) -> None:
    paths = tmp_path / "near" / "a.csv", tmp_path / "far" / "a.csv"
    message = r"files are named by themselves, but two of .*near/a\.csv, .*far/a\.csv are alike"
    refused(csv(tmp_path / "pets.csv"), message, ood_test=tuple(map(str, paths)))
