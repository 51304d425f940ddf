"""`as_split`: every kind of data gives the same split, and bad data says why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    TensorDataset,
)

from gemfi.data import Role, Split, as_split
from gemfi.errors import InputError, RoleError

X = torch.arange(24, dtype=torch.float32).reshape(12, 2)
Y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 0, 1, 0, 0])


class Pairs(Dataset[Any]):
    """The samples as numpy arrays with plain ints, as many data sets give them."""

    def __init__(self, x: Any = X, y: Any = Y, extra: tuple[Any, ...] = ()) -> None:
        self.x, self.y, self.extra = x, y, extra

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return (np.asarray(self.x[index]), self.y[index].item(), *self.extra)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(zip(X, Y, strict=True))


class Items(Dataset[Any]):
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class NoLength(Dataset[Any]):
    def __getitem__(self, index: int) -> Any:
        return X[0], Y[0]


class TestWrapping:
    @pytest.mark.parametrize(
        "data",
        [
            TensorDataset(X, Y),
            Pairs(),
            Stream(),
            DataLoader(TensorDataset(X, Y), batch_size=5),
            DataLoader(Pairs(), batch_size=5),
            DataLoader(Stream(), batch_size=5),
            DataLoader(TensorDataset(X, Y), batch_sampler=[[0, 1], list(range(2, 12))]),
        ],
        ids=lambda data: type(data).__name__,
    )
    def test_dataset_and_loader_equal_tensors(self, data: Any) -> None:
        wrapped = as_split(data, role="train", name="mine")
        plain = as_split(X, Y, role="train", name="mine")
        assert torch.equal(wrapped.x, plain.x)
        assert torch.equal(wrapped.labels, plain.labels)
        assert repr(wrapped) == repr(plain)

    @pytest.mark.parametrize("dtype", [np.float64, ">f4", np.float32])
    def test_numpy_equals_tensors(self, dtype: Any) -> None:
        x = X.numpy().astype(dtype)
        x.setflags(write=False)
        wrapped = as_split(x, Y.numpy().astype(np.uint16), role="test", num_classes=3)
        assert torch.equal(wrapped.x, X)
        assert torch.equal(wrapped.labels, Y)

    def test_numpy_is_copied(self) -> None:
        x = np.zeros((2, 2), dtype=np.float32)
        wrapped = as_split(x, np.array([0, 1]), role="train")
        x[:] = 9
        assert wrapped.x.abs().max() == 0

    @pytest.mark.parametrize(
        "data",
        [X, TensorDataset(X), Items(list(X)), DataLoader(TensorDataset(X), batch_size=5)],
        ids=["tensor", "TensorDataset", "bare", "DataLoader"],
    )
    def test_data_without_labels(self, data: Any) -> None:
        wrapped = as_split(data, role="ood-test")
        assert wrapped.y is None
        assert torch.equal(wrapped.x, X)

    def test_a_dataset_does_not_touch_the_global_generator(self) -> None:
        before = torch.get_rng_state()
        as_split(TensorDataset(X, Y), role="train")
        assert torch.equal(before, torch.get_rng_state())

    def test_number_of_classes(self) -> None:
        first = X[:1], torch.tensor([1])
        assert as_split(X, Y, role="train").num_classes == 3
        assert as_split(*first, role="validation").num_classes is None
        assert as_split(*first, role="test", class_names=("a", "b", "c")).num_classes == 3
        assert as_split(X, Y, role="train", num_classes=7).num_classes == 7

    @pytest.mark.parametrize("data", [Items([]), DataLoader(Items([]), batch_size=4)])
    def test_empty(self, data: Any) -> None:
        with pytest.raises(InputError, match=r"'mine': the (Items|DataLoader) is empty"):
            as_split(data, role="train", name="mine")

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (Pairs(extra=(1,)), "item 0: expected .* got 3 parts"),
            (Items([(X[0], 0), (X[0, :1], 1)]), r"changes from \(2,\) .* to \(1,\) .* position 1"),
            (Items([(X[0], 0), (X[0].double(), 1)]), "float32 to .*float64 at position 1"),
            (Items([(X[0], 0), (X[0],)]), r"some items have labels .*position 1"),
            (Items([(X[0],), (X[0], 0)]), r"some items have labels .*position 1"),
            (Items([("cat", 0)]), "item 0: x must be a tensor or a numpy array, got str"),
            (Items([(X[0], "cat")]), "item 0: y must be a tensor or a numpy array, got str"),
            (Items([(X[0], 1.5)]), "labels must be integers, got torch.float32"),
            (Items([(X[0], torch.tensor([0, 1]))]), r"one label, got shape \(2,\)"),
            (
                Items([{"x": X[0], "y": 0}]),
                r"item 0 is a dict of x, y.*: write as_split\(torch.stack\(\[item",
            ),
            (NoLength(), "NoLength has no __len__"),
            (DataLoader(Pairs(), batch_size=5, drop_last=True), "drop_last=True .*lose samples"),
            (DataLoader(TensorDataset(X, Y), batch_size=None), "samples, not batches"),
            (DataLoader(TensorDataset(X), batch_size=None), "samples, not batches"),
            (
                DataLoader(Pairs(), batch_size=12, collate_fn=lambda _: (X, Y[:3])),
                "batch 0 has 12 samples, but 3 labels",
            ),
            ([[0.0], [1.0]], "must be a tensor or a numpy array, got list"),
            (np.array(["a", "b"]), "must hold numbers, got dtype <U1"),
            (np.array([{}, {}]), "must hold numbers, got dtype object"),
        ],
    )
    def test_refuses(self, data: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            as_split(data, role="train")

    def test_refuses_labels_beside_a_dataset(self) -> None:
        with pytest.raises(InputError, match="a Pairs brings its own labels"):
            as_split(Pairs(), Y, role="train")

    @pytest.mark.parametrize("role", ["train", "ood-test"])
    def test_cannot_change_a_role(self, role: str) -> None:
        data: Any = Split(X, None, Role.OOD_TEST, "mine")
        with pytest.raises(RoleError, match="already has role ood-test, and a role does not chan"):
            as_split(data, role=role)


class Columns:
    """As much of a Hugging Face data set as `as_split` looks at; `datasets` is no dependency."""

    column_names: ClassVar = ["image", "label"]

    def with_format(self, kind: str) -> Any:
        assert kind == "torch"
        return Items([])

    def __getitem__(self, rows: slice) -> dict[str, Any]:
        return {"image": X[rows], "label": Y[rows]}


class Parts(dict[str, Any]):
    column_names: ClassVar = {"train": ["image", "label"]}

    def with_format(self, kind: str) -> Any:
        return self


def keyed(x: Any, y: Any) -> dict[str, Any]:
    return {"pixel_values": x, "labels": y}


class TestInstead:
    """What is refused is told the line to write, and the line works."""

    @pytest.mark.parametrize(
        ("name", "given"),
        [
            ("data", Items([keyed(x, int(y)) for x, y in zip(X, Y, strict=True)])),
            ("data", Items([keyed(x.numpy(), y) for x, y in zip(X, Y, strict=True)])),
            ("loader", DataLoader(Items([keyed(X[i], Y[i]) for i in range(12)]), batch_size=5)),
            ("data", keyed(X, Y)),
            ("data", [(x, int(y)) for x, y in zip(X, Y, strict=True)]),
            ("data", [(x.numpy(), y.numpy()) for x, y in zip(X, Y, strict=True)]),
            ("loader", DataLoader(TensorDataset(X, Y), batch_size=5, drop_last=True)),
            ("loader", DataLoader(TensorDataset(X, Y), shuffle=True)),
            ("loader", DataLoader(TensorDataset(X, Y), batch_size=None)),
        ],
    )
    def test_the_line_gives_the_split(self, name: str, given: Any) -> None:
        with pytest.raises(InputError) as refused:
            as_split(given, role="train")
        line = str(refused.value).partition("write ")[2].partition(" (training")[0]
        line = line.replace("role=...", 'role="train"')
        found = eval(line, {"as_split": as_split, "torch": torch, "np": np, name: given})  # noqa: S307
        assert torch.equal(found.x, X)
        assert torch.equal(found.labels, Y)

    def test_token_ids_are_known_by_their_name(self) -> None:
        item = {"input_ids": torch.zeros(3, dtype=torch.int64), "label": 1}
        with pytest.raises(InputError, match=r'\["input_ids"\] .* tokens=True, role=...'):
            as_split(Items([item]), role="train")

    def test_a_hugging_face_data_set(self) -> None:
        data: Any = Columns()
        with pytest.raises(InputError, match="Hugging Face data set of image, label") as refused:
            as_split(data, role="train")
        assert str(refused.value).endswith(
            'write rows = data.with_format("torch")[:], then as_split(rows["image"], '
            'rows["label"], role="train")'
        )
        parts: Any = Parts(train=data)
        with pytest.raises(InputError, match=r'write data = data\["train"\], which is one'):
            as_split(parts, role="train")


class Noisy(Dataset[Any]):
    """A data set whose transform draws anew at each reading."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> Any:
        flipped = bool(torch.rand((), generator=self.generator) < 0.5)
        return (X[index].flip(0) if flipped else X[index]), Y[index]


class TestRandomTransforms:
    @pytest.mark.parametrize(
        "wrap",
        [lambda data: data, lambda data: DataLoader(data, batch_size=5)],
        ids=["set", "loader"],
    )
    def test_they_are_warned_about_by_name(self, wrap: Any) -> None:
        data = wrap(Noisy(torch.Generator().manual_seed(0)))
        kind = type(data).__name__
        with pytest.warns(
            UserWarning, match=rf"'mine': the {kind} gives other samples .*TrainConf"
        ):
            as_split(data, role="train", name="mine")
        with pytest.warns(UserWarning, match="read them without random transforms$"):
            as_split(data, role="test", num_classes=3)

    def test_a_stream_that_shuffles_is_warned_about(self) -> None:
        generator = torch.Generator().manual_seed(0)

        class Shuffled(IterableDataset[Any]):
            def __iter__(self) -> Iterator[Any]:
                return ((X[i], Y[i]) for i in torch.randperm(12, generator=generator))

        with pytest.warns(UserWarning, match="the Shuffled gives other samples at each reading"):
            as_split(Shuffled(), role="train")

    def test_few_samples_are_read_twice(self) -> None:
        read: list[int] = []

        class Counted(Pairs):
            def __getitem__(self, index: int) -> tuple[Any, ...]:
                read.append(index)
                return super().__getitem__(index)

        x, y = torch.zeros(200, 2), torch.arange(200) % 3
        as_split(Counted(x, y), role="train")
        assert read == [*range(200), *range(32)]

    def test_a_stream_that_can_be_read_once_is_taken(self) -> None:
        class Once(IterableDataset[Any]):
            items = iter(list(zip(X, Y, strict=True)))

            def __iter__(self) -> Iterator[Any]:
                return self.items

        assert len(as_split(Once(), role="train")) == 12


def test_a_loader_with_batches_at_random_is_refused() -> None:
    data = TensorDataset(X, Y)
    loader = DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 4, drop_last=False))
    with pytest.raises(InputError, match="the DataLoader shuffles"):
        as_split(loader, role="train")


def test_a_shuffling_loader_is_refused() -> None:
    data = TensorDataset(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]))
    with pytest.raises(InputError, match=r"shuffles, .* write as_split\(loader.dataset, role"):
        as_split(DataLoader(data, batch_size=2, shuffle=True), role="train")
