"""Streams: what a loop reads of data sets and loaders, and what it refuses."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

from gemfi.data import Split, as_split
from gemfi.data.splits import Rows, Share
from gemfi.data.streams import Stream, listed_labels
from gemfi.errors import InputError

X = torch.arange(24, dtype=torch.float32).reshape(12, 2)
Y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 0, 1, 0, 0])


class Pairs(Dataset[Any]):
    """The samples as numpy arrays with plain ints, as many data sets give them."""

    def __init__(self, x: Any = X, y: Any = Y) -> None:
        self.x, self.y = x, y
        self.reads: list[int] = []

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        self.reads.append(index)
        return np.asarray(self.x[index]), self.y[index].item()


class Noisy(Pairs):
    """Draws from all three global generators at each reading."""

    def __getitem__(self, index: int) -> Any:
        noise = torch.rand(()) + np.random.rand() + random.random()  # noqa: NPY002, S311
        return self.x[index] + noise, self.y[index]


class Items(Dataset[Any]):
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class Endless(IterableDataset[Any]):
    """Pairs one after the other, in an order that depends on the epoch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        order = torch.randperm(12, generator=torch.Generator().manual_seed(self.epoch))
        return ((X[i] + torch.rand(()), int(Y[i])) for i in order)


def joined(batches: Iterator[Any]) -> tuple[Tensor, Tensor | None]:
    pairs = list(batches)
    labels = [y for _, y in pairs]
    return torch.cat([x for x, _ in pairs]), None if labels[0] is None else torch.cat(labels)


def keyed(**values: Any) -> Items:
    return Items([{name: value[i] for name, value in values.items()} for i in range(12)])


class Columns:
    """As much of a Hugging Face data set as a stream looks at."""

    column_names = ("image", "label")

    def __init__(self, kind: str | None = None) -> None:
        self.column_names = ["image", "label"]
        self.format = {"type": kind}
        label = type("ClassLabel", (), {"names": ["a", "b", "c"]})()
        self.features = {"image": None, "label": label}

    def with_format(self, kind: str) -> Columns:
        return Columns(kind)

    def __len__(self) -> int:
        return 12

    def __getitem__(self, rows: Any) -> dict[str, Any]:
        x, y = X[rows], Y[rows]
        if self.format["type"] is None:
            return {"image": x.tolist(), "label": y.tolist()}
        return {"image": x, "label": y.numpy() if self.format["type"] == "numpy" else y}


def hugging_face() -> datasets.Dataset:
    """The real thing."""
    return datasets.Dataset.from_dict({"pixel_values": X.tolist(), "labels": Y.tolist()})


def pictures(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """A transform, which Hugging Face calls with columns."""
    values = [torch.tensor(value) for value in columns["pixel_values"]]
    return {"pixel_values": values, "labels": columns["labels"]}


class TestReading:
    @pytest.mark.parametrize(
        "data",
        [
            Pairs(),
            DataLoader(TensorDataset(X, Y), batch_size=5),
            DataLoader(Pairs(), batch_size=5, drop_last=True),
            DataLoader(Pairs(), batch_size=5, num_workers=2),
            DataLoader(TensorDataset(X, Y), batch_sampler=[[0, 1], list(range(2, 12))]),
            DataLoader(Pairs(), batch_size=5, shuffle=True),
            DataLoader(Pairs(), batch_size=5, collate_fn=lambda items: [
                torch.stack([torch.as_tensor(x) for x, _ in items]), [y for _, y in items]
            ]),
            keyed(pixel_values=X, labels=Y),
            keyed(x=X.numpy(), target=Y.tolist()),
            DataLoader(keyed(pixel_values=X, labels=Y), batch_size=4),
            keyed(anything=X, label=Y),
            Columns(),
            hugging_face(),
            DataLoader(hugging_face(), batch_size=5),
            hugging_face().with_transform(pictures),
        ],
        ids=lambda data: type(data).__name__,
    )  # fmt: skip
    def test_in_order_everything_equals_the_tensors(self, data: Any) -> None:
        stream = as_split(data, role="train", name="mine")
        assert isinstance(stream, Stream)
        x, y = joined(stream.walk(5))
        assert torch.equal(x, X)
        assert y is not None
        assert torch.equal(y, Y)
        loaded = stream.load()
        assert isinstance(loaded, Split)
        assert torch.equal(loaded.x, X)
        assert torch.equal(stream.labels, Y)

    def test_rows_come_as_they_are_asked_for(self) -> None:
        stream = as_split(DataLoader(Pairs(), batch_size=5, num_workers=1), role="train")
        order = [Rows(torch.tensor(rows), "0") for rows in ([3, 1], [7], [7, 0, 11])]
        batches = list(stream.read(order))
        assert [x.tolist() for x, _ in batches] == [X[rows.index].tolist() for rows in order]
        assert [y.tolist() for _, y in batches] == [Y[rows.index].tolist() for rows in order]

    def test_nothing_is_read_before_it_is_needed(self) -> None:
        data = Pairs(torch.zeros(500, 2), torch.arange(500) % 3)
        stream = as_split(data, role="train")
        assert len(data.reads) == 32  # what an input looks like
        next(iter(stream.walk(10)))
        assert len(data.reads) == 42

    def test_texts_of_any_length(self) -> None:
        ids = [torch.tensor([1, 2, 3]), torch.tensor([4]), torch.tensor([5, 6])]
        data = Items([{"input_ids": one, "labels": 1} for one in ids])

        def pad(items: list[Any]) -> dict[str, Tensor]:
            rows = torch.nn.utils.rnn.pad_sequence([item["input_ids"] for item in items], True)
            return {"input_ids": rows, "labels": torch.tensor([item["labels"] for item in items])}

        stream = as_split(DataLoader(data, batch_size=2, collate_fn=pad), role="train")
        assert stream.tokens
        assert [x.tolist() for x, _ in stream.walk(2)] == [[[1, 2, 3], [4, 0, 0]], [[5, 6]]]
        with pytest.raises(InputError, match="give a DataLoader with a collate_fn that pads"):
            as_split(data, role="train")

    def test_images_of_pillow(self) -> None:
        image = pytest.importorskip("PIL.Image")
        pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
        data = Items([(image.fromarray(pixels), 0), (image.fromarray(pixels[:, ::-1].copy()), 1)])
        x, _ = joined(as_split(data, role="train").walk(2))
        assert x.dtype == torch.uint8
        assert torch.equal(x[0], torch.from_numpy(pixels).permute(2, 0, 1))

    def test_data_without_labels(self) -> None:
        for data in (Items(list(X)), DataLoader(Items(list(X)), batch_size=5)):
            stream = as_split(data, role="ood-test")
            x, y = joined(stream.walk(5))
            assert torch.equal(x, X)
            assert y is None
            with pytest.raises(InputError, match="has no labels"):
                _ = stream.labels

    @pytest.mark.parametrize("count", [2, 3])
    def test_shares_make_the_whole(self, count: int) -> None:
        """Of a batch the parts, of a walk every p-th batch; data in their own order alike."""
        shares = [Share(rank, count) for rank in range(count)]
        for data in (Pairs(), DataLoader(Endless(), batch_size=4)):
            stream = as_split(data, role="train", length=12)
            order = [Rows(torch.arange(4 * n, 4 * n + 4), "s") for n in range(3)]
            whole = list(stream.read(order))
            parts = [list(stream.read(order, share)) for share in shares]
            for number, (x, y) in enumerate(whole):
                assert torch.equal(torch.cat([part[number][0] for part in parts]), x)
                assert torch.equal(torch.cat([part[number][1] for part in parts]), y)
            walks = [list(stream.walk(4, share)) for share in shares]
            in_turn = [walks[n % count][n // count] for n in range(3)]
            for (x, _), (expected, _) in zip(in_turn, stream.walk(4), strict=True):
                assert torch.equal(x, expected)


class TestDraws:
    """Random transforms follow from seed, epoch and row, and from nothing else."""

    @pytest.mark.parametrize("workers", [0, 1, 2])
    def test_they_repeat_with_any_number_of_workers(self, workers: int) -> None:
        rows = [Rows(torch.tensor([4, 2, 9]), "7", 1), Rows(torch.tensor([0, 2]), "7", 2)]
        alone = list(as_split(Noisy(), role="train").read(rows))
        loader = DataLoader(Noisy(), batch_size=2, num_workers=workers)
        other = list(as_split(loader, role="train").read(rows[::-1]))
        for (x, _), (expected, _) in zip(other[::-1], alone, strict=True):
            assert torch.equal(x, expected)
        assert not torch.equal(alone[0][0][1], alone[1][0][1])  # row 2 in another epoch

    def test_the_generators_of_the_process_stay(self) -> None:
        before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
        for data in (Noisy(), DataLoader(Endless(), batch_size=4)):
            stream = as_split(data, role="train", length=12)
            joined(stream.walk(4))
            assert torch.equal(before[0], torch.get_rng_state())
            assert before[1] == np.random.get_state()[1].tolist()  # noqa: NPY002
            assert before[2] == random.getstate()

    def test_it_is_known_whether_there_are_any(self) -> None:
        assert as_split(Noisy(), role="train").is_random
        assert not as_split(Pairs(), role="train").is_random

    def test_an_order_of_its_own_repeats_epoch_by_epoch(self) -> None:
        sampler = WeightedRandomSampler([1.0] * 12, 12)
        for data in (
            DataLoader(Endless(), batch_size=4),
            DataLoader(Noisy(), batch_size=4, sampler=sampler),
            DataLoader(
                Pairs(), batch_sampler=BatchSampler(sampler, 4, drop_last=False), num_workers=1
            ),
        ):
            stream = as_split(data, role="train", length=12)
            assert not stream.has_rows
            order = [Rows(torch.arange(4), "1", epoch) for epoch in (0, 0, 0, 1, 1, 1)]
            first, again = list(stream.read(order)), list(stream.read(order))
            late = list(stream.read(order[3:]))
            for (x, _), (same, _) in zip(first, again, strict=True):
                assert torch.equal(x, same)
            for (x, _), (same, _) in zip(first[3:], late, strict=True):
                assert torch.equal(x, same)
            assert not torch.equal(first[0][0], first[3][0])

    def test_a_pass_that_ends_too_soon_begins_again(self) -> None:
        stream = as_split(DataLoader(Endless(), batch_size=4), role="train", length=20)
        batches = list(stream.read([Rows(torch.arange(4), "1", 0)] * 5))
        assert [len(x) for x, _ in batches] == [4] * 5


class TestFacts:
    def test_labels_that_are_listed_cost_no_reading(self) -> None:
        data = Pairs()
        data.targets = Y.tolist()  # type: ignore[attr-defined]
        stream = as_split(data, role="train")
        read = len(data.reads)
        assert torch.equal(stream.labels, Y)
        assert stream.num_classes == 3
        assert stream.class_counts.tolist() == [6, 4, 2]
        part = Subset(data, [1, 4, 5])
        assert listed_labels(part).tolist() == [1, 1, 2]  # type: ignore[union-attr]
        assert len(data.reads) == read
        data.target_transform = abs  # type: ignore[attr-defined]
        assert listed_labels(data) is None

    def test_names_of_classes(self) -> None:
        data = Pairs()
        data.classes = ["cat", "dog", "eel"]  # type: ignore[attr-defined]
        assert as_split(data, role="test").class_names == ("cat", "dog", "eel")
        assert as_split(Columns(), role="test").class_names == ("a", "b", "c")

    def test_carving(self) -> None:
        rest, held = as_split(Pairs(), role="train").carve(4)
        assert (len(rest), len(held)) == (8, 4)
        assert str(held.role) == "validation"
        expected = as_split(X, Y, role="train").carve(4)[1]
        assert torch.equal(held.load().x, expected.x)

    def test_identity(self) -> None:
        """Version, length and samples, wherever they are."""
        one = as_split(Pairs(), role="train").checksum()
        assert one == as_split(Pairs(), role="train", name="other").checksum()
        assert one == as_split(DataLoader(Pairs(), batch_size=3), role="train").checksum()
        assert one != as_split(Pairs(), role="train", version="2").checksum()
        assert one != as_split(Pairs(X[:11], Y[:11]), role="train").checksum()
        other = X.clone()
        other[11] += 1
        assert one != as_split(Pairs(other), role="train").checksum()
        assert (
            as_split(Noisy(), role="train").checksum() == as_split(Noisy(), role="train").checksum()
        )

    def test_length(self) -> None:
        stream = as_split(Endless(), role="train")
        with pytest.raises(InputError, match=r"as_split\(..., length=N\)"):
            len(stream)
        assert repr(stream) == "Stream('data', role=train, x=(?, 2) torch.float32, classes=None)"
        assert len(as_split(Endless(), role="train", length=12)) == 12


class TestRefusals:
    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (Items([(X[0], 0, 1)]), r"an item: expected \(x, y\) or x alone, got 3 parts"),
            (Items([(X[0], 0), (X[0, :1], 1)]), r"samples \(2,\) .* and \(1,\) .*one shape"),
            (Items([(X[0], 0), (X[0].double(), 1)]), "float32 and .*float64"),
            (Items([(X[0], 0), (X[0],)]), "some items have labels and some do not"),
            (Items([("cat", 0)]), "x must be a tensor or a numpy array, got str"),
            (Items([(X[0], "cat")]), "y must be a tensor or a numpy array, got str"),
            (Items([(X[0], 1.5)]), "labels must be integers, got torch.float32"),
            (Items([(X[0], torch.tensor([0, 1]))]), "an item must have one label"),
            (Items([(X[0] / 0, 0)]), "x must be finite"),
            (Items([(X[0].long(), 0)]), "x must be floating point or uint8, got torch.int64"),
            (Items([{"a": X[0], "b": X[0], "y": 0}]), "has a, b, y: which are the inputs"),
            (DataLoader(TensorDataset(X, Y), batch_size=None), "samples, not batches"),
            (
                DataLoader(Pairs(), batch_size=12, collate_fn=lambda _: (X, Y[:3])),
                "x has 12 samples, but y has 3 labels",
            ),
            (Items(list(X)), "role train needs labels"),
        ],
    )
    def test_says_what_is_wrong(self, data: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            as_split(data, role="train")

    def test_labels_beyond_the_classes_are_found_when_they_are_read(self) -> None:
        many = Pairs(torch.zeros(40, 2), torch.arange(40) // 34)
        stream = as_split(many, role="test", num_classes=1)
        with pytest.raises(InputError, match=r"labels must be in 0..0, found 0..1"):
            list(stream.walk(40))

    def test_rows_of_what_has_none(self) -> None:
        stream = as_split(Endless(), role="train", length=12)
        with pytest.raises(InputError, match="it has no rows to choose from"):
            stream.subset([0])

    def test_a_loader_with_batches_at_random_has_an_order_of_its_own(self) -> None:
        data = TensorDataset(X, Y)
        batches = BatchSampler(RandomSampler(data), 4, drop_last=False)
        assert as_split(DataLoader(data, batch_sampler=batches), role="train").has_rows
