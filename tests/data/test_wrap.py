"""`as_split`: what becomes a split, what becomes a stream, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from gemfi.data import Role, Split, as_split
from gemfi.data.streams import Stream
from gemfi.errors import InputError, RoleError

X = torch.arange(24, dtype=torch.float32).reshape(12, 2)
Y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 0, 1, 0, 0])


@pytest.mark.parametrize("dtype", [np.float64, ">f4", np.float32])
def test_numpy_equals_tensors(dtype: Any) -> None:
    x = X.numpy().astype(dtype)
    x.setflags(write=False)
    wrapped = as_split(x, Y.numpy().astype(np.uint16), role="test", num_classes=3)
    assert torch.equal(wrapped.x, X)
    assert torch.equal(wrapped.labels, Y)


def test_numpy_is_copied() -> None:
    x = np.zeros((2, 2), dtype=np.float32)
    wrapped = as_split(x, np.array([0, 1]), role="train")
    x[:] = 9
    assert wrapped.x.abs().max() == 0


def test_what_is_in_memory_stays_there() -> None:
    split = as_split(TensorDataset(X, Y), role="train")
    assert isinstance(split, Split)
    assert split.x.data_ptr() == X.data_ptr()
    assert as_split(TensorDataset(X), role="ood-test").y is None


def test_what_is_not_becomes_a_stream() -> None:
    for data in (DataLoader(TensorDataset(X, Y)), DataLoader(TensorDataset(X, Y), shuffle=True)):
        assert isinstance(as_split(data, role="train"), Stream)


def test_number_of_classes() -> None:
    first = X[:1], torch.tensor([1])
    assert as_split(X, Y, role="train").num_classes == 3
    assert as_split(*first, role="validation").num_classes is None
    assert as_split(*first, role="test", class_names=("a", "b", "c")).num_classes == 3
    assert as_split(X, Y, role="train", num_classes=7).num_classes == 7
    assert as_split(DataLoader(TensorDataset(X, Y)), role="train").num_classes == 3


class Nothing(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(())


@pytest.mark.parametrize("data", [Nothing(), DataLoader(Nothing(), batch_size=4)])
def test_empty(data: Any) -> None:
    with pytest.raises(InputError, match=r"'mine': the Nothing is empty"):
        as_split(data, role="train", name="mine")


def test_refuses_labels_beside_a_dataset() -> None:
    with pytest.raises(InputError, match="a TensorDataset brings its own labels"):
        as_split(TensorDataset(X, Y), Y, role="train")


@pytest.mark.parametrize("role", ["train", "ood-test"])
def test_cannot_change_a_role(role: str) -> None:
    for data in (
        Split(X, None, Role.OOD_TEST, "mine"),
        as_split(DataLoader(TensorDataset(X)), role="ood-test", name="mine"),
    ):
        with pytest.raises(RoleError, match="already has role ood-test, and a role does not chan"):
            as_split(data, role=role)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([[0.0], [1.0]], "must be a tensor or a numpy array, got list"),
        (np.array(["a", "b"]), "must hold numbers, got dtype <U1"),
        (np.array([{}, {}]), "must hold numbers, got dtype object"),
        ({"x": X, "y": Y}, r'a dict of x, y: write as_split\(data\["x"\], data\["y"\], role="tr'),
    ],
)
def test_refuses(data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_split(data, role="train")


@pytest.mark.parametrize("number", [torch.as_tensor, np.asarray])
def test_a_list_of_pairs_is_told_the_line_to_write(number: Any) -> None:
    data = [(number(x.numpy()), int(y)) for x, y in zip(X, Y, strict=True)]
    with pytest.raises(InputError, match="a list of pairs: write as_split") as refused:
        as_split(data, role="train")
    line = str(refused.value).partition("write ")[2]
    split = eval(line, {"as_split": as_split, "torch": torch, "data": data})  # noqa: S307
    assert torch.equal(split.x, X)
    assert torch.equal(split.labels, Y)
