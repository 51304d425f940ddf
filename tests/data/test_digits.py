"""scikit-learn's digits: which images go where."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from gemfi.data import TASKS, Role, Task, digits
from gemfi.errors import InputError

COUNTS = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # of digits 0..9, all images distinct


@pytest.fixture(scope="module")
def task() -> Task:
    return digits()


@pytest.fixture(scope="module")
def source() -> dict[bytes, int]:
    """Pixels of each of scikit-learn's images -> its position."""
    images = load_digits().images
    return {(image / 16).astype(np.float32).tobytes(): i for i, image in enumerate(images)}


def positions(x: Tensor, source: dict[bytes, int]) -> list[int]:
    return [source[image.numpy().tobytes()] for image in x]


def test_counts_of_the_source(source: dict[bytes, int]) -> None:
    target = load_digits().target
    assert np.bincount(target).tolist() == COUNTS
    assert len(source) == 1797


def test_sizes(task: Task) -> None:
    sizes = [len(split) for split in (task.train, task.validation, task.calibration, task.test)]
    assert sizes == [759, 126, 126, 253]
    assert sum(sizes) == sum(COUNTS[:7])
    assert {name: len(split) for name, split in task.ood_validation.items()} == {"digits-7": 179}
    assert {name: len(split) for name, split in task.ood_test.items()} == {
        "digits-8-9": 174 + 180,
        "noise": 253,
        "inverted": 253,
        "shuffled": 253,
    }


def test_shapes_and_range(task: Task) -> None:
    for split in task.splits():
        assert split.x.shape[1:] == (1, 8, 8)
        assert split.x.dtype is torch.float32
        assert split.x.min() >= 0
        assert split.x.max() <= 1
    assert task.train.x.max() == 1


def test_roles_and_names(task: Task) -> None:
    assert TASKS["digits"] is digits
    assert task.class_names == tuple("0123456")
    assert {split.role for split in task.ood_validation.values()} == {Role.OOD_VALIDATION}
    assert {split.role for split in task.ood_test.values()} == {Role.OOD_TEST}


def test_every_real_image_is_used_once(task: Task, source: dict[bytes, int]) -> None:
    real = [task.train, task.validation, task.calibration, task.test]
    real += [task.ood_validation["digits-7"], task.ood_test["digits-8-9"]]
    found = [position for split in real for position in positions(split.x, source)]
    assert sorted(found) == list(range(1797))


def test_labels_are_those_of_the_source(task: Task, source: dict[bytes, int]) -> None:
    target = load_digits().target
    for split in (task.train, task.validation, task.calibration, task.test):
        assert split.labels.tolist() == target[positions(split.x, source)].tolist()
        assert int(split.labels.max()) == 6  # no held-out class
    sevens, rest = task.ood_validation["digits-7"].x, task.ood_test["digits-8-9"].x
    assert set(target[positions(sevens, source)]) == {7}
    assert set(target[positions(rest, source)]) == {8, 9}


def test_is_stratified(task: Task) -> None:
    whole = torch.tensor(COUNTS[:7]).float()
    for split in (task.train, task.validation, task.calibration, task.test):
        expected = len(split) * whole / whole.sum()
        assert (split.class_counts - expected).abs().max() < 1.5


def test_the_default_split_is_fixed(task: Task, source: dict[bytes, int]) -> None:
    """If this fails, the default split has moved, and with it every number in the docs."""
    index = [positions(split.x, source) for split in list(task.splits())[:4]]
    assert zlib.crc32(repr(index).encode()) == 2367414578


def test_same_seed_same_task_and_another_seed_another(task: Task) -> None:
    other = digits(split_seed=1)
    changed = ["train", "validation", "calibration", "test", "noise", "inverted", "shuffled"]
    for first, again, second in zip(task.splits(), digits().splits(), other.splits(), strict=True):
        assert torch.equal(first.x, again.x)
        key = first.name if first.role is Role.OOD_TEST else str(first.role)
        assert torch.equal(first.x, second.x) == (key not in changed)


def test_noise_is_uniform(task: Task) -> None:
    noise = task.ood_test["noise"].x
    assert float(noise.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(noise.var()) == pytest.approx(1 / 12, abs=0.003)
    assert len(noise.unique()) > 16_000


def test_inverted_is_one_minus_test(task: Task) -> None:
    assert torch.equal(task.ood_test["inverted"].x + task.test.x, torch.ones(253, 1, 8, 8))


def test_shuffled_permutes_each_image_on_its_own(task: Task) -> None:
    test, shuffled = task.test.x.flatten(1), task.ood_test["shuffled"].x.flatten(1)
    assert torch.equal(test.sort(1).values, shuffled.sort(1).values)
    # One permutation for all would keep the corner pixel, blank in every digit, blank somewhere.
    assert (test == 0).all(0).any()
    assert not (shuffled == 0).all(0).any()


def test_leaves_the_global_generators_alone() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    digits()
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


def test_refuses_a_bad_seed() -> None:
    with pytest.raises(InputError, match="seed must be an integer of at least 0, got -1"):
        digits(split_seed=-1)
