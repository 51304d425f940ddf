"""The registry on the real files: counts, constants and checksums. They need `GEMFI_DATA`."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from gemfi._files import write_atomically
from gemfi.data import DATA_SETS, Role, Task, load_split, registered_task
from gemfi.data.normalisation import Normalisation
from gemfi.data.registry import OOD_SETS
from gemfi.data.registry.load import find_form, read_part
from gemfi.data.registry.sets import CIFAR10_CLASSES, TUNING_CLASSES
from gemfi.errors import MissingDataError
from gemfi_bench.data_sets.verify import State, verify


def digest(*tensors: torch.Tensor) -> str:
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


@pytest.mark.parametrize("name", OOD_SETS)
def test_every_task_that_is_here(data_dir: Path, name: str) -> None:
    entry = DATA_SETS[name]
    if find_form(entry, "train", data_dir) is None:
        with pytest.raises(MissingDataError, match=f"gemfi data fetch {name}"):
            registered_task(name, data_dir)
        return
    task = registered_task(name, data_dir)
    held, whole = entry.held_out, entry.parts["train"].count
    assert len(task.train) == whole - 2 * held
    assert len(task.validation) == len(task.calibration) == held
    assert len(task.test) == entry.parts["test"].count
    for split in task.splits():
        assert tuple(split.x.shape[1:]) == entry.shape
        assert split.x.dtype == torch.uint8
        assert int(split.x.max()) == 255
    for split in (task.train, task.validation, task.calibration, task.test):
        assert split.class_names == entry.class_names
        assert int(split.class_counts.min()) > 0
    check_outside(task)


def check_outside(task: Task) -> None:
    against = OOD_SETS[task.name]
    assert set(task.absent) | set(task.ood_validation) | set(task.ood_test) == {
        *against.validation,
        *against.test,
    }
    for name, split in task.ood_test.items():
        assert split.role is Role.OOD_TEST
        part = split.name.removeprefix(f"{name}/")
        whole = DATA_SETS[name].parts[part.split(",")[0]].count
        first = {"test, first 5,000": 5_000, "test, first 916": 916}
        assert len(split) == first.get(part, whole)
    assert {split.role for split in task.ood_validation.values()} <= {Role.OOD_VALIDATION}


def test_what_is_carved_out_of_mnist_never_changes(data_dir: Path) -> None:
    """Pinned: another digest means that numbers cannot be compared with earlier ones."""
    found = {}
    for name in ("train", "validation", "calibration"):
        split = load_split("mnist", name, root=data_dir)
        found[name] = digest(split.x, split.labels)
    assert found == {
        "train": "ad5449879cc2adde",
        "validation": "aa3746c275b32875",
        "calibration": "8397b219d1191680",
    }


def test_the_parts_of_mnist_share_no_image(data_dir: Path) -> None:
    seen: set[bytes] = set()
    count = 0
    for name in ("train", "validation", "calibration", "test"):
        images = {image.tobytes() for image in load_split("mnist", name, root=data_dir).x.numpy()}
        count += len(images)
        seen |= images
    assert len(seen) == count


def test_the_cache_changes_nothing(data_dir: Path) -> None:
    entry = DATA_SETS["mnist"]
    form, first = read_part(entry, "test", data_dir)
    _, cached = read_part(entry, "test", data_dir)
    decoded = form.read(*form.paths(data_dir))
    for found in (first, cached):
        np.testing.assert_array_equal(found.images, decoded.images)
        assert found.labels is not None
        assert decoded.labels is not None
        np.testing.assert_array_equal(found.labels, decoded.labels)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "kmnist", "cifar10"])
def test_the_files_are_the_published_ones(data_dir: Path, name: str) -> None:
    checks = verify(DATA_SETS[name], data_dir)
    assert sum(check.state is State.OK for check in checks) >= 3
    assert {check.state for check in checks} <= {State.OK, State.MISSING}


def test_a_kmnist_that_was_compressed_anew_is_the_published_one(
    data_dir: Path, tmp_path: Path
) -> None:
    for path in (data_dir / "kmnist").glob("t10k-*.gz"):
        data = gzip.compress(gzip.decompress(path.read_bytes()), compresslevel=1, mtime=7)
        assert data != path.read_bytes()
        write_atomically(tmp_path / "kmnist" / path.name, data)
    checks = verify(DATA_SETS["kmnist"], tmp_path)
    assert [check.state for check in checks if check.what.endswith(".gz")] == [State.OK] * 2


def test_tiny_imagenet_is_cut_into_three(data_dir: Path) -> None:
    """22 classes of CIFAR-10, 20 to tune, drawn by seed 0 from those left, and the rest."""
    whole = load_split("tiny-imagenet", "val", root=data_dir)
    tuning = load_split("tiny-imagenet-20", "tuning", root=data_dir)
    rest = load_split("tiny-imagenet-158", "val", root=data_dir)
    names = [set(split.class_names or ()) for split in (whole, tuning, rest)]
    assert names[0] == CIFAR10_CLASSES | names[1] | names[2]
    assert sum(map(len, names[1:])) == 178
    others = sorted(names[0] - CIFAR10_CLASSES)
    drawn = torch.randperm(178, generator=torch.Generator().manual_seed(0))[:20]
    assert names[1] == TUNING_CLASSES == {others[index] for index in drawn.tolist()}
    for split, count in ((tuning, 20), (rest, 158)):
        assert split.class_counts.tolist() == [50] * count
        kept = [wnid in (split.class_names or ()) for wnid in whole.class_names or ()]
        assert torch.equal(split.x, whole.x[torch.tensor(kept)[whole.labels]])


def test_a_part_of_cifar100_is_named_so(data_dir: Path) -> None:
    split = load_split("cifar100", "test", role="ood-test", root=data_dir)
    assert (split.name, len(split), split.role) == ("cifar100/test, first 916", 916, Role.OOD_TEST)
    assert split.x.shape == (916, 3, 32, 32)
    names = DATA_SETS["cifar100"].class_names
    assert names is not None
    first = [names[label] for label in split.labels[:4].tolist()]
    assert first == ["mountain", "forest", "seal", "mushroom"]  # of the published test batch


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_the_constants_are_those_of_the_training_images(data_dir: Path, name: str) -> None:
    """Of all of them, as everyone has computed them: the part that is left differs a little."""
    entry = DATA_SETS[name]
    assert entry.mean is not None
    assert entry.std is not None
    found = Normalisation.of(load_split(name, "train", root=data_dir))
    assert found.mean == pytest.approx(entry.mean, abs=1e-3)
    assert found.std == pytest.approx(entry.std, abs=1e-3)
