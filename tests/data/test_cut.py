"""Cutting a set in one piece into four splits."""

from __future__ import annotations

import pytest
import torch

from gemfi.data.splits import Role, cut
from gemfi.errors import InputError

NAMES = ("a", "b", "c")


def rows(*counts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Row numbers as samples, and that many labels of each class, mixed."""
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    y = y[torch.arange(len(y)) * 7 % len(y)] if len(y) % 7 else y
    return torch.arange(len(y), dtype=torch.float32)[:, None], y


@pytest.mark.parametrize("counts", [(100, 60, 40), (5, 5, 5), (900, 5, 95), (33, 33, 35)])
def test_four_parts_that_share_nothing_and_lose_nothing(counts: tuple[int, ...]) -> None:
    x, y = rows(*counts)
    parts = cut(x, y, NAMES, "mine")
    assert set(parts) == {Role.TRAIN, Role.VALIDATION, Role.CALIBRATION, Role.TEST}
    total = len(y)
    assert len(parts[Role.TEST]) == round(0.2 * total)
    assert len(parts[Role.VALIDATION]) == len(parts[Role.CALIBRATION]) == round(0.1 * total)
    found = torch.cat([split.x[:, 0] for split in parts.values()])
    assert found.sort().values.tolist() == list(range(total))
    for role, split in parts.items():
        numbers = split.x[:, 0].long()
        assert torch.equal(split.labels, y[numbers])
        assert torch.equal(numbers, numbers.sort().values)  # the order of the samples
        assert (split.role, split.name, split.num_classes) == (role, "mine", 3)
        assert split.class_names == NAMES


def test_each_keeps_the_proportions() -> None:
    x, y = rows(100, 60, 40)
    parts = cut(x, y, NAMES, "mine")
    assert parts[Role.TRAIN].class_counts.tolist() == [60, 36, 24]
    assert parts[Role.VALIDATION].class_counts.tolist() == [10, 6, 4]
    assert parts[Role.CALIBRATION].class_counts.tolist() == [10, 6, 4]
    assert parts[Role.TEST].class_counts.tolist() == [20, 12, 8]


def test_the_seed_is_its_own() -> None:
    x, y = rows(100, 60, 40)
    first = cut(x, y, NAMES, "mine")
    torch.manual_seed(5)
    again, other = cut(x, y, NAMES, "mine"), cut(x, y, NAMES, "mine", seed=1)
    for role in first:
        assert torch.equal(first[role].x, again[role].x)
    assert not torch.equal(first[Role.TEST].x, other[Role.TEST].x)


@pytest.mark.parametrize(("counts", "rare"), [((20, 4, 20), "'b' has 4"), ((9, 9, 0), "'c' has 0")])
def test_a_class_that_is_too_small(counts: tuple[int, ...], rare: str) -> None:
    x, y = rows(*counts)
    message = rf"'mine': class {rare} samples; cutting a set .*at least 5 of each class"
    with pytest.raises(InputError, match=message):
        cut(x, y, NAMES, "mine")
