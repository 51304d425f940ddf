"""Batches: their order, and features that are computed once where they fit into memory."""

from __future__ import annotations

import pytest
import torch

from gemfi.data import Split, as_split
from gemfi.model import Model, build_model
from gemfi.training import batches
from gemfi.training.batches import Features, batches_per_epoch, permutation

BYTES = 1200 * 8 * 4  # of the features below


def test_every_sample_is_seen_once_an_epoch_except_a_last_batch_of_one() -> None:
    assert batches_per_epoch(120, 32) == 4
    assert batches_per_epoch(129, 32) == 4
    assert batches_per_epoch(1, 32) == 1
    assert sorted(permutation(50, 3, 7).tolist()) == list(range(50))
    assert not torch.equal(permutation(50, 3, 7), permutation(50, 3, 8))


def made() -> tuple[Model, Split, list[int]]:
    """A model of 8 features, 1200 samples, and the sizes of the batches its backbone was given."""
    torch.manual_seed(0)
    model = build_model("gem-fi", "mlp", 3, in_features=4, width=8, depth=1).eval()
    split = as_split(torch.randn(1200, 4), torch.arange(1200) % 3, role="train")
    sizes: list[int] = []
    model.backbone.register_forward_hook(lambda _m, given, _out: sizes.append(len(given[0])))
    return model, split, sizes


@pytest.mark.parametrize(
    ("limit", "walks"), [(BYTES, 1), (BYTES - 1, 2)], ids=["kept", "computed again"]
)
def test_features_are_kept_where_they_fit(
    monkeypatch: pytest.MonkeyPatch, limit: int, walks: int
) -> None:
    monkeypatch.setattr(batches, "KEPT_BYTES", limit)
    model, split, sizes = made()
    features = Features(model, split)
    first, second = list(features), list(features)
    assert sizes == [512, 512, 176] * walks
    for walk in (first, second):
        assert torch.equal(torch.cat([z for z, _ in walk]), model.embed(split.x))
        assert torch.equal(torch.cat([y for _, y in walk]), split.labels)


def test_statistics_are_the_same_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without validation data GEM walks through the training features twice."""
    found = []
    for limit, calls in ((BYTES, 3), (0, 6)):
        monkeypatch.setattr(batches, "KEPT_BYTES", limit)
        model, split, sizes = made()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        model.head.fit_statistics(Features(model, split), None)
        assert len(sizes) == calls
        found.append(model.state_dict())
        assert any(not torch.equal(found[-1][name], value) for name, value in before.items())
    kept, again = found
    assert [name for name in kept if not torch.equal(kept[name], again[name])] == []


def test_a_walk_that_is_broken_off_keeps_nothing() -> None:
    model, split, sizes = made()
    features = Features(model, split)
    next(iter(features))
    assert torch.equal(torch.cat([z for z, _ in features]), model.embed(split.x))
    assert sizes[:4] == [512, 512, 512, 176]
