"""Tasks of the registry: lazy, judged against the right sets, and clear about what is missing."""

from __future__ import annotations

from typing import Any

import pytest

from gemfi.data import DATA_SETS, TASKS, Role, registered_task
from gemfi.data.registry import OOD_SETS
from gemfi.errors import InputError, MissingDataError


@pytest.fixture
def grey(shelf: Any, shrink: Any) -> Any:
    """A data folder with MNIST, FashionMNIST and notMNIST, all small; no KMNIST."""
    for name in ("mnist", "fashion-mnist"):
        shrink(name, {"train": 60, "test": 20}, held_out=10)
        shelf.mnist(name)
    shrink("notmnist", {"sample": 20})
    shelf.idx("notmnist", "t10k", 20)
    return shelf


def test_the_pairs_of_the_paper() -> None:
    mnist, cifar = OOD_SETS["mnist"], OOD_SETS["cifar10"]
    assert (mnist.validation, mnist.test) == (("notmnist",), ("kmnist", "fashion-mnist"))
    assert cifar.validation == ("dtd", "tiny-imagenet-20")
    assert cifar.test == ("svhn", "cifar100", "tiny-imagenet-158")


def test_every_split_has_its_role(grey: Any) -> None:
    task = registered_task("mnist")
    assert task.name == "mnist"
    assert task.class_names == tuple("0123456789")
    assert {split.name: split.role for split in task.splits()} == {
        "mnist/train": Role.TRAIN,
        "mnist/validation": Role.VALIDATION,
        "mnist/calibration": Role.CALIBRATION,
        "mnist/test": Role.TEST,
        "notmnist/sample": Role.OOD_VALIDATION,
        "fashion-mnist/test": Role.OOD_TEST,
    }
    assert [len(split) for split in task.splits()] == [40, 10, 10, 20, 20, 20]


def test_the_constants_of_the_set_normalise_it(grey: Any) -> None:
    normalisation = registered_task("fashion-mnist").normalisation
    assert normalisation is not None
    assert (normalisation.mean, normalisation.std) == ((0.2860,), (0.3530,))


def test_nothing_is_read_before_it_is_asked_for(grey: Any) -> None:
    """Every file but MNIST's training pair is garbage, and no one notices until it is read."""
    for file in grey.root.rglob("*.gz"):
        if not (file.parent.name == "mnist" and file.name.startswith("train")):
            file.write_bytes(b"garbage")
    task = registered_task("mnist")
    assert list(task.ood_test) == ["fashion-mnist"]
    assert "notmnist" in task.ood_validation
    assert not (grey.root / ".gemfi").exists()
    assert [len(split) for split in (task.train, task.validation, task.calibration)] == [40, 10, 10]
    for read in (
        lambda: task.test,
        lambda: task.ood_test["fashion-mnist"],
        lambda: task.ood_validation["notmnist"],
    ):
        with pytest.raises(InputError, match="t10k-images-idx3-ubyte"):
            read()


def test_training_data_may_be_here_without_test_data(grey: Any) -> None:
    for file in (grey.root / "mnist").glob("t10k*"):
        file.unlink()
    task = registered_task("mnist")
    assert len(task.train) == 40
    with pytest.raises(
        MissingDataError, match=r"MNIST \(test\) is not here: no .*mnist/t10k-images"
    ):
        _ = task.test


def test_sets_that_are_not_here_are_listed_with_the_reason(grey: Any) -> None:
    task = registered_task("mnist")
    assert list(task.ood_test) == ["fashion-mnist"]
    assert task.absent == {
        "kmnist": f"KMNIST (test) is not here: no {grey.root}/kmnist/t10k-images-idx3-ubyte.gz; "
        "run: gemfi data fetch kmnist, or set GEMFI_DATA to the folder that holds it"
    }
    for file in (grey.root / "notmnist").iterdir():
        file.unlink()
    task = registered_task("mnist")
    assert list(task.ood_validation) == []
    assert sorted(task.absent) == ["kmnist", "notmnist"]


@pytest.mark.parametrize("name", OOD_SETS)
def test_a_missing_set_is_one_line_at_once(shelf: Any, name: str) -> None:
    with pytest.raises(MissingDataError) as caught:
        registered_task(name)
    text = str(caught.value)
    first = DATA_SETS[name].parts["train"].forms[0].files[0]
    assert "\n" not in text
    assert str(shelf.root / first) in text
    assert f"run: gemfi data fetch {name}" in text
    assert "GEMFI_DATA" in text


def test_an_unknown_task(shelf: Any) -> None:
    message = r"no task on 'notmnist'; there are tasks on: mnist, fashion-mnist, kmnist, cifar10"
    with pytest.raises(InputError, match=message):
        registered_task("notmnist")


def test_the_tasks_are_in_the_table_of_all_tasks(grey: Any, tmp_path: Any) -> None:
    assert set(OOD_SETS) < set(TASKS)
    assert len(TASKS["mnist"]().train) == 40
    with pytest.raises(MissingDataError, match=str(tmp_path / "other")):
        TASKS["mnist"](root=tmp_path / "other")
