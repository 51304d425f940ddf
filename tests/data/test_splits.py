"""Splits: their checks at construction, subsets and carving."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from gemfi.data import Role, Split, as_split
from gemfi.errors import InputError, RoleError

X = torch.arange(24, dtype=torch.float32).reshape(12, 2)
Y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 0, 1, 0, 0])


def split(role: Role = Role.TRAIN, **changes: Any) -> Split:
    fields: dict[str, Any] = {"x": X, "y": Y, "role": role, "name": "mine", "num_classes": 3}
    return Split(**(fields | changes))


def labelled(counts: list[int]) -> Split:
    """A training split with these class counts, whose x is its own index."""
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    y = y[torch.randperm(len(y), generator=torch.Generator().manual_seed(1))]
    x = torch.arange(len(y), dtype=torch.float32)[:, None]
    return as_split(x, y, role="train", num_classes=len(counts))


class TestConstruction:
    def test_keeps_what_it_was_given(self) -> None:
        made = split()
        assert len(made) == 12
        assert torch.equal(made.x, X)
        assert torch.equal(made.labels, Y)
        assert made.class_counts.tolist() == [6, 4, 2]

    def test_class_counts_include_absent_classes(self) -> None:
        assert split(num_classes=5).class_counts.tolist() == [6, 4, 2, 0, 0]

    @pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
    def test_labels_become_int64(self, dtype: torch.dtype) -> None:
        made = split(y=Y.to(dtype))
        assert made.labels.dtype is torch.int64
        assert torch.equal(made.labels, Y)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
    def test_floating_inputs_become_float32_and_images_stay_bytes(self, dtype: torch.dtype) -> None:
        assert split(x=X.to(dtype)).x.dtype is torch.float32
        assert split(x=X.to(torch.uint8)).x.dtype is torch.uint8

    def test_cuts_gradients(self) -> None:
        assert not split(x=(X.clone().requires_grad_() * 2)).x.requires_grad

    def test_is_frozen(self) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            split(Role.TEST).role = Role.TRAIN  # type: ignore[misc]

    def test_repr_is_one_line(self) -> None:
        assert repr(split()) == "Split('mine', role=train, x=(12, 2) torch.float32, classes=3)"

    @pytest.mark.parametrize("role", ["train", "validation", "calibration", "test"])
    def test_id_roles_need_labels(self, role: str) -> None:
        with pytest.raises(InputError, match=f"'mine': role {role} needs labels"):
            split(Role(role), y=None)

    @pytest.mark.parametrize("role", ["ood-validation", "ood-test", "auxiliary"])
    def test_other_roles_go_without(self, role: str) -> None:
        made = split(Role(role), y=None)
        with pytest.raises(InputError, match=f"role {role}\\) has no labels"):
            _ = made.labels

    def test_class_names_must_match(self) -> None:
        with pytest.raises(InputError, match="2 class names for num_classes=3"):
            split(class_names=("a", "b"))


class TestBadInput:
    @pytest.mark.parametrize(
        ("x", "message"),
        [
            (torch.zeros(12), r"\(N, \.\.\.\).*got \(12,\).*x\[:, None\]"),
            (torch.tensor(1.0), r"empty.*got \(\)"),
            (torch.zeros(0, 2), r"empty.*got \(0, 2\)"),
            (torch.zeros(12, 0), r"no features, shape \(12, 0\)"),
            (torch.zeros(12, 2, dtype=torch.int64), "floating point or uint8, got torch.int64"),
            (torch.zeros(12, 2, dtype=torch.bool), "floating point or uint8, got torch.bool"),
            (np.zeros((12, 2)), "must be a tensor, got ndarray; use as_split"),
        ],
    )
    def test_inputs(self, x: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            split(x=x)

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), 1e300])
    def test_non_finite_inputs_name_the_first_index(self, bad: float) -> None:
        x = torch.zeros(12, 3, 2, dtype=torch.float64)
        x[7, 2, 0] = bad
        x[9, 0, 1] = bad
        with pytest.raises(InputError, match=r"sample 7 holds NaN or infinity.*2 of 12"):
            split(x=x)

    @pytest.mark.parametrize(
        ("y", "message"),
        [
            (torch.where(Y == 2, 3, Y), r"in 0\.\.2, found 0\.\.3"),
            (Y - 1, r"in 0\.\.2, found -1\.\.1"),
            (Y.float(), "integers, got torch.float32"),
            (Y > 0, "integers, got torch.bool"),
            (Y[:11], "12 samples, but y has 11 labels"),
            (torch.nn.functional.one_hot(Y), r"shape \(N,\), got \(12, 3\).*argmax"),
            (Y.tolist(), "must be a tensor, got list"),
        ],
    )
    def test_labels(self, y: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            split(y=y)

    def test_negative_labels_without_a_number_of_classes(self) -> None:
        with pytest.raises(InputError, match=r"non-negative, found -1\.\.1"):
            split(y=Y - 1, num_classes=None)

    def test_unknown_role(self) -> None:
        with pytest.raises(InputError, match="unknown role 'dev'; expected one of train, valid"):
            as_split(X, Y, role="dev")

    def test_number_of_classes(self) -> None:
        with pytest.raises(InputError, match="num_classes must be at least 1, got 0"):
            split(num_classes=0)


class TestSubset:
    def test_takes_samples_in_order_with_the_role(self) -> None:
        part = split(Role.OOD_TEST).subset([3, 0, 3])
        assert part.role is Role.OOD_TEST
        assert torch.equal(part.x, X[[3, 0, 3]])
        assert torch.equal(part.labels, Y[[3, 0, 3]])

    def test_of_data_without_labels(self) -> None:
        part = split(Role.AUXILIARY, y=None).subset(np.array([1, 2]))
        assert part.y is None
        assert torch.equal(part.x, X[1:3])

    @pytest.mark.parametrize(
        ("indices", "message"),
        [
            ([0, 12], r"in 0\.\.11, found 0\.\.12"),
            ([-1], r"in 0\.\.11, found -1\.\.-1"),
            (Y == 0, "mask.nonzero"),
            ([0.5], "list of integers"),
            (torch.tensor([], dtype=torch.int64), "at least one index"),
        ],
    )
    def test_refuses_bad_indices(self, indices: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            split().subset(indices)


class TestCarve:
    def test_is_disjoint_complete_and_keeps_the_order(self) -> None:
        whole = labelled([50, 30, 20])
        rest, carved = whole.carve(0.2, "calibration")
        assert (rest.role, carved.role) == (Role.TRAIN, Role.CALIBRATION)
        assert (len(rest), len(carved)) == (80, 20)
        for part in (rest, carved):  # x is the index in `whole`
            index = part.x[:, 0].long()
            assert torch.equal(index, index.sort().values)
            assert torch.equal(part.labels, whole.labels[index])
        assert torch.equal(torch.cat([rest.x, carved.x]).sort(0).values, whole.x)

    def test_is_stratified(self) -> None:
        _, carved = labelled([50, 30, 20]).carve(20)
        assert carved.class_counts.tolist() == [10, 6, 4]

    def test_rounds_by_largest_remainder(self) -> None:
        # quotas of 10 out of 40: 5.75, 2.75, 1.5 -> 5, 2, 1 and the two largest remainders
        _, carved = labelled([23, 11, 6]).carve(10)
        assert carved.class_counts.tolist() == [6, 3, 1]

    def test_same_seed_same_split_and_another_seed_another(self) -> None:
        whole = labelled([50, 30, 20])
        first, again, other = (whole.carve(0.2, seed=seed)[1].x for seed in (3, 3, 4))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    def test_twice_gives_three_disjoint_parts(self) -> None:
        whole = labelled([50, 30, 20])
        rest, validation = whole.carve(0.1)
        rest, calibration = rest.carve(10, "calibration")
        union = torch.cat([rest.x, validation.x, calibration.x])
        assert torch.equal(union.sort(0).values, whole.x)

    def test_leaves_the_global_generators_alone(self) -> None:
        before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        labelled([50, 30]).carve(0.2)
        assert torch.equal(before[0], torch.get_rng_state())
        assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002

    @pytest.mark.parametrize("role", [role for role in Role if role is not Role.TRAIN])
    def test_only_from_train(self, role: Role) -> None:
        with pytest.raises(RoleError, match=f"has role {role}: only train can be carved"):
            split(role).carve(0.5)

    @pytest.mark.parametrize("role", ["train", "test", "ood-validation", "ood-test", "auxiliary"])
    def test_only_validation_and_calibration(self, role: str) -> None:
        with pytest.raises(RoleError, match=f"cannot carve role {role}"):
            split().carve(0.5, role)

    @pytest.mark.parametrize(
        ("size", "message"),
        [
            (0, "cannot draw 0 of 12 samples: expected 1 to 9"),
            (10, "expected 1 to 9"),
            (-3, "cannot draw -3"),
            (0.01, "cannot draw 0 of 12"),
            (1.0, "between 0 and 1, got 1.0"),
            (float("nan"), "between 0 and 1, got nan"),
            (True, "bool"),
        ],
    )
    def test_refuses_bad_sizes(self, size: float, message: str) -> None:
        with pytest.raises(InputError, match=message):
            split().carve(size)

    @pytest.mark.parametrize("seed", [-1, 1.5, None, True])
    def test_refuses_bad_seeds(self, seed: Any) -> None:
        with pytest.raises(InputError, match="seed must be an integer of at least 0"):
            split().carve(3, seed=seed)
